// Package clock holds the two kinds of time that sessions know and the wheel that keeps their timers.
//
// Nothing here reads a clock: the loop reads it once per wake-up and passes the instant down, so a test can
// play a year in a microsecond and the same calls always give the same result.
package clock

import (
	"math"
	"time"
)

// Time is a monotonic instant in nanoseconds since an origin that the loop chooses, early enough for every
// real instant to be above 0. 0 is "no instant": a stopped timer, no deadline.
type Time int64

// lastTime is about 292 years after the origin.
const lastTime Time = math.MaxInt64

// Add returns the instant d after t. It stops at the last instant rather than wrap around: a deadline far
// in the future (a limit configured as "practically never") must not become one in the past.
func (t Time) Add(d time.Duration) Time {
	if d > 0 && t > lastTime-Time(d) {
		return lastTime
	}
	return t + Time(d)
}

// Sub returns how long after u the instant t is; negative when it is before.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Earliest returns the earlier of two deadlines, of which either may be 0 for "none".
func Earliest(a, b Time) Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Unix is wall time in whole seconds since 1970, as ClientHellos carry it. It is a type of its own because
// it jumps when an administrator or NTP says so: it can date things, never time them.
type Unix int64
