package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"time"

	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// frames follows the frames of a shaped downlink. A client can use none before it is whole, so while one is known to go
// on, its bytes may as well wait in the DC's socket until they fill a record: without that, records would be as short as
// the segments that come in. What ends a frame never waits, unless it is too little for any record.
//
// A frame begins with its length (core.telegram.org/mtproto/mtproto-transports), in the client's key stream. The zero
// value stands before the first frame of a transport that is not abridged. Whoever sends something else is found out by a length that no frame has, and then
// nothing waits any more.
type frames struct {
	rest     uint32  // bytes of the current frame that have not passed
	end      uint32  // where the last frame ends that is known to have begun, counted from the next byte that passes
	head     [4]byte // of the next frame
	have     uint8   // bytes of head
	lost     bool    // these are no frames, or nobody followed them
	abridged bool    // how lengths are written
}

// Numbers of our choosing.
const (
	// longestFrame is twice what a DC sends in one: parts of files have 1 MiB at most.
	longestFrame = 2 << 20
	// holdTime bounds how long bytes wait for others of their frame: a round trip to a far DC, which lets its congestion
	// window come in one go, and less than the silence that begins a burst.
	holdTime = 200 * time.Millisecond
	// crumbHold bounds how long a message that is too little for a record of TLS waits for the next one. It is a quick ack,
	// mostly, which the answer to the same request follows.
	crumbHold = 50 * time.Millisecond
	// farFromEnd is so much that the next record does not depend on what follows: a record and a tail.
	farFromEnd = tlsfront.MaxRecord + 128
)

const (
	quickAck       = 1 << 31 // in the place of a length: the four bytes are all
	quickAckByte   = 0x80    // likewise, in the first byte
	longLengthByte = 0x7f    // of the abridged transport: three more bytes follow
)

// pass takes bytes as they go to the client; at is how many went before.
func (f *frames) pass(env *Env, keys clientKeys, p []byte, at uint64) {
	f.end -= min(f.end, uint32(len(p)))
	for len(p) > 0 && !f.lost {
		n := min(int(f.rest), len(p))
		f.rest -= uint32(n)
		p, at = p[n:], at+uint64(n)
		if len(p) > 0 {
			n = f.begin(env, keys, p, at)
			p, at = p[n:], at+uint64(n)
		}
	}
	if f.lost {
		*f = frames{lost: true, abridged: f.abridged}
		return
	}
	f.end = max(f.end, f.missing())
}

// begin takes bytes of a length and returns how many.
func (f *frames) begin(env *Env, keys clientKeys, p []byte, at uint64) int {
	n := min(f.lengthLen()-int(f.have), len(p))
	copy(f.head[f.have:], p[:n])
	env.decryptAt(keys, f.head[f.have:][:n], at)
	if f.have += uint8(n); int(f.have) == f.lengthLen() {
		f.rest, f.lost = f.length()
		f.have = 0
	}
	return n
}

// missing is how many bytes of the current frame, or of its length, are still to pass.
func (f *frames) missing() uint32 {
	if f.have > 0 {
		return uint32(f.lengthLen()) - uint32(f.have)
	}
	return f.rest
}

// lengthLen is how many bytes a length has, as far as is known.
func (f *frames) lengthLen() int {
	if f.abridged && (f.have == 0 || f.head[0] != longLengthByte && f.head[0] < quickAckByte) {
		return 1
	}
	return len(f.head)
}

// length reads a whole head: what follows it, or that it is none.
func (f *frames) length() (n uint32, lost bool) {
	word := binary.LittleEndian.Uint32(f.head[:])
	switch {
	case !f.abridged && word >= quickAck || f.abridged && f.head[0] >= quickAckByte:
		return 0, false
	case f.abridged && f.head[0] == longLengthByte:
		n = word >> 8 * 4
	case f.abridged:
		n = uint32(f.head[0]) * 4
	default:
		n = word
	}
	return n, n == 0 || n > longestFrame
}

// Peek returns how many of the avail bytes that wait at the upstream the session has to see, before UpstreamBuffers can
// tell whether they are all of a frame. Peeked gets them, and leaves them as they are.
func (s *Session) Peek(avail int) int {
	if !s.unseen(avail) || avail >= farFromEnd {
		return 0
	}
	return avail
}

// unseen reports whether the last of avail bytes could be looked at, and were not.
func (s *Session) unseen(avail int) bool {
	return s.followed() && s.down == nil && avail > int(s.frames.end)
}

// Peeked takes the next bytes of the upstream, which stay unread.
func (s *Session) Peeked(p []byte) {
	f := s.frames
	f.pass(s.env, s.clientKeys(), p, s.delivered)
	if !f.lost {
		s.frames.end = max(s.frames.end, uint32(len(p))+f.missing())
	}
}

// followed reports whether the frames of the downlink are known.
func (s *Session) followed() bool { return s.keyed && !s.frames.lost }

// announced returns how many bytes there are or will be for sure, if avail are there.
func (s *Session) announced(avail int) int {
	if !s.followed() {
		return avail
	}
	return max(avail, int(s.frames.end))
}

// holds reports whether what is too little for a record of that size, or for any, still waits for more.
func (s *Session) holds(now clock.Time, size int) bool {
	switch {
	case s.held == 0 && size < MinRecord:
		s.held, s.crumb = now.Add(crumbHold), true
	case s.held == 0 || s.crumb && size >= MinRecord: // what a crumb waited for has begun
		s.held, s.crumb = now.Add(holdTime), false
	}
	s.env.awaited = max(size, MinRecord)
	return now < s.held
}

// Awaited returns how many bytes have to wait at the upstream, or be all that fit there, before it is worth asking
// for UpstreamBuffers again that had no room; 0 when that does not depend on it.
func (s *Session) Awaited() int { return s.env.awaited }

// GiveUpHold lets what waits for more leave as it is.
func (s *Session) GiveUpHold() {
	if s.held > 0 {
		s.held, s.crumb = 1, false
	}
}

// Retry returns when to ask for UpstreamBuffers again that had no room, if nothing comes before.
func (s *Session) Retry(now clock.Time) clock.Time {
	if s.held > now {
		return s.held
	}
	return s.Due(now)
}

// decryptAt decrypts p, at most four bytes, which are at that place in the client's key stream.
func (e *Env) decryptAt(keys clientKeys, p []byte, at uint64) {
	c, stream := e.downCipher(keys), e.stream[:]
	skip := int(at % aes.BlockSize)
	c.down.counterAt(stream, at/aes.BlockSize)
	c.block.Encrypt(stream, stream[:aes.BlockSize])
	if skip+len(p) > aes.BlockSize {
		c.down.counterAt(stream[aes.BlockSize:], at/aes.BlockSize+1)
		c.block.Encrypt(stream[aes.BlockSize:], stream[aes.BlockSize:])
	}
	for i := range p {
		p[i] ^= stream[skip+i]
	}
}

// downCipher returns the cipher of a client's downlink. Making one takes a microsecond and garbage, so those of the
// sessions that are busy are kept, a few per loop.
func (e *Env) downCipher(keys clientKeys) *downCipher {
	c := &e.downCiphers[keys.sent.key[0]%uint8(len(e.downCiphers))]
	if c.block == nil || c.sent != *keys.sent {
		*c = downCipher{sent: *keys.sent, down: keys.down()}
		var err error
		if c.block, err = aes.NewCipher(c.down.key[:]); err != nil {
			panic("relay: internal error: " + err.Error())
		}
	}
	return c
}

// downCipher is a cipher, and the keys that it follows from.
type downCipher struct {
	sent, down keyIV
	block      cipher.Block
}
