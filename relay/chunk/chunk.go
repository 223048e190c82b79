// Package chunk holds bytes that must outlive the call that brought them: what a kernel did not take
// yet, what a stranger has said so far. They live in pooled chunks of 4 KiB, so that an idle connection
// owns none and a stalled one owns no more than it needs.
//
// Nothing here is safe for concurrent use: a pool and all that is taken from it belong to one loop.
package chunk

// Size is what one chunk takes, its header included. With the 8 bytes that Go puts before objects of this
// size which hold pointers it fills the size class of 4 KiB; a chunk of 4,096 bytes would cost 4,864, in
// spans of which a few survivors of a burst pin much.
const Size = 4096 - 8

// Cap is the number of bytes that a chunk holds.
const Cap = Size - headerSize

const headerSize = 16 // of header, on 64-bit machines; a test compares

type header struct {
	next   *Chunk
	lo, hi uint16 // data[lo:hi] is filled
}

// A Chunk is a fixed buffer that is filled from the front and emptied from the front.
type Chunk struct {
	header
	data [Cap]byte
}

// Bytes returns the filled part. It is valid until the chunk is put back.
func (c *Chunk) Bytes() []byte { return c.data[c.lo:c.hi:c.hi] }

// Room returns the free part behind the filled one; Fill tells how much of it was used.
func (c *Chunk) Room() []byte { return c.data[c.hi:] }

// Fill adds the first n bytes of Room to the filled part.
func (c *Chunk) Fill(n int) {
	if n < 0 || n > Cap-int(c.hi) {
		panic("chunk: internal error: filled past the end")
	}
	c.hi += uint16(n)
}

// drop removes n bytes from the front of the filled part.
func (c *Chunk) drop(n int) { c.lo += uint16(n) }

// maxFree bounds the free list of one loop (256 KiB): beyond it chunks go to the garbage collector, so
// that the memory of a burst comes back.
const maxFree = 64

// A Pool hands out chunks and keeps returned ones for the next caller. The zero value is ready.
type Pool struct {
	free  *Chunk
	spare int // length of the free list
	taken int
}

// Get returns an empty chunk, which the caller owns until Put.
func (p *Pool) Get() *Chunk {
	p.taken++
	c := p.free
	if c == nil {
		return new(Chunk)
	}
	p.free, c.next = c.next, nil
	p.spare--
	return c
}

// Put takes a chunk back. The caller must not touch it or anything that points into it afterwards.
func (p *Pool) Put(c *Chunk) {
	p.taken--
	c.header = header{}
	if p.spare == maxFree {
		return
	}
	c.next, p.free = p.free, c
	p.spare++
}

// Taken returns the number of chunks that are out at the moment.
func (p *Pool) Taken() int { return p.taken }
