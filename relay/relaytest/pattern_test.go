package relaytest

import (
	"bytes"
	"io"
	"testing"
)

func TestPatternPieces(t *testing.T) {
	const n = 10_000
	whole, err := io.ReadAll(io.LimitReader(NewPattern(7), n))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 3, 7, 8, 9, 64, 4093} {
		from, to := NewPattern(7), NewPattern(7)
		var pieces []byte
		for from.Offset() < n {
			b := make([]byte, min(size, n-int(from.Offset())))
			from.Read(b)
			pieces = append(pieces, b...)
			if _, err := to.Write(b); err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
		}
		if !bytes.Equal(pieces, whole) || to.Offset() != n {
			t.Errorf("pieces of %d bytes differ from the whole", size)
		}
	}
}

func TestPatternFindsFault(t *testing.T) {
	const n = 100
	good := make([]byte, n)
	NewPattern(7).Read(good)
	for at := range n {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if got, err := NewPattern(7).Write(bad); err == nil || got != at {
			t.Errorf("a wrong byte at %d: found at %d, error %v", at, got, err)
		}
	}
	if err := CheckPattern(bytes.NewReader(good[:n-1]), 7, n); err == nil {
		t.Error("a missing byte was not found")
	}
	if err := CheckPattern(bytes.NewReader(good[1:]), 7, n-1); err == nil {
		t.Error("a lost first byte was not found")
	}
}

func BenchmarkPattern(b *testing.B) {
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	from, to := NewPattern(1), NewPattern(1)
	for b.Loop() {
		from.Read(buf)
		if _, err := to.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
