package relay

import (
	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// maxHMACs bounds the secrets that are tried in one call: a proxy with a thousand secrets must not hold up
// the other sessions of its loop for each stranger.
const maxHMACs = 128

func (s *Session) wantHello() int {
	switch {
	case s.scanning:
		return 0
	case s.opening == nil:
		return tlsfront.MaxHello
	}
	return max(0, tlsfront.MaxHello-len(s.opening.held))
}

// feedHello gathers what may still become a ClientHello of ours.
func (s *Session) feedHello(now clock.Time, p []byte, out *Out) {
	o := s.hold(p)
	switch o.hello.Feed(o.held) {
	case tlsfront.Whole:
		s.judge(now, out)
	case tlsfront.Front:
		s.refuse(now, o.hello.Reason(), out)
	}
}

// judge looks for the secret that signed the ClientHello, a budget of secrets at a time.
func (s *Session) judge(now clock.Time, out *Out) {
	o := s.opening
	if !s.scanning {
		o.hello.TryFirst(int(s.likely))
	}
	v := s.env.Gate.Judge(&o.hello, o.held, s.env.Wall, maxHMACs)
	s.scanning = v == tlsfront.Scan
	s.secret = int32(o.hello.Secret())
	switch v {
	case tlsfront.Scan:
		out.Again = true
	case tlsfront.Accepted:
		if int(s.secret) >= len(s.env.Secrets)-s.env.Probes {
			s.recognise(out)
			return
		}
		s.accept(now, out)
	default:
		s.refuse(now, o.hello.Reason(), out)
	}
}

// recognise ends a session that the proxy has with itself. What follows must be quick: each visitor of such
// a front would open connection after connection.
func (s *Session) recognise(out *Out) {
	out.SelfProbe = s.opening.hello.SessionID(s.opening.held)
	s.secret = -1
	s.end(ReasonSelfProbe)
	s.state, s.deadline = StateClosed, 0
	out.Close = CloseNow
}

// accept answers the client, and goes on with what came glued to its hello.
func (s *Session) accept(now clock.Time, out *Out) {
	o, env := s.opening, s.env
	s.dropEarly(out)
	s.verdict = tlsfront.Accepted
	s.state = StateClientInit
	s.deadline = s.handshakeDue()
	out.Judged = true
	env.out = env.Gate.AppendReply(env.out[:0], &o.hello, o.held, int(s.mss), nil)
	out.Client = env.out
	glued := o.held[o.hello.Len():]
	o.held = o.held[:0]
	if len(glued) > 0 {
		s.feedInit(now, glued, out)
	}
}

// refuse sends the client to the front, whatever the reason by one and the same path, so that the time it
// takes tells nothing.
func (s *Session) refuse(now clock.Time, reason tlsfront.Reason, out *Out) {
	s.verdict, s.refusal = tlsfront.Front, reason
	s.fronted, s.scanning = true, false
	out.Judged = true
	front := s.frontIndex()
	if front != s.front {
		s.dropEarly(out)
	}
	if s.early == earlyReady {
		s.connected(now, out)
		return
	}
	s.state = StateDialFront
	s.deadline = 0
	if s.early == earlyNone {
		out.Dial, out.Front = DialFront, int(front)
	}
}
