package doppel

import (
	"testing"
	"time"

	"mtrelay/clock"
)

func TestFirstOfBurstIsDue(t *testing.T) {
	m := taught(goServer{chunked: true})
	for _, c := range []struct {
		name string
		next func(p *Pacer, now clock.Time) clock.Time // what happens behind a response that ended at now; when the next one begins
		want bool                                      // it leaves at once, every time
	}{
		{"asked", func(p *Pacer, now clock.Time) clock.Time {
			p.Uplink(now.Add(ms / 10))
			return now.Add(ms / 5)
		}, true},
		{"asked, looked at before", func(p *Pacer, now clock.Time) clock.Time {
			p.Next(m, now, newRand(2))
			p.Uplink(now.Add(ms / 10))
			return now.Add(ms / 5)
		}, true},
		{"silence", func(p *Pacer, now clock.Time) clock.Time { return now.Add(MaxGap + 1) }, true},
		{"goes on", func(p *Pacer, now clock.Time) clock.Time { return now.Add(ms / 5) }, false},
	} {
		waited := false
		for seed := range uint64(50) {
			var p Pacer
			rnd, now := newRand(seed), clock.Time(time.Hour)
			burst(&p, m, &now, rnd, 50_000)
			begins := c.next(&p, now)
			if _, due := p.NextOf(m, begins, 5000, rnd); due > begins {
				waited = true
			}
		}
		if waited == c.want {
			t.Errorf("%s: waited %v", c.name, waited)
		}
	}
}

// TestUplinkDuringDownload: what a client sends while records are waiting for their time begins no burst.
func TestUplinkDuringDownload(t *testing.T) {
	m := taught(goServer{chunked: true})
	run := func(uplink bool) time.Duration {
		var p Pacer
		rnd := newRand(1)
		now := clock.Time(time.Hour)
		for range 500 {
			size, due := p.Next(m, now, rnd)
			if uplink {
				p.Uplink(max(now, due))
			}
			now = max(now, due)
			p.Sent(m, now, size, rnd)
		}
		return now.Sub(clock.Time(time.Hour))
	}
	if quiet, busy := run(false), run(true); quiet != busy || quiet < time.Second {
		t.Errorf("500 records take %v, and %v with an uplink", quiet, busy)
	}
}

func TestNextIsIdempotent(t *testing.T) {
	m := taught(goServer{chunked: true})
	var p Pacer
	rnd, now := newRand(1), clock.Time(time.Hour)
	for range 1000 {
		size, due := p.Next(m, now, rnd)
		for range 3 {
			now += clock.Time(rnd.IntN(1000))
			if s, d := p.Next(m, now, rnd); s != size || d != due {
				t.Fatalf("%d bytes at %v, then %d at %v", size, due, s, d)
			}
		}
		now = max(now, due)
		p.Sent(m, now, rnd.IntN(size+1), rnd)
	}
}

// TestExactInstants: lateness of the caller does not shorten gaps, and gaps count from the instant when a record left.
func TestExactInstants(t *testing.T) {
	trace := Trace{Bursts: []Burst{{Records: records(0, 50*ms, 5000, 5000, 5000, 5000, 5000, 5000)}}}
	m := Learn([]Trace{trace, trace}, DRSAuto)
	var p Pacer
	rnd, now := newRand(1), clock.Time(time.Hour)
	p.Next(m, now, rnd)
	for range 20 {
		p.Sent(m, now, 5000, rnd)
		size, due := p.Next(m, now, rnd)
		if size != 5000 || due != now.Add(50*ms) {
			t.Fatalf("%d bytes in %v, want 5000 in 50 ms", size, due.Sub(now))
		}
		now = due.Add(7 * ms)
	}
}

func TestDefault(t *testing.T) {
	for _, m := range []*Model{nil, Default()} {
		for _, size := range sizes(m, 100, 1) {
			if size != 16401 {
				t.Fatalf("a record of %d bytes", size)
			}
		}
	}
	if speed(Default(), 20<<20) < 1e9 || Default().Scaled(20e6) != Default() {
		t.Error("the default model waits")
	}
}

// TestSmallestRest: no record that TLS cannot have is left behind.
func TestSmallestRest(t *testing.T) {
	for _, f := range fronts {
		m, rnd := taught(f.front), newRand(1)
		for bytes := minSize; bytes < 60_000; bytes += 1 + rnd.IntN(40) {
			var p Pacer
			now := clock.Time(time.Hour)
			for i, r := range burst(&p, m, &now, rnd, bytes) {
				if r.Size < minSize || r.Size > maxSize {
					t.Fatalf("%s, %d bytes: record %d has %d", f.name, bytes, i, r.Size)
				}
			}
		}
	}
}

func TestScaled(t *testing.T) {
	for _, f := range fronts {
		m := taught(f.front)
		for _, rate := range []int{1e5, 1e6, 5e6, 20e6, 100e6} {
			scaled := m.Scaled(rate)
			before, after := speed(m, 20<<20), speed(scaled, 20<<20)
			if after < float64(rate) {
				t.Errorf("%s at %d bytes/s: %.0f", f.name, rate, after)
			}
			if scaled == m && before < float64(rate) || scaled != m && before > 2*float64(rate) {
				t.Errorf("%s at %d bytes/s: %.0f before, %.0f after", f.name, rate, before, after)
			}
			if before < float64(rate)/10 && rate <= 5e6 && after > 2*float64(rate) {
				t.Errorf("%s at %d bytes/s: %.0f, far more than was asked for", f.name, rate, after)
			}
		}
		if m.Scaled(0) != m {
			t.Errorf("%s: another model for no rate", f.name)
		}
	}
}
