// Package relay is the session of one proxied connection: a state machine that is fed bytes, events and
// instants and says what to write, to dial, to shut and to close. It opens no socket and reads no clock.
//
//	accepted ─► hello ─► client-init ─► dial-dc ─► relay ─► drain ─► linger ─► closed
//	              └────► dial-front ─► front ───────┘
//
// Whoever does not prove to hold a secret is spliced to a front with every byte it sent (hello.go, front.go).
// Whoever does is answered, names a DC in its init (init.go, obfuscated2.go), and is relayed to it:
// uplink.go strips TLS records and re-encrypts, downlink.go wraps what the DC sends into records, shape.go cuts these as
// the front would, for which frames.go knows where the DC's messages end. doze.go lets a quiet session give up its ciphers.
// ending.go decides all that follows from a FIN, an RST, a failed write or a timer.
//
// Start with [Session]. Nothing here is safe for concurrent use: a session and its [Env] belong to one loop.
package relay

import (
	"time"

	"mtrelay/clock"
	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// streaming is what Want gives for a side that is to be read as fast as the other side takes it.
const streaming = 1 << 20

// Session is one proxied connection. It is meant to lie by value inside the loop's own struct: thousands
// of idle ones are what the proxy's memory consists of, so it is small, and whatever is needed for a moment
// only hangs on a pointer. It must not be copied after Start.
//
// The loop reads a side only while Want asks for it, calls the method that fits what happened, carries out
// Out, and calls Expire when Deadline has come.
type Session struct {
	env       *Env
	opening   *opening // until the upstream is connected
	deadline  clock.Time
	active    clock.Time // when a byte was last delivered; looked at when the deadline comes
	up        recoder    // empty while the session dozes
	down      *recoder   // nil in pass-through
	sent      keyIV      // of the client's init: in pass-through all ciphers follow from it
	received  uint64     // bytes that went up behind the init
	delivered uint64     // bytes that came down, and so are used up of the client's key stream
	deframer  tlsfront.Deframer
	frames    frames
	held      clock.Time // until when what is too little for a record may wait for more; 0: nothing does
	pacer     doppel.Pacer
	sides     [2]side
	dc        int16
	mss       uint16
	front     int16 // index of the front that early is about
	secret    int32 // -1 until a digest matched
	likely    int32 // tried first
	state     State
	verdict   tlsfront.Verdict
	refusal   tlsfront.Reason
	reason    Reason
	fronted   bool
	early     early
	tickets   uint8 // records so far that were cut like tickets
	scanning  bool  // the ClientHello is whole, not all secrets are tried
	keyed     bool  // there was an init: sent is known
	asked     bool  // the client spoke last
	crumb     bool  // what is held is less than any record
}

// side is what is over on one socket.
type side struct {
	ended  bool // nothing more comes from it, or there is no such socket yet
	shut   bool // nothing more goes to it: it got our FIN, or it does not take bytes any more
	broken bool // a write to it failed: its FIN, when read, stands for an RST
}

// Peer is what the loop knows about a client that it has just accepted.
type Peer struct {
	MSS    int // TCP_MAXSEG of its socket, 0 if unknown
	Secret int // index of the secret that was last used from its address, 0 if none: tried first
}

// Start begins the session of a client that was accepted just now. env must outlive the session.
func (s *Session) Start(env *Env, now clock.Time, peer Peer) {
	*s = Session{
		env:      env,
		deadline: now.Add(min(env.Early, env.Handshake)),
		active:   now,
		mss:      uint16(max(0, min(peer.MSS, 1<<16-1))),
		likely:   int32(peer.Secret),
		secret:   -1,
	}
	s.sides[Upstream] = side{ended: true, shut: true}
}

// Want returns how many bytes the session would take from each side now. 0 pauses that side.
func (s *Session) Want() (client, upstream int) {
	switch s.state {
	case StateHello:
		return s.wantHello(), s.sides[Upstream].want()
	case StateClientInit:
		return s.wantInit(), 0
	case StateDialDC, StateDialFront:
		return 0, 0
	}
	return s.sides[Client].want(), s.sides[Upstream].want()
}

func (d *side) want() int {
	if d.ended {
		return 0
	}
	return streaming
}

// Client takes p, bytes read from the client, at most what Want asked for. p is borrowed for the call and
// changed in place; Out.Upstream may point into it.
func (s *Session) Client(now clock.Time, p []byte, out *Out) {
	switch s.state {
	case StateHello:
		s.feedHello(now, p, out)
	case StateClientInit:
		s.feedInit(now, p, out)
	case StateRelay, StateFront, StateDrain:
		if s.sides[Upstream].shut {
			return // discarded
		}
		s.active = now
		if s.fronted {
			out.Upstream = p
		} else {
			s.spoke(now)
			s.uplink(now, p, out)
		}
	}
}

// UpstreamBuffers appends to dst the parts of scratch that the upstream's next bytes are to be read into,
// in this order, at most limit bytes in total. For a relayed session they are the payloads of full TLS
// records with room for a header before each, so that the bytes need not be moved; a limit that is a multiple
// of tlsfront.FullRecord is best, as a smaller one makes a smaller record. A shaped session needs to know how many
// bytes wait at the upstream, avail, and wants exactly those that it has made room for to be read.
func (s *Session) UpstreamBuffers(now clock.Time, scratch []byte, limit, avail int, dst [][]byte) [][]byte {
	s.env.planned = s.env.planned[:0]
	switch {
	case s.fronted || !s.delivering():
		return append(dst, scratch[:min(limit, len(scratch))])
	case avail > 0 && s.look().Shape != nil:
		return s.plan(now, scratch, limit, avail, dst)
	}
	return recordBuffers(scratch, limit, dst)
}

// Upstream takes n bytes that were read from the upstream into what UpstreamBuffers returned for the
// same scratch. Out.Client points into scratch.
func (s *Session) Upstream(now clock.Time, scratch []byte, n int, out *Out) {
	if s.state == StateHello {
		s.frontFirst(now, out)
	}
	if n == 0 || !s.delivering() {
		return
	}
	s.active = now
	s.asked = s.asked && n < MinRecord // a quick ack is no answer
	switch {
	case s.fronted:
		out.Client = scratch[:n]
		return
	case len(s.env.planned) > 0:
		out.Client = s.framePlanned(scratch, n)
		return
	default:
		s.tickets = noTickets // they come first, or not at all
		s.frames.lost = true
		out.Client = s.downlink(scratch, n)
	}
	s.delivered += uint64(n)
}

// Progress tells that bytes which were queued for one side went out. A peer that reads slowly is not idle.
func (s *Session) Progress(now clock.Time) {
	switch s.state {
	case StateRelay, StateFront, StateDrain:
		s.active = now
	}
}

// delivering reports whether the upstream's bytes go to the client rather than nowhere.
func (s *Session) delivering() bool {
	switch s.state {
	case StateRelay, StateFront, StateDrain:
		return !s.sides[Client].shut
	}
	return false
}

// Dialed tells how the dial that Out.Dial asked for went.
func (s *Session) Dialed(now clock.Time, ok bool, out *Out) {
	switch {
	case s.state == StateHello:
		s.dialedEarly(ok)
	case s.state != StateDialDC && s.state != StateDialFront:
	case ok:
		s.connected(now, out)
	case s.fronted:
		// What a balancer does whose site is down: the client was accepted, so it is too late to refuse it as a
		// host without a site would, and closing at once would send FIN or RST depending on whether
		// unread bytes are left. Hence FIN without a byte, and the linger that keeps RST away.
		s.finish(now, ReasonFrontUnreachable, withoutAlert, out)
	default:
		s.finish(now, ReasonDCUnreachable, closeNotify, out)
	}
}

// connected sends the upstream what was held for it: our init, or all that a stranger has said.
func (s *Session) connected(now clock.Time, out *Out) {
	s.sides[Upstream] = side{}
	s.active = now
	out.Upstream = s.takeHeld()
	s.state = StateRelay
	if s.fronted {
		s.state = StateFront
	}
	s.deadline = s.nextLook()
	if s.fronted {
		s.passOnEarlyEnd(now, out)
	}
}

// Continue goes on with what Out.Again announced.
func (s *Session) Continue(now clock.Time, out *Out) {
	if s.state == StateHello && s.scanning {
		s.judge(now, out)
	}
}

// Deadline returns the instant at which Expire is due, 0 when none. While dialling there is none: the loop
// bounds its attempts itself. Activity does not move it.
func (s *Session) Deadline() clock.Time { return s.deadline }

// Release gives back what the session holds; the loop has closed it.
func (s *Session) Release() {
	s.dropOpening()
	s.up, s.down = recoder{}, nil
	s.state, s.deadline = StateClosed, 0
}

// State returns where the session stands.
func (s *Session) State() State { return s.state }

// Verdict returns what the ClientHello was found to be, once Out.Judged was set; tlsfront.More before.
func (s *Session) Verdict() tlsfront.Verdict { return s.verdict }

// FrontReason returns why the client was sent to the front.
func (s *Session) FrontReason() tlsfront.Reason { return s.refusal }

// secretKey returns the key of the secret that the client holds.
func (s *Session) secretKey() *[keySecretLen]byte { return &s.env.Secrets[s.secret].Key }

func (s *Session) clientKeys() clientKeys { return clientKeys{&s.sent, s.secretKey()} }

// Secret returns the index of the secret whose digest the ClientHello carried, even if it was refused
// for another reason; -1 if none.
func (s *Session) Secret() int { return int(s.secret) }

// Skew returns the client's clock minus ours if Secret is one; only in the call that set Out.Judged and
// before the dial that it asked for is over.
func (s *Session) Skew() time.Duration {
	if s.opening == nil {
		return 0
	}
	return s.opening.hello.Skew()
}

// DC returns the id that the client named, 0 before it did.
func (s *Session) DC() int { return int(s.dc) }

// EndReason returns why the session ended.
func (s *Session) EndReason() Reason { return s.reason }
