package loadtest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestPercentiles compares with the definition: the least value that so many percent of all do not exceed.
func TestPercentiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 10, 99, 100, 1000, 12345} {
		l, all := newLatency(), make([]time.Duration, n)
		for i := range all {
			all[i] = time.Duration(math.Exp(rnd.NormFloat64()*2+12)) + time.Microsecond // 1 µs to seconds, with a tail
			l.record(all[i])
		}
		slices.Sort(all)
		for _, p := range reported {
			rank := max(1, int(math.Ceil(p/100*float64(n)-1e-9)))
			want := all[rank-1].Seconds() * 1000
			if got := l.ms(p); math.Abs(got-want) > 0.002*want+0.0001 {
				t.Errorf("%d values, p%v: %v ms, want %v", n, p, got, want)
			}
		}
		if l.count() != int64(n) {
			t.Errorf("%d counted of %d", l.count(), n)
		}
	}
}

// TestLatencyBounds: what does not fit is not lost.
func TestLatencyBounds(t *testing.T) {
	l := newLatency()
	l.record(-time.Second) // a clock that was set back
	l.record(time.Hour)
	if l.count() != 2 || l.ms(50) > 0.001 || math.Abs(l.ms(100)-120_000) > 200 {
		t.Errorf("%d values, %v and %v ms", l.count(), l.ms(50), l.ms(100))
	}
}

// TestLatencyCountsFromDue: a message that waited for the one before it waited, and a timer's delay is the generator's.
func TestLatencyCountsFromDue(t *testing.T) {
	c := &chat{late: newLatency()}
	past := time.Now().Add(-3 * time.Second)
	if from, ok := c.await(context.Background(), past); !ok || !from.Equal(past) || c.late.count() != 0 {
		t.Errorf("overdue: %v, %v", from.Sub(past), ok)
	}
	due := time.Now().Add(2 * time.Millisecond)
	if from, ok := c.await(context.Background(), due); !ok || from.Before(due) || c.late.count() != 1 {
		t.Errorf("in time: %v, %v", from.Sub(due), ok)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, due := range []time.Time{past, time.Now().Add(time.Hour)} {
		if _, ok := c.await(ended, due); ok {
			t.Error("it goes on after the end")
		}
	}
}

// TestShares: every client has exactly one worker.
func TestShares(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 1000} {
		clients := make([]*client, n)
		for i := range clients {
			clients[i] = &client{number: uint64(i)}
		}
		c := (&run{}).newChat(clients, 1)
		seen := make(map[uint64]int)
		for w := range c.workers {
			for j, one := range c.share(w) {
				seen[one.number]++
				if one.number != uint64(j*c.workers+w) { // its place in the order of what is due
					t.Errorf("%d clients: worker %d has client %d as its %d.", n, w, one.number, j)
				}
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d clients have a worker", len(seen), n)
		}
	}
}
