package relaytest

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Pattern is an endless content that its seed determines, so that hundreds of megabytes can be sent and verified and
// never held. No stretch of it repeats, so that a byte lost, doubled or moved shows. Read yields it, Write compares
// what it is given with it; either moves on. Not safe for concurrent use.
type Pattern struct {
	seed   uint64
	offset int64
	word   [8]byte // scratch of part
}

// NewPattern returns a pattern at its beginning.
func NewPattern(seed uint64) *Pattern { return &Pattern{seed: seed} }

// Offset returns how many bytes were read or compared.
func (p *Pattern) Offset() int64 { return p.offset }

// Read fills b. It never fails.
func (p *Pattern) Read(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		if p.offset%8 != 0 || len(rest) < 8 {
			n := copy(rest, p.part())
			p.offset += int64(n)
			rest = rest[n:]
			continue
		}
		i := p.offset / 8
		for ; len(rest) >= 8; rest = rest[8:] {
			binary.LittleEndian.PutUint64(rest, word(p.seed, i))
			i++
		}
		p.offset = i * 8
	}
	return len(b), nil
}

// Write fails at the first byte that is not the pattern's.
func (p *Pattern) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if p.offset%8 == 0 {
			n += p.compareWords(b[n:])
		}
		for _, want := range p.part() {
			if n == len(b) {
				return n, nil
			}
			if b[n] != want {
				return n, fmt.Errorf("relaytest: byte %d is %#02x, not %#02x", p.offset, b[n], want)
			}
			p.offset++
			n++
		}
	}
	return n, nil
}

// compareWords moves past the whole words that b begins with, as far as they are right, and returns their length.
func (p *Pattern) compareWords(b []byte) int {
	i := p.offset / 8
	rest := b
	for ; len(rest) >= 8 && binary.LittleEndian.Uint64(rest) == word(p.seed, i); rest = rest[8:] {
		i++
	}
	p.offset = i * 8
	return len(b) - len(rest)
}

// part returns the bytes from offset to the end of its word.
func (p *Pattern) part() []byte {
	binary.LittleEndian.PutUint64(p.word[:], word(p.seed, p.offset/8))
	return p.word[p.offset%8:]
}

// word returns the word i of a pattern: SplitMix64, which can start at any.
func word(seed uint64, i int64) uint64 {
	z := seed + uint64(i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// SendPattern writes the first n bytes of a pattern to w.
func SendPattern(w io.Writer, seed uint64, n int64) error {
	_, err := io.CopyBuffer(w, io.LimitReader(NewPattern(seed), n), make([]byte, 64<<10))
	return err
}

// CheckPattern reads n bytes from r and fails unless they are the first n of a pattern.
func CheckPattern(r io.Reader, seed uint64, n int64) error {
	p := NewPattern(seed)
	_, err := io.CopyBuffer(p, io.LimitReader(r, n), make([]byte, 64<<10))
	if err == nil && p.offset < n {
		err = fmt.Errorf("relaytest: %d of %d bytes: %w", p.offset, n, io.ErrUnexpectedEOF)
	} else if err != nil {
		err = fmt.Errorf("after %d bytes: %w", p.offset, err)
	}
	return err
}
