package relay

import (
	"crypto/aes"
	"io"
	"math/rand/v2"
	"time"

	"mtrelay/clock"
	"mtrelay/relay/chunk"
	"mtrelay/tlsfront"
)

// Env is what all sessions of one loop share. It is owned by that loop: nothing in it is locked.
type Env struct {
	Gate    *tlsfront.Gate
	Secrets []tlsfront.Secret // the very secrets, in the same order, that Gate was made from
	Probe   int               // index of the one that signs no client's hello but the proxy's own, see Out.SelfProbe; -1: none
	Chunks  *chunk.Pool
	DCs     *DCTable
	Fronts  *Fronts
	Rand    io.Reader  // must not fail; crypto/rand in service
	Random  *rand.Rand // for shapes, where nothing depends on its being unpredictable
	// Look returns what the holders of a secret are shown, by the index of the secret: what is known of its front by
	// now. nil: nothing is known of any.
	Look func(secret int) *Look
	Wall clock.Unix // wall time, set by the loop once per wake-up
	// Reencrypt gives the DC keys of our own, so that the two legs of the downlink carry different
	// ciphertext, for two AES passes per byte and 1 KiB more per session.
	Reencrypt bool
	Early     time.Duration // from accept to the front's connection for a client without a whole hello
	Handshake time.Duration // from accept to the client's whole init
	Idle      time.Duration // a relayed or fronted session without a byte in either direction
	Linger    time.Duration // a half-closed session without a byte; and how long bytes are discarded

	downCiphers  [64]downCipher
	stream       [2 * aes.BlockSize]byte // scratch
	probeID      [32]byte                // backs Out.SelfProbe
	planned      []uint16                // payloads of the records that UpstreamBuffers made room for, if they are planned
	awaited      int                     // see Session.Awaited
	out          []byte                  // backs Out.Client and Out.Upstream where they are not the input itself
	openings     *opening                // free list
	freeOpenings int
}

// maxFreeOpenings bounds the free list: after a burst of handshakes the rest is left to the collector.
const maxFreeOpenings = 256

// opening is what a session needs only until its upstream is connected. It lives apart from Session, so
// that the thousands that are relayed do not carry it, and is taken at the first byte, so that a silent
// connection does not either.
type opening struct {
	hello tlsfront.Hello
	// held is, in this order of a session's life: every byte received (hello); the payload of the
	// client's init (clientInit); the bytes that the upstream gets first (dialDC, dialFront).
	held  []byte
	chunk *chunk.Chunk // where held lives until it outgrows it; then nil
	next  *opening
}

// open returns the session's opening, which it takes from the free list if need be.
func (s *Session) open() *opening {
	if s.opening != nil {
		return s.opening
	}
	env := s.env
	o := env.openings
	if o == nil {
		o = new(opening)
	} else {
		env.openings, o.next = o.next, nil
		env.freeOpenings--
	}
	o.chunk = env.Chunks.Get()
	room := o.chunk.Room()
	o.held = room[:0:len(room)]
	s.opening = o
	return o
}

// hold appends a copy of p. A ClientHello that outgrows the chunk moves to a slice of its own, at most
// tlsfront.MaxHello long, because no more than that is ever wanted before the secret is proven.
func (s *Session) hold(p []byte) *opening {
	o := s.open()
	o.held = append(o.held, p...)
	if o.chunk != nil && cap(o.held) > chunk.Cap {
		s.env.Chunks.Put(o.chunk)
		o.chunk = nil
	}
	return o
}

// dropOpening gives the opening and its chunk back. Nothing may point into held any more: the loop may get
// that very chunk next, to queue bytes in it.
func (s *Session) dropOpening() {
	o, env := s.opening, s.env
	if o == nil {
		return
	}
	s.opening = nil
	if o.chunk != nil {
		env.Chunks.Put(o.chunk)
	}
	*o = opening{}
	if env.freeOpenings < maxFreeOpenings {
		o.next, env.openings = env.openings, o
		env.freeOpenings++
	}
}

// takeHeld moves the held bytes to the loop's output buffer and drops the opening.
func (s *Session) takeHeld() []byte {
	if s.opening == nil {
		return nil
	}
	s.env.out = append(s.env.out[:0], s.opening.held...)
	s.dropOpening()
	return s.env.out
}
