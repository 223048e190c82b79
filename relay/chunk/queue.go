package chunk

// A Queue is a FIFO of bytes in pooled chunks. The zero value is empty and owns no chunk. A queue must
// always be used with the pool that its first Append was given.
type Queue struct {
	head, tail *Chunk
	n          int
}

// Len returns the number of bytes queued.
func (q *Queue) Len() int { return q.n }

// Append copies b to the end of the queue.
func (q *Queue) Append(p *Pool, b []byte) {
	for len(b) > 0 {
		if q.tail == nil || len(q.tail.Room()) == 0 {
			q.grow(p)
		}
		n := copy(q.tail.Room(), b)
		q.tail.Fill(n)
		q.n += n
		b = b[n:]
	}
}

func (q *Queue) grow(p *Pool) {
	c := p.Get()
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

// Slices appends the queued bytes to dst, in order, as slices into the chunks (for writev), at most
// cap(dst)-len(dst) of them. They are valid until the next call of another method.
func (q *Queue) Slices(dst [][]byte) [][]byte {
	for c := q.head; c != nil && len(dst) < cap(dst); c = c.next {
		dst = append(dst, c.Bytes())
	}
	return dst
}

// Discard removes n bytes from the front; n must not exceed Len.
func (q *Queue) Discard(p *Pool, n int) {
	if n > q.n {
		panic("chunk: internal error: discarded more than is queued")
	}
	q.n -= n
	for n > 0 {
		k := min(n, len(q.head.Bytes()))
		q.head.drop(k)
		n -= k
		if len(q.head.Bytes()) == 0 {
			q.pop(p)
		}
	}
}

// Free gives all chunks back and leaves the queue empty.
func (q *Queue) Free(p *Pool) {
	for q.head != nil {
		q.pop(p)
	}
	q.n = 0
}

func (q *Queue) pop(p *Pool) {
	c := q.head
	q.head = c.next
	if q.head == nil {
		q.tail = nil
	}
	p.Put(c)
}
