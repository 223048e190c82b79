package tlsfront

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"mtrelay/clock"
)

// written returns the state of r.
func written(t *testing.T, r *Replay, wall clock.Unix, clean bool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteState(&b, wall, clean); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// reread returns a memory of the next process, which starts at started, and since when it knows everything.
func reread(t *testing.T, state []byte, started clock.Unix, maxEntries int) (*Replay, clock.Unix) {
	t.Helper()
	r := NewReplay(tolerance, started, maxEntries)
	since, err := r.ReadState(bytes.NewReader(state))
	if err != nil {
		t.Fatal(err)
	}
	return r, since
}

// TestReplayStateRoundTrip: what one process accepted is a replay to the next, whatever stamp it is given.
func TestReplayStateRoundTrip(t *testing.T) {
	for _, sizes := range [][3]int{ // hellos, entries before, entries after
		{0, 10, 10},
		{1, 10, 10},
		{1000, 1000, 1000},
		{1000, 1000, 5000},
		{20_000, 1 << 20, 1 << 20},
		{20_000, 1 << 20, 25_000},
		{9_000, 10_000, 1 << 20}, // from one shard to several
		{9_000, 1 << 20, 10_000}, // and back
	} {
		older := NewReplay(tolerance, now, sizes[1])
		for n := range uint64(sizes[0]) {
			admit(t, older, n, now+clock.Unix(n%100), now+60, ReasonNone)
		}
		r, since := reread(t, written(t, older, now+60, true), now+70, sizes[2])
		if r.Len() != sizes[0] || r.Admitted() != 0 || since != now {
			t.Fatalf("%v: %d remembered, %d admitted, since %d", sizes, r.Len(), r.Admitted(), since-now)
		}
		for n := range uint64(sizes[0]) {
			admit(t, r, n, now+70, now+70, ReasonReplay)
		}
	}
}

// TestReplayStateOrder: the next process forgets in the order in which hellos came, through a ring that has wrapped.
func TestReplayStateOrder(t *testing.T) {
	const size = 100
	older := NewReplay(tolerance, now, size)
	for n := range uint64(size + 30) {
		admit(t, older, n, now+clock.Unix(n), now+200+clock.Unix(n), ReasonNone)
	}
	r, _ := reread(t, written(t, older, now+400, true), now+400, size)
	for n := range uint64(size) {
		admit(t, r, 1000+n, now+400, now+400, ReasonNone) // takes the place of hello 30+n
		if n+1 < size {
			admit(t, r, 31+n, now+400, now+400, ReasonReplay)
		}
	}
	admit(t, r, 30, now+400, now+521, ReasonNone)
}

// TestReplayStateNewest: a smaller memory keeps the newest, and trusts a clean end only when what it drops has expired.
func TestReplayStateNewest(t *testing.T) {
	for _, test := range []struct {
		hellos, before, after int
		least                 int // kept at least; shards fill unevenly
	}{
		{1000, 1000, 100, 100},
		{20_000, 1 << 20, 1000, 1000},
		{60_000, 1 << 20, 20_000, 19_000},
	} {
		older := NewReplay(tolerance, now, test.before)
		for n := range uint64(test.hellos) {
			admit(t, older, n, now+clock.Unix(2*n), now+clock.Unix(2*n), ReasonNone)
		}
		end := now + clock.Unix(2*test.hellos) // the newest are fresh, the dropped ones no more
		r, since := reread(t, written(t, older, end, true), end, test.after)
		if r.Len() < test.least || r.Len() > test.after || since != now {
			t.Errorf("%v: %d remembered, since %d", test, r.Len(), since-now)
		}
		for n := range uint64(test.least * 8 / 10) {
			admit(t, r, uint64(test.hellos-1)-n, end, end, ReasonReplay)
		}
	}

	older := NewReplay(tolerance, now, 1000)
	for n := range uint64(300) {
		admit(t, older, n, now, now, ReasonNone)
	}
	if _, since := reread(t, written(t, older, now+5, true), now+10, 200); since != now+10 {
		t.Errorf("fresh hellos were dropped, and those stamped since %d pass", since-now)
	}
	if _, since := reread(t, written(t, older, now+115, true), now+121, 200); since != now {
		t.Errorf("only expired hellos were dropped, and those stamped before %d are refused", since-now)
	}
}

// TestReplayStateTrust: the rule about hellos from before the start is relaxed only where nothing can be unknown.
func TestReplayStateTrust(t *testing.T) {
	const start = now + 1000 // of the process that reads
	trusted := replayHead{clean: true, window: 120, since: now, written: start - 1}
	for _, test := range []struct {
		name string
		edit func(*replayHead)
		want clock.Unix
	}{
		{"clean", func(*replayHead) {}, now},
		{"at once", func(h *replayHead) { h.written = start }, now},
		{"a window ago", func(h *replayHead) { h.written = start - 120 }, now},
		{"a larger window", func(h *replayHead) { h.window = math.MaxInt64 }, now},
		{"from a process of this second", func(h *replayHead) { h.since = h.written }, start - 1},
		{"a crash", func(h *replayHead) { h.clean = false }, start},
		{"over a window ago", func(h *replayHead) { h.written = start - 121 }, start},
		{"before all time", func(h *replayHead) { h.since, h.written = math.MinInt64, math.MinInt64 }, start},
		{"a smaller window", func(h *replayHead) { h.window = 119 }, start},
		{"the clock went back", func(h *replayHead) { h.written = start + 1 }, start},
		{"the clock went back before", func(h *replayHead) { h.since = start }, start},
	} {
		h := trusted
		test.edit(&h)
		if _, since := reread(t, encodeReplay(&replayState{replayHead: h, shards: make([][]replayEntry, 1)}), start, 10); since != test.want {
			t.Errorf("%s: since %d, want %d", test.name, since-now, test.want-now)
		}
	}
}

// TestReplayRefuseBefore: a chain of clean ends goes on refusing what its first process had to refuse.
func TestReplayRefuseBefore(t *testing.T) {
	r := NewReplay(tolerance, now, 10)
	admit(t, r, 1, now-1, now, ReasonBeforeStart)
	for i := clock.Unix(1); i < 4; i++ {
		var since clock.Unix
		r, since = reread(t, written(t, r, now+10*i, true), now+10*i+5, 10)
		r.RefuseBefore(since)
		admit(t, r, 1, now-1, now+10*i+5, ReasonBeforeStart)
		admit(t, r, 100+uint64(i), now, now+10*i+5, ReasonNone)
	}
	r, _ = reread(t, written(t, r, now+50, false), now+51, 10)
	admit(t, r, 1, now+50, now+51, ReasonBeforeStart)
	admit(t, r, 101, now+51, now+51, ReasonReplay)
}

// TestReplayStateFuture: stamps from a clock that was ahead for a while do not fill the memory for good.
func TestReplayStateFuture(t *testing.T) {
	const ahead = now + 1_000_000
	older := NewReplay(tolerance, ahead, 1)
	admit(t, older, 1, ahead, ahead, ReasonNone)
	r, since := reread(t, written(t, older, ahead, true), now, 1)
	if since != now {
		t.Error(since)
	}
	admit(t, r, 1, now, now, ReasonReplay)
	admit(t, r, 2, now, now+240, ReasonReplayMemoryFull)
	admit(t, r, 2, now+241, now+241, ReasonNone)
}

// TestReplayStateRefuses: each truncation and each altered byte is an error and leaves the memory empty.
func TestReplayStateRefuses(t *testing.T) {
	older := NewReplay(tolerance, now, replayShards*minShardEntries)
	for n := range uint64(40) {
		admit(t, older, n, now, now, ReasonNone)
	}
	state := written(t, older, now, true)
	refused := func(what string, at int, b []byte) {
		t.Helper()
		r := NewReplay(tolerance, now+1, replayShards*minShardEntries)
		if since, err := r.ReadState(bytes.NewReader(b)); err == nil || since != now+1 || r.Len() != 0 {
			t.Fatalf("%s at %d: %v, since %d, %d remembered", what, at, err, since-now, r.Len())
		}
	}
	for at := range state {
		refused("cut", at, state[:at])
		for _, flip := range []byte{1, 0x80, 0xff} {
			altered := bytes.Clone(state)
			altered[at] ^= flip
			refused("altered", at, altered)
		}
	}
	refused("longer", len(state), append(bytes.Clone(state), 0))
	refused("twice", len(state), slices.Concat(state, state))

	broken := errors.New("broken disk")
	r := NewReplay(tolerance, now, 10)
	for at := range state {
		src := io.MultiReader(bytes.NewReader(state[:at]), iotest.ErrReader(broken))
		if _, err := r.ReadState(src); err != broken {
			t.Fatalf("broken at %d: %v", at, err)
		}
	}
}

// TestReplayStateBounded: neither a large file nor a count that lies makes it take more than the configuration allows.
func TestReplayStateBounded(t *testing.T) {
	older := NewReplay(tolerance, now, 1<<20)
	for n := range uint64(50_000) {
		admit(t, older, n, now, now, ReasonNone)
	}
	large := written(t, older, now, true)
	lie := binary.LittleEndian.AppendUint32(replayHead{}.append(nil, 1), math.MaxUint32)
	for _, state := range [][]byte{large, lie} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := decodeReplay(bytes.NewReader(state), 1000)
		runtime.ReadMemStats(&after)
		if took, most := after.TotalAlloc-before.TotalAlloc, uint64(replayShards*minShardEntries*24+replayBlock*replayStateLen+10_000); took > most {
			t.Errorf("%d bytes, want at most %d", took, most)
		}
		if err == nil && s.dropped < 30_000 {
			t.Errorf("%d of 50,000 were dropped", s.dropped)
		}
	}
}

