package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// crowd returns a wheel with 10,000 timers, as many connections as a descriptor limit of 20,000 allows,
// each due at a random instant of the next period.
func crowd(period time.Duration) (*Wheel[int], []Timer[int]) {
	rnd := rand.New(rand.NewPCG(1, 1))
	w, timers := NewWheel[int](1), make([]Timer[int], 10_000)
	for i := range timers {
		w.Set(&timers[i], 1+Time(rnd.Int64N(int64(period))))
	}
	return w, timers
}

func BenchmarkSet(b *testing.B) {
	w, _ := crowd(5 * time.Minute)
	fresh := make([]Timer[int], 4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(fresh) == 0 {
			b.StopTimer()
			for j := range fresh {
				w.Stop(&fresh[j])
			}
			b.StartTimer()
		}
		w.Set(&fresh[i%len(fresh)], Time(i)<<20+1)
	}
}

func BenchmarkReset(b *testing.B) {
	w, timers := crowd(5 * time.Minute)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Set(&timers[i%len(timers)], Time(i%1000+1)*Time(time.Millisecond))
	}
}

func BenchmarkSetStop(b *testing.B) {
	w, _ := crowd(5 * time.Minute)
	var t Timer[int]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Set(&t, Time(i%1000+1)*Time(time.Millisecond))
		w.Stop(&t)
	}
}

func BenchmarkNext(b *testing.B) {
	w, _ := crowd(5 * time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		w.Next()
	}
}

// BenchmarkAdvance is a turn of a loop: 1 ms passes, and what expires is set anew. Idle connections seldom
// expire; paced ones do all the time, ten of the 10,000 in each turn.
func BenchmarkAdvance(b *testing.B) {
	for _, c := range []struct {
		name   string
		period time.Duration
	}{{"idle", 5 * time.Minute}, {"paced", time.Second}} {
		b.Run(c.name, func(b *testing.B) { benchmarkAdvance(b, c.period) })
	}
}

func benchmarkAdvance(b *testing.B, period time.Duration) {
	w, _ := crowd(period)
	now := Time(1)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		w.Advance(now)
		for t := w.Pop(); t != nil; t = w.Pop() {
			w.Set(t, now.Add(period))
		}
	}
}
