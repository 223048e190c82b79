package main

import (
	"image/color"
	"strings"
	"testing"
	"unicode/utf8"
)

const aLink = "tg://proxy?server=203.0.113.7&port=443&secret=ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d"

// modules reads a drawn code: one row of modules each, true for dark.
func modules(t *testing.T, drawn string) (rows [][]bool) {
	t.Helper()
	for line := range strings.Lines(drawn) {
		text, ok := strings.CutPrefix(line, darkOnLight)
		text, reset := strings.CutSuffix(text, resetColour+"\n")
		if !ok || !reset {
			t.Fatalf("a line of other colours: %q", line)
		}
		var upper, lower []bool
		for _, r := range text {
			upper = append(upper, r == '█' || r == '▀')
			lower = append(lower, r == '█' || r == '▄')
		}
		rows = append(rows, upper, lower)
	}
	return rows
}

// TestDrawQR compares a drawing with the code, module by module, in a frame that is light all around. That scanners read
// it is for interop/qr_test.go to say.
func TestDrawQR(t *testing.T) {
	var b strings.Builder
	if err := drawQR(&b, aLink); err != nil {
		t.Fatal(err)
	}
	code, err := encodeQR(aLink)
	if err != nil {
		t.Fatal(err)
	}
	size := code.Bounds().Dx()
	rows := modules(t, b.String())
	if want := size + 2*quietZone; len(rows) != want+want%2 {
		t.Errorf("%d rows for %d modules", len(rows), want)
	}
	for y, row := range rows {
		if len(row) != size+2*quietZone {
			t.Fatalf("row %d has %d modules, want %d", y, len(row), size+2*quietZone)
		}
		for x, dark := range row {
			cx, cy := x-quietZone, y-quietZone
			inside := 0 <= cx && cx < size && 0 <= cy && cy < size
			if want := inside && code.At(cx, cy) == color.Black; dark != want {
				t.Fatalf("module %d,%d is dark: %t", cx, cy, dark)
			}
		}
	}
	// A finder pattern begins with seven dark modules, in the corners but the last.
	for _, corner := range [][2]int{{0, 0}, {size - 7, 0}, {0, size - 7}} {
		for i := range 7 {
			if !rows[quietZone+corner[1]][quietZone+corner[0]+i] {
				t.Errorf("no finder pattern at %v", corner)
			}
		}
	}
}

// TestQRSize: the code of a usual link fits into a window of 80 columns and 25 lines.
func TestQRSize(t *testing.T) {
	var b strings.Builder
	if err := drawQR(&b, aLink); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(b.String(), "\n")
	width := utf8.RuneCountInString(first) - len(darkOnLight) - len(resetColour)
	if lines := strings.Count(b.String(), "\n"); width != 49 || lines != 25 {
		t.Errorf("%d columns, %d lines", width, lines)
	}
}

func TestQRTooLong(t *testing.T) {
	var b strings.Builder
	if err := drawQR(&b, strings.Repeat("x", 3000)); err == nil || b.Len() > 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
}
