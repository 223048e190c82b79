package tlsfront

import "encoding/binary"

// cursor reads a message of which perhaps not all bytes are there yet. Every step may fail, and a failed step reads
// nothing. There are two ways to fail: later bytes may make up for it, or the message ends before (over).
type cursor struct {
	b     []byte
	later int  // bytes of the message behind b that have not come yet
	over  bool // a step went past the end of the message: no later byte helps
}

// left returns how many bytes the message has from here to its end, those to come included.
func (c *cursor) left() int { return len(c.b) + c.later }

// bytes reads the next n bytes. They are part of the message, not a copy.
func (c *cursor) bytes(n int) (b []byte, ok bool) {
	if n > len(c.b) {
		c.over = n > c.left()
		return nil, false
	}
	b, c.b = c.b[:n], c.b[n:]
	return b, true
}

func (c *cursor) uint8() (n int, ok bool) {
	b, ok := c.bytes(1)
	if !ok {
		return 0, false
	}
	return int(b[0]), true
}

func (c *cursor) uint16() (n int, ok bool) {
	b, ok := c.bytes(2)
	if !ok {
		return 0, false
	}
	return int(binary.BigEndian.Uint16(b)), true
}

// vector8 reads a vector behind its one-byte length, RFC 8446 §3.4.
func (c *cursor) vector8() (b []byte, ok bool) {
	n, ok := c.uint8()
	if !ok {
		return nil, false
	}
	return c.bytes(n)
}

// vector16 reads a vector behind its two-byte length.
func (c *cursor) vector16() (b []byte, ok bool) {
	n, ok := c.uint16()
	if !ok {
		return nil, false
	}
	return c.bytes(n)
}
