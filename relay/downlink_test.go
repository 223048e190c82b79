package relay

import (
	"bytes"
	"fmt"
	"testing"

	"mtrelay/tlsfront"
)

// fill scatters b over the buffers and returns how much of it there was room for.
func fill(buffers [][]byte, b []byte) (n int) {
	for _, buf := range buffers {
		n += copy(buf, b[n:])
	}
	return n
}

// Lengths that a read can have, framed: all up to two records, and those around the later borders. The bytes are
// right, no record is empty or over the full size or of 16,384 bytes, and none is under 18 bytes but where all there
// is is smaller.
func TestFrameEveryLength(t *testing.T) {
	scratch := make([]byte, 128<<10)
	text := pattern(MaxRecords*tlsfront.FullRecord, 1)
	for n := 1; n <= len(text); n++ {
		few := raceEnabled || n > 2*tlsfront.FullRecord
		if last := n % tlsfront.FullRecord; few && n%97 != 0 && last > 40 && last != 1<<14 {
			continue
		}
		buffers := recordBuffers(scratch, len(text), make([][]byte, 0, MaxRecords))
		if fill(buffers, text[:n]) != n {
			t.Fatalf("no room for %d bytes", n)
		}
		records := frame(scratch, n)
		if err := checkFrame(records, text[:n]); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func checkFrame(records, text []byte) error {
	count := 0
	for rest := text; len(rest) > 0; count++ {
		size := int(records[3])<<8 | int(records[4])
		if !bytes.Equal(records[:3], []byte{23, 3, 3}) || size == 0 || size > tlsfront.FullRecord {
			return fmt.Errorf("header % x", records[:5])
		}
		if size == 1<<14 {
			return fmt.Errorf("record %d has a size that no TLS 1.3 server sends", count)
		}
		if size < 18 && size != len(text) {
			return fmt.Errorf("record %d is cut to %d bytes", count, size)
		}
		if !bytes.Equal(records[5:5+size], rest[:size]) {
			return fmt.Errorf("record %d: other bytes", count)
		}
		records, rest = records[5+size:], rest[size:]
	}
	if len(records) > 0 {
		return fmt.Errorf("%d bytes too many", len(records))
	}
	want := (len(text) + tlsfront.FullRecord - 1) / tlsfront.FullRecord
	if len(text)%tlsfront.FullRecord == 1<<14 {
		want++ // the last one is two
	}
	if count != want {
		return fmt.Errorf("%d records, want %d", count, want)
	}
	return nil
}

func TestRecordBuffers(t *testing.T) {
	const full = tlsfront.FullRecord
	for _, c := range []struct {
		scratch, limit int
		want           []int
	}{
		{128 << 10, 1 << 20, []int{full, full, full, full, full, full}},
		{128 << 10, 3 * full, []int{full, full, full}},
		{64 << 10, full, []int{full}},
		{64 << 10, 4096, []int{4096}},
		{64 << 10, 5, []int{5}},
		{64 << 10, 0, nil},
		{64 << 10, full + 17, []int{full, 17}}, // what is left and too little for a record of its own
		{128 << 10, 6*full + 17, []int{full, full, full, full, full, full, 17}},
		{128 << 10, 6*full + 18, []int{full, full, full, full, full, full}},
		{64 << 10, full + 18, []int{full, 18}},
		{2*slot + 5 + 17, 1 << 20, []int{full, full}},
		{4, 1 << 20, nil},
	} {
		var got []int
		for _, b := range recordBuffers(make([]byte, c.scratch), c.limit, nil) {
			if cap(b) != len(b) {
				t.Error("a buffer reaches into the next header")
			}
			got = append(got, len(b))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("scratch %d, limit %d: buffers %v, want %v", c.scratch, c.limit, got, c.want)
		}
	}
}
