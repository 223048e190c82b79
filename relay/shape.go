package relay

import (
	"mtrelay/clock"
	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// Look is what a front looks like, as far as it is known. It is immutable.
type Look struct {
	TLS   *tlsfront.Profile // nil: nothing is known of its handshake yet
	Shape *doppel.Model     // nil: records are full and leave at once
}

var plainLook = &Look{}

// look returns what the session imitates: the front of the secret that its client holds.
func (s *Session) look() *Look {
	if s.env.Look == nil || s.secret < 0 {
		return plainLook
	}
	return s.env.Look(int(s.secret))
}

// MaxPlanned is how many records one read is cut into at most, and so how many buffers UpstreamBuffers appends.
const MaxPlanned = 32

// Shaped reports whether the downlink follows a front's sizes and gaps. The loop then asks Due before it
// reads, and tells UpstreamBuffers how many bytes there are.
func (s *Session) Shaped() bool {
	return s.delivering() && !s.fronted && s.look().Shape != nil
}

// Due returns the instant at which the next record of a shaped downlink may leave. It asks for nothing while
// there is nothing to send: so an idle session has no timer.
func (s *Session) Due(now clock.Time) clock.Time {
	_, due := s.pacer.Next(s.look().Shape, now, s.env.Random)
	return due
}

// plan decides how the avail bytes that wait at the upstream are cut, as far as they may leave now and fit into
// limit and scratch, and appends the records' payloads in scratch to dst, each behind room for its header.
// Since exactly these bytes will be read, the pacer can be told already. None are appended when what is there waits for
// the rest of a record; Retry says until when.
func (s *Session) plan(now clock.Time, scratch []byte, limit, avail int, dst [][]byte) [][]byte {
	env, look := s.env, s.look()
	at, planned := 0, 0
	env.awaited = 0
	for len(env.planned) < MaxPlanned && avail > 0 {
		if planned > 0 && avail < farFromEnd && s.unseen(planned+avail) {
			break // the next read decides, when it is known whether there is more to come
		}
		left := s.announced(planned+avail) - planned
		size, due := s.nextRecord(look, now, left)
		if size = min(size, left); due <= now && (size > avail || size < MinRecord) {
			if planned > 0 || s.holds(now, size) {
				break // the rest of it is on its way
			}
			size, due = s.nextRecord(look, now, avail)
			size = min(size, avail)
		}
		at += tlsfront.RecordHeaderLen
		if due > now || planned > 0 && planned+size > limit || at+size > len(scratch) {
			break
		}
		dst = append(dst, scratch[at:at+size:at+size])
		env.planned = append(env.planned, uint16(size))
		s.recordLeft(look, now, size)
		at, planned, avail = at+size, planned+size, avail-size
	}
	return dst
}

// nextRecord is the pacer's, but for the first ones of a connection: those are cut like the tickets that the
// front sends after a handshake, if there are bytes for them.
func (s *Session) nextRecord(look *Look, now clock.Time, avail int) (size int, due clock.Time) {
	if ticket := s.nextTicket(look); ticket > 0 && (avail == ticket || avail >= ticket+MinRecord) {
		return ticket, now
	}
	s.tickets = noTickets
	return s.pacer.NextOf(look.Shape, now, avail, s.env.Random)
}

// noTickets is a number of tickets sent that no front reaches: there are none to come.
const noTickets = 0xff

func (s *Session) nextTicket(look *Look) int {
	if look.TLS == nil || int(s.tickets) >= len(look.TLS.Tickets) {
		return 0
	}
	return look.TLS.Tickets[s.tickets]
}

func (s *Session) recordLeft(look *Look, now clock.Time, size int) {
	s.held = 0
	if s.tickets != noTickets {
		s.tickets++
		return
	}
	s.pacer.Sent(look.Shape, now, size, s.env.Random)
}

// spoke tells the pacer that the client did. What it says while a response goes on is no request for the next one.
func (s *Session) spoke(now clock.Time) {
	if s.frames.rest == 0 || s.frames.lost {
		s.pacer.Uplink(now)
	}
}

// framePlanned writes the headers of the planned records, which hold n bytes of payload in all, and returns them.
func (s *Session) framePlanned(scratch []byte, n int) []byte {
	at := 0
	for _, size := range s.env.planned {
		k := min(int(size), n)
		if k == 0 {
			break
		}
		if s.down != nil {
			s.down.recode(scratch[at+tlsfront.RecordHeaderLen:][:k])
		}
		s.frames.pass(s.env, s.clientKeys(), scratch[at+tlsfront.RecordHeaderLen:][:k], s.delivered)
		s.delivered += uint64(k)
		header(scratch[at:], k)
		at += tlsfront.RecordHeaderLen + k
		n -= k
	}
	return scratch[:at]
}
