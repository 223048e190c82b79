package relay

import (
	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// A client that has not shown a whole ClientHello for a while (Env.Early) gets its front connection opened
// before it is judged: so the front's own timers run nearly from the accept, and a silent probe ends when
// the site would end it. Nothing is written to the front before the verdict. Should the client be one of
// ours after all, the connection is dropped.

// early is how far that connection is.
type early uint8

const (
	earlyNone early = iota
	earlyDialing
	earlyReady
)

// handshakeDue is when a client must have sent its whole init, or a stranger its hello.
func (s *Session) handshakeDue() clock.Time { return s.active.Add(s.env.Handshake) }

// openEarly asks for the front of a client that is still to be judged.
func (s *Session) openEarly(out *Out) {
	s.deadline = s.handshakeDue()
	s.early, s.front = earlyDialing, s.frontIndex()
	out.Dial, out.Front = DialFront, int(s.front)
}

// dialedEarly notes whether there is one. If not, it is dialled again when the verdict asks for it.
func (s *Session) dialedEarly(ok bool) {
	s.early = earlyNone
	if ok {
		s.early = earlyReady
		s.sides[Upstream] = side{}
	}
}

// dropEarly gives up a connection or a dial that was for nothing.
func (s *Session) dropEarly(out *Out) {
	if s.early != earlyNone {
		s.early = earlyNone
		s.sides[Upstream] = side{ended: true, shut: true}
		out.DropUpstream = true
	}
}

// frontIndex returns the front that the client would be sent to, as far as its SNI is known.
func (s *Session) frontIndex() int16 {
	name := ""
	if s.opening != nil {
		name = s.opening.hello.ServerName()
	}
	return int16(s.env.Fronts.Index(name))
}

// frontFirst ends the wait for a hello because the front did something: a site that speaks or hangs up
// before its visitor has said all is to be seen doing so.
func (s *Session) frontFirst(now clock.Time, out *Out) {
	s.refuse(now, tlsfront.ReasonFront, out)
}