type failingWriter struct{ left int }

func (f *failingWriter) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

// TestReplayStateDiskFull: no failed write goes unseen.
func TestReplayStateDiskFull(t *testing.T) {
	r := NewReplay(tolerance, now, 10)
	for writes := 0; ; writes++ {
		if r.WriteState(&failingWriter{writes}, now, true) == nil {
			if writes != 2 {
				t.Errorf("it takes %d writes", writes)
			}
			return
		}
	}
}

// encodeReplay is the file of a state.
func encodeReplay(s *replayState) []byte {
	b := s.append(nil, len(s.shards))
	for _, shard := range s.shards {
		b = appendEntries(b, shard[:len(shard)/2], shard[len(shard)/2:])
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// FuzzReplayState: nothing panics or takes too much; what is read is written as the same bytes and read again as the
// same. The checksum is put right, or nothing would get past it.
func FuzzReplayState(f *testing.F) {
	r := NewReplay(tolerance, now, replayShards*minShardEntries)
	for n := range uint64(20) {
		r.admit(replayKey(n), uint32(now), now)
	}
	var b bytes.Buffer
	if err := r.WriteState(&b, now, true); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes()[:b.Len()-4])
	f.Add(replayHead{}.append(nil, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decodeReplay(bytes.NewReader(raw), 100); err == nil && len(raw) < replayHeadLen+8 {
			t.Fatal("too short")
		}
		raw = binary.LittleEndian.AppendUint32(raw[:len(raw):len(raw)], crc32.Checksum(raw, castagnoli))
		s, err := decodeReplay(bytes.NewReader(raw), len(raw))
		if err != nil {
			return
		}
		if s.dropped == 0 {
			again := encodeReplay(s)
			if !bytes.Equal(again, raw) {
				t.Fatalf("%x is written as %x", raw, again)
			}
			twice, err := decodeReplay(bytes.NewReader(again), len(raw))
			if err != nil || !reflect.DeepEqual(twice, s) {
				t.Fatalf("%+v is read as %+v, %v", s, twice, err)
			}
		}
		r := NewReplay(tolerance, now, 10)
		since, err := r.ReadState(bytes.NewReader(raw))
		if err != nil || r.Len() > 10 || since > now {
			t.Fatalf("%v, %d entries, since %d", err, r.Len(), since)
		}
	})
}

// TestReplayStateWhileAdmitting: a state that is written while hellos are accepted holds all that were before.
func TestReplayStateWhileAdmitting(t *testing.T) {
	const before, during = 2000, 2000
	r := NewReplay(tolerance, now, replayShards*minShardEntries)
	for n := range uint64(before) {
		admit(t, r, n, now, now, ReasonNone)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(during) {
			r.admit(replayKey(before+n), uint32(now), now)
		}
	}()
	state := written(t, r, now, false)
	<-done
	again, _ := reread(t, state, now, replayShards*minShardEntries)
	for n := range uint64(before) {
		admit(t, again, n, now, now, ReasonReplay)
	}
	if r.Admitted() != before+during {
		t.Error(r.Admitted())
	}
}

// BenchmarkReplayWriteState is what the default memory costs when it is full; ns/shard is how long one stays locked.
func BenchmarkReplayWriteState(b *testing.B) {
	const size = 16 << 20 / ReplayEntryLen
	r := NewReplay(time.Minute, now, size)
	for n := range uint64(size * 9 / 10) {
		r.admit(replayKey(n), uint32(now), now)
	}
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		for i := range r.shards {
			out = r.shards[i].appendState(out[:0])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.shards)), "ns/shard")
}
