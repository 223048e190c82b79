package main

import (
	"fmt"
	"image/color"
	"io"
	"strings"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"
)

// quietZone is how many light modules a code needs around it (ISO/IEC 18004 §9.1). On a dark terminal nothing else
// separates it from the background.
const quietZone = 4

// Colours are set, black on white, because some scanners take no light code on a dark ground, and because a terminal's
// own colours may be any. These two of the 256 are the same in every theme.
const (
	darkOnLight = "\x1b[38;5;16;48;5;231m"
	resetColour = "\x1b[0m"
)

// halfBlocks are the characters that show two modules, one above the other.
var halfBlocks = map[[2]bool]string{
	{false, false}: " ",
	{true, false}:  "▀",
	{false, true}:  "▄",
	{true, true}:   "█",
}

// drawQR writes text as a QR code for a terminal: two modules a character, as a character is about twice as high as it
// is wide.
func drawQR(w io.Writer, text string) error {
	code, err := encodeQR(text)
	if err != nil {
		return fmt.Errorf("make a QR code: %w", err)
	}
	size := code.Bounds().Dx()
	dark := func(x, y int) bool {
		return 0 <= x && x < size && 0 <= y && y < size && code.At(x, y) == color.Black
	}
	var b strings.Builder
	for y := -quietZone; y < size+quietZone; y += 2 {
		b.WriteString(darkOnLight)
		for x := -quietZone; x < size+quietZone; x++ {
			b.WriteString(halfBlocks[[2]bool{dark(x, y), dark(x, y+1)}])
		}
		b.WriteString(resetColour + "\n")
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// encodeQR makes the smallest code for text, since terminals are small, and of those of that size the one that bears
// most damage.
func encodeQR(text string) (barcode.Barcode, error) {
	best, err := qr.Encode(text, qr.L, qr.Unicode)
	if err != nil {
		return nil, err
	}
	for _, level := range []qr.ErrorCorrectionLevel{qr.M, qr.Q, qr.H} {
		code, err := qr.Encode(text, level, qr.Unicode)
		if err != nil || code.Bounds() != best.Bounds() {
			break
		}
		best = code
	}
	return best, nil
}
