package doppel

import (
	"testing"
	"time"
	"unsafe"

	"mtrelay/clock"
)

func taught(f front) *Model {
	return Learn(teach(f, lessons[2].conns, lessons[2].times, newRand(7)), DRSAuto)
}

func BenchmarkRecord(b *testing.B) {
	for _, f := range fronts {
		b.Run(f.name, func(b *testing.B) { benchmarkRecord(b, taught(f.front)) })
	}
	b.Run("default", func(b *testing.B) { benchmarkRecord(b, Default()) })
}

func benchmarkRecord(b *testing.B, m *Model) {
	rnd := newRand(1)
	var p Pacer
	now := clock.Time(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		size, due := p.Next(m, now, rnd)
		now = max(now, due)
		p.Sent(m, now, size, rnd)
	}
}

// BenchmarkBurst is a request and a response of one record.
func BenchmarkBurst(b *testing.B) {
	m, rnd := taught(goServer{chunked: true}), newRand(1)
	var p Pacer
	now := clock.Time(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		now += 1e9
		p.Uplink(now)
		p.Next(m, now, rnd)
		p.Sent(m, now, 100, rnd)
	}
}

func BenchmarkLearn(b *testing.B) {
	traces := teach(goServer{chunked: true}, lessons[2].conns, lessons[2].times, newRand(7))
	b.ReportAllocs()
	for b.Loop() {
		Learn(traces, DRSAuto)
	}
}

func TestSizes(t *testing.T) {
	if got := unsafe.Sizeof(Pacer{}); got > 48 {
		t.Errorf("a Pacer takes %d bytes, want at most 48", got)
	}
	most := unsafe.Sizeof(Model{}) + maxStarts*unsafe.Sizeof(start{}) + (maxStartSteps+maxSteady)*unsafe.Sizeof(step(0))
	if most > 64<<10 {
		t.Errorf("a Model takes up to %d bytes, want at most 64 KiB", most)
	}
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, f := range fronts {
		m, rnd := taught(f.front), newRand(1)
		var p Pacer
		now := clock.Time(time.Hour)
		if n := testing.AllocsPerRun(2000, func() {
			now += clock.Time(rnd.IntN(500)) * clock.Time(time.Millisecond)
			p.Uplink(now)
			size, due := p.NextOf(m, now, rnd.IntN(40_000), rnd)
			p.Sent(m, due, size, rnd)
		}); n != 0 {
			t.Errorf("%s: %v allocations per record", f.name, n)
		}
	}
}
