package clock

import "math/bits"

// Numbers of our choosing.
const (
	tickBits = 16 // a tick is 2^16 ns (65.5 µs): finer than the pacing of records needs, coarse enough to coalesce
	slotBits = 6  // 64 slots a level, so that one word tells which are occupied
)

// Numbers that follow from them.
const (
	slots    = 1 << slotBits
	levels   = (63 - tickBits + slotBits - 1) / slotBits // enough for any Time
	lastTick = uint64(lastTime) >> tickBits
)

// A ring names the list that a timer is in.
type ring uint16

const (
	stopped   ring = iota // in none
	expired               // queued by Advance for Pop
	overdue               // set for an instant that had passed: expires at the next Advance
	firstSlot             // level 0, slot 0; the others follow, level by level
	rings     = firstSlot + levels*slots
)

// Timer is one deadline of its Owner. The wheel links timers through themselves, so setting one allocates
// nothing. The zero value is stopped and ready for use. A set timer must not be copied or moved.
type Timer[T any] struct {
	Owner T // whom it is for; the wheel does not look at it

	due        Time
	next, prev *Timer[T] // circular, so that a ring's head also leads to its tail
	ring       ring
}

// Due returns the instant that the timer was set for, or 0 when it is stopped.
func (t *Timer[T]) Due() Time { return t.due }

// Wheel is a hierarchical timer wheel: Set and Stop take constant time however many timers there are.
// A timer expires never early and at most one tick (65.5 µs) late. Not safe for concurrent use; owned by
// one loop.
//
// A timer sits on the level of the highest digit (base 64) in which its tick differs from the wheel's, in
// the slot of that digit. Hence everything on a level is due before anything on the level above, and the
// occupied slots of a level all lie ahead of the wheel's own digit, so that neither wraps around: the
// lowest bit of the lowest occupied level is what comes next.
type Wheel[T any] struct {
	now      Time             // of the last Advance
	tick     uint64           // now in whole ticks
	occupied [levels]uint64   // bit s of word l: slot s of level l holds a timer
	heads    [rings]*Timer[T] // first timer of each ring, nil when empty
}

// NewWheel returns an empty wheel that stands at now, which is not below 0.
func NewWheel[T any](now Time) *Wheel[T] {
	now = max(now, 0) // ticks have no sign
	return &Wheel[T]{now: now, tick: uint64(now) >> tickBits}
}

// Set makes t expire at due, whether it was stopped, set or queued for Pop before. An instant that has
// passed is allowed and expires at the next Advance. A due of 0, "no instant", stops t.
func (w *Wheel[T]) Set(t *Timer[T], due Time) {
	w.Stop(t)
	if due == 0 {
		return
	}
	t.due = due
	w.place(t)
}

// Stop makes t not expire; also when Advance has queued it but Pop has not returned it yet. Stopping a
// stopped timer does nothing.
func (w *Wheel[T]) Stop(t *Timer[T]) {
	if t.ring == stopped {
		return
	}
	w.unlink(t)
	t.due = 0
}

// Next returns the instant at which to call Advance next, or 0 when no timer is set. It is never later than
// the earliest due rounded up to a tick. It may be earlier, when a far timer has to step down a level: at
// most once per level in a timer's life. An instant in the past says that something waits already.
func (w *Wheel[T]) Next() Time {
	if w.heads[overdue] != nil || w.heads[expired] != nil {
		return 1 // the first instant there is
	}
	if _, start, ok := w.nearest(); ok {
		return Time(start << tickBits)
	}
	return 0
}

// Advance moves the wheel to now and queues for Pop what has become due, in the order of its ticks. A now
// before the previous one counts as that one.
func (w *Wheel[T]) Advance(now Time) {
	for t := w.heads[overdue]; t != nil; t = w.heads[overdue] {
		w.unlink(t)
		w.link(t, expired)
	}
	w.now = max(w.now, now)
	goal := uint64(w.now) >> tickBits
	for slot, start, ok := w.nearest(); ok && start <= goal; slot, start, ok = w.nearest() {
		w.tick = start
		w.empty(slot)
	}
	w.tick = goal
}

// Pop returns the next timer that Advance has queued, stopped, or nil when there is none. A timer that is
// set between two Pops is not returned before the next Advance, so a loop over Pop ends whatever its body sets.
func (w *Wheel[T]) Pop() *Timer[T] {
	t := w.heads[expired]
	if t != nil {
		w.Stop(t)
	}
	return t
}

// place links t, whose due is set, into the ring where it belongs.
func (w *Wheel[T]) place(t *Timer[T]) {
	if t.due <= w.now {
		w.link(t, overdue)
	} else if tick := dueTick(t.due); tick > w.tick {
		w.link(t, w.slotOf(tick))
	} else { // both are in the last tick of all
		w.link(t, overdue)
	}
}

// dueTick returns the first tick that is not before due, an instant above 0. The very last instants have no
// such tick in the range of Time and share its last one.
func dueTick(due Time) uint64 {
	return min(uint64(due-1)>>tickBits+1, lastTick)
}

// slotOf returns the ring for a tick ahead of the wheel's.
func (w *Wheel[T]) slotOf(tick uint64) ring {
	level := (bits.Len64(tick^w.tick) - 1) / slotBits
	digit := tick >> (level * slotBits) % slots
	return firstSlot + ring(level*slots) + ring(digit)
}

// nearest returns the occupied slot that comes first and the tick at which it begins.
func (w *Wheel[T]) nearest() (slot ring, start uint64, ok bool) {
	for level, word := range w.occupied {
		if word == 0 {
			continue
		}
		digit := bits.TrailingZeros64(word)
		shift := level * slotBits
		higher := w.tick >> (shift + slotBits) << (shift + slotBits)
		return firstSlot + ring(level*slots+digit), higher | uint64(digit)<<shift, true
	}
	return 0, 0, false
}

// empty takes every timer out of a slot whose beginning the wheel has just reached: those due now are
// queued for Pop, the others step down to a lower level.
func (w *Wheel[T]) empty(slot ring) {
	for t := w.heads[slot]; t != nil; t = w.heads[slot] {
		w.unlink(t)
		if tick := dueTick(t.due); tick > w.tick {
			w.link(t, w.slotOf(tick))
		} else {
			w.link(t, expired)
		}
	}
}

// link appends t to a ring.
func (w *Wheel[T]) link(t *Timer[T], r ring) {
	t.ring = r
	head := w.heads[r]
	if head != nil {
		t.next, t.prev = head, head.prev
		t.prev.next, head.prev = t, t
		return
	}
	t.next, t.prev = t, t
	w.heads[r] = t
	if r >= firstSlot {
		w.occupied[(r-firstSlot)/slots] |= 1 << ((r - firstSlot) % slots)
	}
}

// unlink takes t out of its ring and clears its links, so that a popped timer keeps no other session alive.
func (w *Wheel[T]) unlink(t *Timer[T]) {
	r := t.ring
	if t.next != t {
		t.prev.next, t.next.prev = t.next, t.prev
		if w.heads[r] == t {
			w.heads[r] = t.next
		}
	} else {
		w.heads[r] = nil
		if r >= firstSlot {
			w.occupied[(r-firstSlot)/slots] &^= 1 << ((r - firstSlot) % slots)
		}
	}
	t.next, t.prev, t.ring = nil, nil, stopped
}
