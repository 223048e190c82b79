package relay

import (
	"time"

	"mtrelay/clock"
)

// A session that has been quiet for a while gives up its ciphers, which are most of what it keeps in memory, and
// makes them anew when the client speaks: two key expansions, two microseconds. What they follow from it has at
// hand: the init's keys, the secret, and how many bytes went up. Only a re-encrypted session does not doze, since the
// keys that it chose for the DC are known to its ciphers alone.
const (
	quiet = time.Minute
	// dozeTick is what instants to look are rounded up to, so that thousands of sessions that fell silent one
	// after the other share a wake-up.
	dozeTick = clock.Time(8 * time.Second)
)

// Dozing reports whether a relayed session has given up its ciphers.
func (s *Session) Dozing() bool { return s.state == StateRelay && s.asleep() }

func (s *Session) asleep() bool { return s.up.decrypt == nil }

// mayDoze reports whether the session is one that dozes when it is quiet, and does not yet.
func (s *Session) mayDoze() bool { return s.state == StateRelay && s.down == nil && !s.asleep() }

// dozeDue returns the instant to look whether the session is quiet.
func (s *Session) dozeDue() clock.Time {
	due := s.active.Add(quiet) + dozeTick - 1
	return due - due%dozeTick
}

// wake makes the ciphers of a session in pass-through as they were when it fell asleep.
func (s *Session) wake() {
	keys, used := s.clientKeys(), initLen+s.received
	s.up.decrypt = keys.up().streamAt(used)
	s.up.encrypt = keys.down().reversed().streamAt(used)
	s.deadline = s.nextLook()
}

// nextLook returns the instant at which an open session is to be looked at: has it been silent for too long, or
// so long that it may doze?
func (s *Session) nextLook() clock.Time {
	due := s.active.Add(s.patience())
	if s.mayDoze() {
		due = min(due, s.dozeDue())
	}
	return due
}
