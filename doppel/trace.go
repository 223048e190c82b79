package doppel

import "time"

// Record is a TLS record of application data of the downlink, as seen on the wire.
type Record struct {
	At   time.Duration // arrival of its last byte, since the connection began
	Size int           // bytes of payload, as its length field says
}

// Burst is the response to one request.
type Burst struct {
	Asked   time.Duration // when the request was sent, since the connection began
	Records []Record
	Cut     bool // the watcher left before its end
}

// Trace is one connection behind its handshake and the tickets that follow it.
type Trace struct {
	Bursts []Burst
	RTT    time.Duration // of the path of whoever watched, e.g. the time of the connect; 0 is unknown
}

// Sizes of a record's payload. A record of TLS 1.3 has the content type and the tag beside at least one byte.
const (
	overhead = 1 + 16
	minSize  = 1 + overhead
	fullSize = 1<<14 + overhead
	maxSize  = 1<<14 + 256
)

// Numbers of our choosing.
const (
	// MinGap is the shortest gap that is learned and paced. Below it are the scheduler of the server, of the path and our own.
	MinGap = time.Millisecond

	// MaxGap is how far ahead a record is ever due. A longer silence inside a response is not learned: the server was thinking, or a
	// machine hung. When our downlink was empty for longer, what follows is a burst of its own.
	MaxGap = 250 * time.Millisecond
)

// step is a record of a burst: its size, and whether it waited for a gap. No size has both of the bits full and ended: together
// they mark a full record with which a write ended.
type step uint16

const (
	waited step = 1 << 15
	full   step = 1 << 14
	ended  step = 1 << 13
)

func newStep(size int, gap time.Duration) step {
	s := step(size)
	if gap > 0 {
		s |= waited
	}
	return s
}

func (s step) size() int {
	if s.ended() {
		return fullSize
	}
	return int(s &^ waited)
}

func (s step) waited() bool { return s&waited != 0 }
func (s step) ended() bool  { return s&(full|ended) == full|ended }

// response is a burst with what its path did to it taken out.
type response struct {
	sizes []int
	gaps  []time.Duration // before each record: 0, or MinGap..MaxGap; the first is 0
	ended []bool          // of each record: it is full, and a write ended there; nil: nobody can tell
	idle  time.Duration   // silence of the downlink before its first record

	offset int  // bytes that the connection had sent since its record sizes were last reset
	before int  // records likewise
	tail   bool // ends with the model's tail
	cut    bool // its end was not seen
}

// whole is how many of the records were sized by the server, and not by the end of what it had to say.
func (r *response) whole() int {
	n := len(r.sizes) - 1
	if r.tail {
		n-- // what was left is in the record before
	}
	return max(n, 0)
}

func (r *response) bytes() (n int) {
	for _, size := range r.sizes {
		n += size
	}
	return n
}

func (r *response) step(i int) step {
	s := newStep(r.sizes[i], r.gaps[i])
	if r.ended != nil && r.ended[i] {
		s |= ended
	}
	return s
}

// connection is the responses of a trace in order, none of them empty.
type connection []*response

func observe(traces []Trace) (seen []connection) {
	for _, t := range traces {
		if c := t.observe(); len(c) > 0 {
			seen = append(seen, c)
		}
	}
	return seen
}

func (t *Trace) observe() (c connection) {
	var last time.Duration
	for _, b := range t.Bursts {
		var r *response
		for _, rec := range b.Records {
			at := max(rec.At, last) // a scout's clock does not step back
			gap := at - last
			last = at
			if r == nil {
				r = &response{idle: gap, cut: b.Cut}
				c = append(c, r)
			}
			if len(r.sizes) == 0 || gap > MaxGap {
				gap = 0
			}
			r.add(min(max(rec.Size, minSize), maxSize), gap)
		}
	}
	for _, r := range c {
		r.withoutPath(t.RTT)
	}
	return c
}
