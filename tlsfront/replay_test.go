package tlsfront

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mtrelay/clock"
)

func replayKey(n uint64) (key [replayKeyLen]byte) {
	binary.LittleEndian.PutUint64(key[:], n)
	return key
}

func admit(t *testing.T, r *Replay, n uint64, stamp, wall clock.Unix, want Reason) {
	t.Helper()
	if got := r.admit(replayKey(n), uint32(stamp), wall); got != want {
		t.Fatalf("hello %d stamped %d at %d: %v, want %v", n, stamp-now, wall-now, got, want)
	}
}

func TestReplayWindow(t *testing.T) {
	r := NewReplay(tolerance, now, 2)
	admit(t, r, 1, now-1, now, ReasonBeforeStart)
	admit(t, r, 1, now, now, ReasonNone)
	admit(t, r, 1, now, now, ReasonReplay)
	admit(t, r, 1, now+60, now+60, ReasonReplay) // the same with another stamp
	admit(t, r, 2, now+100, now+1, ReasonNone)

	// Full: nothing is forgotten before its stamp plus the window, then the oldest makes room.
	admit(t, r, 3, now+120, now+120, ReasonReplayMemoryFull)
	admit(t, r, 1, now, now+120, ReasonReplay)
	admit(t, r, 1, now+121, now+121, ReasonReplay) // expired, but there was no need to forget it
	admit(t, r, 3, now+121, now+121, ReasonNone)
	admit(t, r, 4, now+220, now+220, ReasonReplayMemoryFull)
	admit(t, r, 2, now+220, now+220, ReasonReplay)
	admit(t, r, 1, now+221, now+221, ReasonNone)
	if r.Len() != 2 {
		t.Fatal(r.Len())
	}
}

func TestReplayFractionOfASecond(t *testing.T) {
	r := NewReplay(1500*time.Millisecond, now, 1)
	admit(t, r, 1, now, now, ReasonNone)
	admit(t, r, 2, now+2, now+2, ReasonReplayMemoryFull)
	admit(t, r, 2, now+3, now+3, ReasonNone)
}

func TestReplayStampsAtTheEnds(t *testing.T) {
	r := NewReplay(tolerance, 0, 1)
	admit(t, r, 1, 0, 0, ReasonNone)
	admit(t, r, 2, 1<<32-1, 120, ReasonReplayMemoryFull)
	admit(t, r, 2, 1<<32-1, 121, ReasonNone)
	admit(t, r, 3, 1<<32-1, 1<<32-1+120, ReasonReplayMemoryFull)
	admit(t, r, 3, 1<<32-1, 1<<32+120, ReasonNone)
}

// TestReplayAgainstModel: whatever comes, the answer is that of a list that is searched from end to end.
func TestReplayAgainstModel(t *testing.T) {
	type entry struct {
		key   uint64
		stamp clock.Unix
	}
	const size, window = 50, 20
	rnd := rand.New(fixed(3))
	r := NewReplay(window*time.Second, now, size)
	var model []entry
	wall := now + 1000
	counts := map[Reason]int{}
	for range 200_000 {
		wall += clock.Unix(rnd.IntN(2) * rnd.IntN(3))
		e := entry{rnd.Uint64N(400), wall - window + clock.Unix(rnd.IntN(2*window+1))}
		want := ReasonNone
		for _, m := range model {
			if m.key == e.key {
				want = ReasonReplay
			}
		}
		if want == ReasonNone && len(model) == size {
			if model[0].stamp+window >= wall {
				want = ReasonReplayMemoryFull
			} else {
				model = model[1:]
			}
		}
		if want == ReasonNone {
			model = append(model, e)
		}
		counts[want]++
		admit(t, r, e.key, e.stamp, wall, want)
	}
	for _, reason := range []Reason{ReasonNone, ReasonReplay, ReasonReplayMemoryFull} {
		if counts[reason] < 1000 {
			t.Errorf("%v came only %d times", reason, counts[reason])
		}
	}
}

// TestReplayConcurrent: of many copies that arrive at once, one gets through.
func TestReplayConcurrent(t *testing.T) {
	const hellos, loops = 2000, 8
	r := NewReplay(tolerance, now, replayShards*minShardEntries)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range loops {
		wg.Go(func() {
			for n := range uint64(hellos) {
				if r.admit(replayKey(n), uint32(now), now) == ReasonNone {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != hellos || r.Len() != hellos || len(r.shards) != replayShards {
		t.Fatalf("%d admitted, %d remembered, %d shards", admitted.Load(), r.Len(), len(r.shards))
	}
}

// TestReplaySize: it begins small, grows to the room it was given, and forgets nothing on the way.
func TestReplaySize(t *testing.T) {
	for _, most := range []int{0, 1, 2, 1000, 20_000, 37_449} {
		r := NewReplay(tolerance, now, most)
		if r.Size() > len(r.shards)*(firstShardEntries*ReplayEntryLen+128) {
			t.Errorf("%d entries: %d bytes at first", most, r.Size())
		}
		admitted := uint64(0)
		for n := uint64(0); ; n++ {
			key := replayKey(n)
			if r.admit(key, uint32(now), now) == ReasonReplayMemoryFull {
				break
			}
			admitted++
			if n%97 == 0 && r.admit(replayKey(n/2), uint32(now), now) != ReasonReplay {
				t.Fatalf("%d entries: hello %d is forgotten after %d", most, n/2, n)
			}
		}
		if most := uint64(max(most, 1)); admitted > most || admitted < most*8/10 {
			t.Errorf("%d entries: full after %d", most, admitted)
		}
		for i := range r.shards {
			if s := &r.shards[i]; len(s.table) < 2*len(s.entries) {
				t.Errorf("%d entries: a table of %d slots for %d", most, len(s.table), len(s.entries))
			}
		}
		if r.Size() > max(most, 1)*ReplayEntryLen+1024+replayShards*128 {
			t.Errorf("%d entries: %d bytes in the end", most, r.Size())
		}
	}
}

// TestReplayShardsFillEvenly backs the figure in the comment of Replay.
func TestReplayShardsFillEvenly(t *testing.T) {
	const size = replayShards * minShardEntries
	r := NewReplay(tolerance, now, size)
	for n := range uint64(size) {
		if r.admit(replayKey(n), uint32(now), now) != ReasonNone {
			break
		}
	}
	if r.Len() < size*85/100 {
		t.Fatalf("full with %d of %d", r.Len(), size)
	}
}

func TestReplayAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := NewReplay(0, 0, 64)
	n := uint64(0)
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		r.admit(replayKey(n), uint32(n), clock.Unix(n))
	}); allocs != 0 {
		t.Fatalf("%v allocations", allocs)
	}
}
