package clock

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const tick = Time(1) << tickBits

// roundUp returns the first whole tick not before due, or the last of all.
func roundUp(due Time) Time {
	if due > lastTime-tick {
		return lastTime / tick * tick
	}
	return (due + tick - 1) / tick * tick
}

// oracle is the wheel's slow and plainly right twin: a slice sorted by due.
type oracle struct {
	now  Time
	set  []entry
	sets int
}

type entry struct {
	id     int
	due    Time
	late   bool // due when it was set
	serial int  // tells a timer from the same one set anew for the same instant
}

func (o *oracle) stop(id int) {
	o.set = slices.DeleteFunc(o.set, func(e entry) bool { return e.id == id })
}

func (o *oracle) add(id int, due Time) {
	o.stop(id)
	if due == 0 {
		return
	}
	o.sets++
	o.set = append(o.set, entry{id, due, due <= o.now, o.sets})
	slices.SortStableFunc(o.set, func(a, b entry) int { return cmp.Compare(a.due, b.due) })
}

// expires reports whether e must come out of an Advance to the oracle's now.
func (o *oracle) expires(e entry) bool { return e.late || roundUp(e.due) <= o.now }

// pair drives a wheel and its oracle by the same calls and compares them.
type pair struct {
	t      testing.TB
	wheel  *Wheel[int]
	oracle oracle
	timers []Timer[int]
}

func newPair(t testing.TB, timers int, now Time) *pair {
	p := &pair{t: t, wheel: NewWheel[int](now), oracle: oracle{now: now}, timers: make([]Timer[int], timers)}
	for i := range p.timers {
		p.timers[i].Owner = i
	}
	return p
}

func (p *pair) set(id int, due Time) {
	p.t.Helper()
	p.wheel.Set(&p.timers[id], due)
	p.oracle.add(id, due)
	if got := p.timers[id].Due(); got != due {
		p.t.Fatalf("set for %d, but Due is %d", due, got)
	}
	p.checkNext()
}

func (p *pair) stop(id int) {
	p.t.Helper()
	p.wheel.Stop(&p.timers[id])
	p.oracle.stop(id)
	if got := p.timers[id].Due(); got != 0 {
		p.t.Fatalf("stopped, but Due is %d", got)
	}
	p.checkNext()
}

func (p *pair) checkNext() {
	p.t.Helper()
	next := p.wheel.Next()
	if len(p.oracle.set) == 0 {
		if next != 0 {
			p.t.Fatalf("no timer is set, but Next is %d", next)
		}
		return
	}
	if first := p.oracle.set[0]; next == 0 || next > max(roundUp(first.due), 1) {
		p.t.Fatalf("Next is %d, but a timer is due at %d", next, first.due)
	}
}

// advance moves both to now and compares what expires. during runs after each Pop and may set and stop timers.
func (p *pair) advance(now Time, during func()) {
	p.t.Helper()
	p.oracle.now = max(p.oracle.now, now)
	var want []entry
	for _, e := range p.oracle.set {
		if p.oracle.expires(e) {
			want = append(want, e)
		}
	}
	p.wheel.Advance(now)
	popped := Time(0)
	for timer := p.wheel.Pop(); timer != nil; timer = p.wheel.Pop() {
		i := slices.IndexFunc(want, func(e entry) bool { return e.id == timer.Owner })
		if i < 0 {
			p.t.Fatalf("timer %d came out at %d, unasked for", timer.Owner, now)
		}
		if timer.Due() != 0 {
			p.t.Fatalf("timer %d was popped, but is due at %d", timer.Owner, timer.Due())
		}
		if !want[i].late {
			if roundUp(want[i].due) < popped {
				p.t.Fatalf("timer %d of %d came after one of %d", timer.Owner, want[i].due, popped)
			}
			popped = roundUp(want[i].due)
		}
		p.oracle.stop(timer.Owner)
		want = slices.Delete(want, i, i+1)
		during()
		// What was stopped or set again meanwhile must not come out any more.
		want = slices.DeleteFunc(want, func(e entry) bool { return !slices.Contains(p.oracle.set, e) })
	}
	if len(want) > 0 {
		p.t.Fatalf("at %d the timer %d of %d did not come out", now, want[0].id, want[0].due)
	}
	p.checkIdle()
}

// checkIdle demands that a drained wheel asks to be woken later than now, or the loop would spin.
func (p *pair) checkIdle() {
	p.t.Helper()
	p.checkNext()
	if slices.ContainsFunc(p.oracle.set, func(e entry) bool { return p.oracle.expires(e) }) {
		return // set for the past during the Pops
	}
	if next := p.wheel.Next(); next != 0 && next <= p.oracle.now {
		p.t.Fatalf("nothing is due at %d, but Next is %d", p.oracle.now, next)
	}
}

// span returns a random length of time: any magnitude from a nanosecond to years is equally likely.
func span(rnd *rand.Rand) Time { return Time(rnd.Uint64() >> (8 + rnd.UintN(56))) }

func TestWheelAgainstOracle(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		now := 1 + span(rnd)
		p := newPair(t, 1+rnd.IntN(60), now)
		touch := func() {
			id := rnd.IntN(len(p.timers))
			switch rnd.IntN(8) {
			case 0, 1:
				p.stop(id)
			case 2:
				p.set(id, max(1, now-span(rnd)))
			case 3:
				p.set(id, (now+span(rnd))/tick*tick)
			default:
				p.set(id, now+span(rnd))
			}
		}
		for range 3000 {
			switch rnd.IntN(6) {
			case 0:
				now += span(rnd) / 8
			case 1:
				now = max(now, p.wheel.Next()) // as the loop does
			default:
				touch()
				continue
			}
			p.advance(now, func() {
				if rnd.IntN(3) == 0 {
					touch()
				}
			})
			if now > lastTime/4*3 {
				break
			}
		}
	}
}

