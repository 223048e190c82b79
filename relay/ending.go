package relay

import (
	"time"

	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// alert says whether the client gets something like an encrypted alert before our FIN.
type alert uint8

const (
	withoutAlert alert = iota
	closeNotify        // when the front would send one
	fatalAlert         // every TLS stack sends one to what it cannot decrypt
)

// Ended tells that one direction of a socket is over.
func (s *Session) Ended(now clock.Time, at Side, end End, out *Out) {
	switch s.state {
	case StateHello, StateDialFront:
		s.endedEarly(now, at, end, out)
	case StateClientInit:
		s.endedInInit(now, at, end, out)
	case StateDialDC:
		if at == Client {
			s.Hangup(now, out)
		}
	case StateRelay, StateFront, StateDrain, StateLinger:
		s.endedStreaming(now, at, end, out)
	case StateClosed:
		s.sides[at].ended = true
	}
}

// Hangup tells that the client left, as far as the kernel knows, while it was not being read. Dialling a DC
// for it is pointless. Dialling the front goes on: what the client sent before is still unread, and the
// front is to see all of it, then the end.
func (s *Session) Hangup(_ clock.Time, out *Out) {
	if s.state == StateDialDC {
		s.end(ReasonClientGone)
		s.close(CloseNow, 0, out)
	}
}

// endedEarly sends a client to the front that ends its direction before it was judged: what a site
// answers to half a hello and a FIN, or to a FIN alone, only the site knows. An RST leaves nobody to
// show an answer to.
func (s *Session) endedEarly(now clock.Time, at Side, end End, out *Out) {
	c := &s.sides[Client]
	switch {
	case at == Upstream && s.early == earlyReady:
		if s.frontFirst(now, out); s.state == StateFront { // else it was another site's front, and is dropped
			s.endedStreaming(now, Upstream, end, out)
		}
	case at == Upstream:
	case s.state == StateHello && end != EndFIN:
		s.end(ReasonClientGone)
		s.close(CloseNow, 0, out)
	case s.state == StateHello:
		c.ended = true
		s.refuse(now, tlsfront.ReasonFIN, out)
	default: // the front is being dialled and must see it, after the bytes
		c.ended = true
		c.broken = c.broken || end != EndFIN
	}
}

// passOnEarlyEnd gives the front, just connected, the end of a client that ended before.
func (s *Session) passOnEarlyEnd(now clock.Time, out *Out) {
	switch c := s.sides[Client]; {
	case c.broken:
		s.endedStreaming(now, Client, EndReset, out)
	case c.ended:
		s.endedStreaming(now, Client, EndFIN, out)
	}
}

// endedInInit ends a session whose client leaves between our reply and its init. For a site the handshake
// would not be complete then, and neither nginx nor Go sends an alert in that case.
func (s *Session) endedInInit(now clock.Time, at Side, end End, out *Out) {
	switch {
	case at != Client:
	case end == EndFIN:
		s.sides[Client].ended = true
		s.finish(now, ReasonClientGone, withoutAlert, out)
	default:
		s.end(ReasonClientGone)
		s.close(CloseNow, 0, out)
	}
}

// endedStreaming passes the end of one direction on, and leaves the other its time.
func (s *Session) endedStreaming(now clock.Time, at Side, end End, out *Out) {
	d := &s.sides[at]
	if end == EndWrite {
		d.broken, d.shut = true, true
	} else {
		d.ended = true
	}
	if at == Client && now.Sub(s.active) >= answerTime {
		s.asked = false
	}
	reset := end == EndReset || d.broken && d.ended
	if d.ended {
		s.end(endReason(at, reset))
	}
	switch {
	case reset && (s.fronted || at == Client):
		s.resetOther(now, at, out)
		return
	case reset:
		d.shut = true
	}
	if d.ended {
		s.shut(1-at, closeNotify, out)
	}
	s.settle(now, out)
}

// answerTime is how long a DC may take to answer; a client that then hears nothing has said nothing that needs an answer.
const answerTime = time.Second

// OwesNothing reports whether a client that has ended its direction need not be kept until the DC ends: it was answered, and
// no message goes on. Whether every request was answered is not known. Only shaped sessions are followed so far.
func (s *Session) OwesNothing() bool {
	return s.state == StateDrain && s.Shaped() && s.sides[Client].ended && s.followed() && s.frames.missing() == 0 && !s.asked
}

// Leave gives a client that is owed nothing the end, as a site's visitor gets it: waiting for the DC's own would show its
// distance. Every byte of the upstream so far was delivered.
func (s *Session) Leave(now clock.Time, out *Out) {
	s.shut(Client, closeNotify, out)
	s.settle(now, out)
}

func endReason(at Side, reset bool) Reason {
	switch {
	case at == Client && reset:
		return ReasonClientReset
	case at == Client:
		return ReasonClientClosed
	case reset:
		return ReasonUpstreamReset
	}
	return ReasonUpstreamClosed
}

// resetOther passes an RST on. It ends both directions at once, as it does between a client and the site
// itself. A DC gets one when the client is gone, rather than go on sending into nowhere; our bytes for it are
// acknowledged before. (A client gets none of a DC's: to it, we are a site that closes.)
func (s *Session) resetOther(now clock.Time, at Side, out *Out) {
	over := side{ended: true, shut: true}
	if other := s.sides[1-at]; !other.ended || !other.shut {
		out.ResetClient, out.ResetUpstream = at == Upstream, at == Client
	}
	s.sides = [2]side{over, over}
	s.close(CloseDrained, now.Add(s.env.Idle), out)
}

// shut ends the direction toward at, if it is still open. A relayed client gets what a site that closes
// would send first.
func (s *Session) shut(at Side, say alert, out *Out) {
	if s.sides[at].shut {
		return
	}
	s.sides[at].shut = true
	if at == Upstream {
		out.ShutUpstream = true
		return
	}
	out.ShutClient = true
	if s.says(say) {
		s.appendAlert(out)
	}
}

// says reports whether the client is to get that record. What the front does depends on who ends a connection.
func (s *Session) says(what alert) bool {
	switch {
	case s.fronted || what == withoutAlert:
		return false
	case what == fatalAlert:
		return true
	}
	return s.look().TLS.SaysFarewell(s.sides[Client].ended)
}

// settle enters the state that follows from what is over.
func (s *Session) settle(now clock.Time, out *Out) {
	c, u := s.sides[Client], s.sides[Upstream]
	switch {
	case c.ended && u.ended:
		s.close(CloseDrained, now.Add(s.env.Idle), out)
	case (c.ended || u.shut) && (u.ended || c.shut):
		s.linger(now)
	case s.state != StateDrain && (c.ended || u.ended || c.shut || u.shut):
		s.state = StateDrain
		s.active = now
		s.deadline = now.Add(s.patience())
	}
}

// linger discards what still comes. Closing at once, with bytes unread, would make the kernel send RST and
// destroy what the client has not received yet. The time is absolute: nothing that is discarded is worth
// waiting for longer.
func (s *Session) linger(now clock.Time) {
	if s.state == StateLinger {
		return
	}
	s.state = StateLinger
	s.deadline = now.Add(s.env.Linger)
	s.dropOpening()
	s.up, s.down = recoder{}, nil
}

// patience is how long the session may be silent in its present state.
func (s *Session) patience() time.Duration {
	if s.state == StateDrain && !s.fronted {
		return s.env.Linger
	}
	return s.env.Idle
}

// finish ends the session from our side, as a site would: FIN to both, then linger.
func (s *Session) finish(now clock.Time, why Reason, say alert, out *Out) {
	s.end(why)
	s.shut(Client, say, out)
	s.shut(Upstream, say, out)
	s.dropOpening()
	s.settle(now, out)
}

// Expire is called at or after Deadline.
func (s *Session) Expire(now clock.Time, out *Out) {
	if s.deadline == 0 || now < s.deadline {
		return
	}
	switch s.state {
	case StateHello:
		s.expireHello(now, out)
	case StateClientInit:
		s.finish(now, ReasonHandshakeTimeout, withoutAlert, out)
	case StateRelay, StateFront, StateDrain:
		s.expireStreaming(now, out)
	case StateLinger:
		// Bytes that are still queued for the client may take longer than this.
		s.close(CloseDrained, now.Add(s.env.Idle), out)
	case StateClosed:
		s.close(CloseNow, 0, out)
	}
}

// expireHello opens the front of a client that takes its time, and in the end sends it there.
func (s *Session) expireHello(now clock.Time, out *Out) {
	if now < s.handshakeDue() {
		s.openEarly(out)
	} else {
		s.refuse(now, tlsfront.ReasonTimer, out)
	}
}

// expireStreaming ends a session that was silent for too long, and lets one doze that is quiet. Activity only
// stores its instant, so what comes here is mostly a session that is alive: then the deadline moves.
func (s *Session) expireStreaming(now clock.Time, out *Out) {
	if s.mayDoze() && s.active.Add(quiet) <= now {
		s.up = recoder{}
	}
	if due := s.nextLook(); due > now {
		s.deadline = due
		return
	}
	if s.state != StateDrain {
		s.finish(now, ReasonIdle, closeNotify, out)
		return
	}
	s.reason = ReasonLingerTimeout
	s.shut(Client, closeNotify, out)
	s.shut(Upstream, closeNotify, out)
	s.close(CloseDrained, now.Add(s.env.Idle), out)
}

// end notes why the session ends; the first cause counts.
func (s *Session) end(why Reason) {
	if s.reason == ReasonNotEnded {
		s.reason = why
	}
}

// close asks the loop to close. until bounds CloseDrained: a peer that has not taken its last bytes by
// then is not going to.
func (s *Session) close(when Close, until clock.Time, out *Out) {
	s.state, s.deadline = StateClosed, until
	out.Close = when
	s.dropOpening()
	s.up, s.down = recoder{}, nil
}
