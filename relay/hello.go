package relay

import (
	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// maxHashed bounds the bytes that are hashed in one call, one hello for each secret: a proxy with a thousand secrets
// must not hold up the other sessions of its loop for each stranger. It is enough for 128 secrets and a hello of
// the usual size.
const maxHashed = 128 * 2048

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
	v := s.env.Gate.Judge(&o.hello, o.held, s.env.Wall, max(1, maxHashed/len(o.held)))
	s.scanning = v == tlsfront.Scan
	s.secret = int32(o.hello.Secret())
	switch v {
	case tlsfront.Scan:
		out.Again = true
	case tlsfront.Accepted:
		if int(s.secret) == s.env.Probe {
			s.recognise(now, out)
			return
		}
		s.accept(now, out)
	default:
		s.refuse(now, o.hello.Reason(), out)
	}
}

// recognise tells the loop of a hello that the proxy itself has signed. It is treated as any stranger's: it may be
// a copy, sent by somebody who saw the proxy probe its front and waits for us to behave oddly.
func (s *Session) recognise(now clock.Time, out *Out) {
	o := s.opening
	s.env.probeID = [32]byte(o.hello.SessionID(o.held))
	out.SelfProbe = s.env.probeID[:]
	s.secret = -1
	s.refuse(now, tlsfront.ReasonDigest, out)
}

// accept answers the client, and goes on with what came glued to its hello.
func (s *Session) accept(now clock.Time, out *Out) {
	o, env := s.opening, s.env
	s.dropEarly(out)
	s.verdict = tlsfront.Accepted
	s.state = StateClientInit
	s.deadline = s.handshakeDue()
	out.Judged = true
	env.out = env.Gate.AppendReply(env.out[:0], &o.hello, o.held, int(s.mss), s.look().TLS)
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