// FuzzWheel reads a program of sets, stops and advances; a length of time is a mantissa and an exponent.
func FuzzWheel(f *testing.F) {
	f.Add([]byte{0, 1, 16, 0, 2, 30, 3, 1, 16, 3, 1, 31})
	f.Add([]byte{0, 9, 62, 1, 9, 5, 4, 0, 0, 3, 255, 62, 2, 0, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		p := newPair(t, 8, 1)
		now := Time(1)
		step := func() bool {
			if len(program) < 3 {
				return false
			}
			op, mantissa, shift := program[0], Time(program[1]), program[2]%56
			program = program[3:]
			id := int(op>>4) % len(p.timers)
			switch op % 5 {
			case 0:
				p.set(id, now.Add(time.Duration(mantissa<<shift)))
			case 1:
				p.set(id, max(1, now-mantissa<<shift))
			case 2:
				p.stop(id)
			case 3:
				now = now.Add(time.Duration(mantissa << shift))
			case 4:
				now = max(now, p.wheel.Next())
			}
			return true
		}
		for step() {
			p.advance(now, func() {
				if len(program) > 0 && program[0]&8 != 0 {
					step()
				}
			})
		}
	})
}

func TestSetForThePast(t *testing.T) {
	p := newPair(t, 3, 10*tick+5)
	p.set(0, 10*tick+5)
	p.set(1, 1)
	if next := p.wheel.Next(); next > 10*tick {
		t.Errorf("Next is %d although two are due", next)
	}
	rounds := 0
	p.advance(10*tick+5, func() {
		rounds++
		p.set(2, 3) // would keep this loop going for ever, were it popped in it
	})
	if rounds != 2 {
		t.Errorf("%d timers came out, want 2", rounds)
	}
	p.advance(10*tick+5, func() { rounds++ })
	if rounds != 3 {
		t.Errorf("%d timers came out in all, want 3", rounds)
	}
}

func TestSetNoInstant(t *testing.T) {
	p := newPair(t, 1, 1)
	p.set(0, tick)
	p.set(0, 0)
	p.advance(lastTime, func() { t.Error("came out although it was set for no instant") })
}

func TestEndOfTime(t *testing.T) {
	p := newPair(t, 3, 1)
	fired := 0
	count := func() { fired++ }
	p.set(0, lastTime)
	p.set(1, lastTime-tick)
	p.advance(lastTime, count)
	p.set(2, lastTime)
	p.advance(lastTime, count)
	p.set(2, lastTime-3)
	p.advance(lastTime, count)
	if fired != 4 {
		t.Errorf("%d timers came out, want 4", fired)
	}
}

func TestTimeGoesBack(t *testing.T) {
	p := newPair(t, 2, 1000*tick)
	p.set(0, 1001*tick)
	p.advance(5, func() { t.Error("came out early") })
	p.set(1, 1002*tick)
	p.advance(1001*tick, func() {})
	p.advance(1002*tick, func() {})
	if len(p.oracle.set) != 0 {
		t.Errorf("left: %v", p.oracle.set)
	}
}

// TestWakeUps bounds what one idle connection costs: a step per level on the way down and nothing else.
func TestWakeUps(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want int
	}{
		{time.Microsecond, 1},
		{time.Millisecond, 1},
		{10 * time.Second, 3},
		{5 * time.Minute, 4},
		{400 * 24 * time.Hour, 7},
	} {
		for _, start := range []Time{1, 12345678901, 1 << 50} {
			w, timer := NewWheel[int](start), new(Timer[int])
			due := start.Add(c.d)
			w.Set(timer, due)
			wakes, now := 0, start
			for timer.Due() != 0 {
				now = w.Next()
				w.Advance(now)
				w.Pop()
				wakes++
			}
			// A carry into a higher digit (12 s before a minute that is a multiple of 64²) costs one level more.
			if wakes > c.want+1 || wakes > levels {
				t.Errorf("%v after %d: %d wake-ups, want about %d", c.d, start, wakes, c.want)
			}
			if late := now - due; late < 0 || late >= tick {
				t.Errorf("%v after %d: fired %v late", c.d, start, time.Duration(late))
			}
		}
	}
}

func TestPoppedTimerHoldsNothing(t *testing.T) {
	w := NewWheel[int](1)
	var a, b Timer[int]
	w.Set(&a, 2)
	w.Set(&b, 2)
	w.Advance(tick)
	for timer := w.Pop(); timer != nil; timer = w.Pop() {
		if timer.next != nil || timer.prev != nil {
			t.Error("a popped timer still points to another")
		}
	}
}

func TestWheelAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w := NewWheel[int](1)
	timers := make([]Timer[int], 1000)
	now := Time(1)
	allocs := testing.AllocsPerRun(100, func() {
		for i := range timers {
			w.Set(&timers[i], now.Add(time.Duration(i)*time.Millisecond))
		}
		for i := 0; i < len(timers); i += 3 {
			w.Stop(&timers[i])
		}
		now = now.Add(time.Second / 2)
		w.Advance(now)
		for w.Pop() != nil {
		}
		w.Next()
	})
	if allocs != 0 {
		t.Errorf("%v allocations a round, want 0", allocs)
	}
}
