package doppel

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"mtrelay/clock"
)

const ms = time.Millisecond

// records makes records of sizes, each with the gap before it; the first comes at start.
func records(start time.Duration, gap time.Duration, sizes ...int) (rs []Record) {
	for _, s := range sizes {
		rs = append(rs, Record{start, s})
		start += gap
	}
	return rs
}

// speed is the rate of a download in bytes/s, when only the model limits it.
func speed(m *Model, bytes int) float64 {
	var p Pacer
	start := clock.Time(time.Hour)
	now := start
	rnd := newRand(1)
	for left := bytes; left > 0; {
		size, due := p.NextOf(m, now, left, rnd)
		now = max(now, due)
		p.Sent(m, now, min(size, left), rnd)
		left -= min(size, left)
	}
	return float64(bytes) / max(now.Sub(start).Seconds(), 1e-9)
}

func TestNothingToLearn(t *testing.T) {
	for _, traces := range [][]Trace{nil, {{}}, {{Bursts: []Burst{{Asked: ms}}}}} {
		if m := Learn(traces, DRSAuto); m != nil {
			t.Errorf("%v: learned %+v", traces, m.Quality())
		}
	}
}

// TestThinkingIsNoGap: whatever a page waits for before its first record does not slow downloads.
func TestThinkingIsNoGap(t *testing.T) {
	page := Trace{RTT: ms, Bursts: []Burst{{Asked: 5 * ms, Records: records(155*ms, 0, 3200)}}}
	twice := Trace{Bursts: []Burst{
		{Asked: 5 * ms, Records: records(155*ms, 30*time.Microsecond, 301, 2900)},
		{Asked: 160 * ms, Records: records(310*ms, 0, 301, 2900)},
	}}
	thinking := Trace{Bursts: []Burst{{Asked: ms, Records: []Record{{2 * ms, 301}, {900 * ms, 16401}, {900 * ms, 16401}, {900 * ms, 50}}}}}
	for _, traces := range [][]Trace{{page}, {page, page, page}, {twice, twice, page}, {thinking, thinking}} {
		m := Learn(traces, DRSAuto)
		if got := speed(m, 20<<20); got < 1e9 {
			t.Errorf("a download of 20 MB runs at %.1f MB/s: %+v", got/1e6, m.Quality())
		}
	}
}

func TestOneRecordIsNoSize(t *testing.T) {
	m := Learn([]Trace{{Bursts: []Burst{{Records: records(0, 0, 3200)}}}}, DRSAuto)
	var p Pacer
	if size, _ := p.Next(m, 1, newRand(1)); size != fullSize {
		t.Errorf("the next record has %d bytes, want a full one: 3200 was only what the page had", size)
	}
}

// TestEmptyPagesTellNothingOfDownloads: what HTTP/2 says beside an empty page is not repeated for megabytes.
func TestEmptyPagesTellNothingOfDownloads(t *testing.T) {
	page := Trace{Bursts: []Burst{
		{Asked: ms, Records: records(2*ms, 0, 56, 30, 39, 30, 54)},
		{Asked: 10 * ms, Records: records(11*ms, 0, 30, 52)},
	}}
	m := Learn([]Trace{page, page, page, page}, DRSAuto)
	var p Pacer
	rnd := newRand(1)
	now, sent := clock.Time(time.Hour), 0
	const all, most = 1 << 20, 80 // bytes, records: 64 full ones and the small ones of the beginning
	for records := 0; sent < all; records++ {
		size, _ := p.NextOf(m, now, all-sent, rnd)
		p.Sent(m, now, size, rnd)
		if sent += size; records > most {
			t.Fatalf("%d records for %d bytes: %+v", records, sent, m.Quality())
		}
	}
}

// TestRareGapsAreNoise: a hiccup of the machine does not cost the speed of a fast server.
func TestRareGapsAreNoise(t *testing.T) {
	b := records(0, 0, slices.Repeat([]int{16401}, 100)...)
	for i := 50; i < len(b); i++ {
		b[i].At += 3 * ms
	}
	if m := Learn([]Trace{{Bursts: []Burst{{Records: b}}}}, DRSAuto); speed(m, 20<<20) < 1e9 {
		t.Errorf("learned gaps: %+v", m.Quality())
	}
}

func TestPathIsNotLearned(t *testing.T) {
	rtt := 20 * ms
	var slow []Record // a file through a growing window: 14,600 bytes, then twice as many per round trip
	sent, window, at := 0, initialWindow, 30*ms
	for i := range 120 {
		for (i+1)*16406 > sent+window {
			sent, window, at = sent+window, 2*window, at+rtt
		}
		slow = append(slow, Record{at, 16401})
	}
	link := records(30*ms, 1312*time.Microsecond, slices.Repeat([]int{16401}, 200)...) // 100 Mbit/s
	for i := range link {
		link[i].At += time.Duration(i%3) * 400 * time.Microsecond // a forwarder's timer
	}
	for name, b := range map[string][]Record{"window": slow, "link": link} {
		trace := Trace{RTT: rtt, Bursts: []Burst{{Asked: 0, Records: b}}}
		if m := Learn([]Trace{trace, trace}, DRSAuto); speed(m, 20<<20) < 1e9 {
			t.Errorf("%s: learned gaps: %+v", name, m.Quality())
		}
	}
}

// TestPausesAreLearnedThroughPath: what the rules above drop is not the server's.
func TestPausesAreLearnedThroughPath(t *testing.T) {
	f := goServer{chunked: true, off: true}
	rnd := newRand(5)
	traces := teach(f, [][]int{{400_000}}, 48, rnd)
	for i := range traces {
		traces[i].RTT = 20 * ms
	}
	m := Learn(traces, DRSAuto)
	for _, bytes := range []int{65536, 1 << 20} {
		if c := compare(f, m, rnd, bytes, 60); c.gaps > 0.05 {
			t.Errorf("%d bytes: gaps %.3f", bytes, c.gaps)
		}
	}
}

func TestGrowth(t *testing.T) {
	plain := teach(nginx{}, [][]int{{400_000}}, 5, newRand(1))
	grown := teach(goServer{}, [][]int{{400_000}}, 5, newRand(1))
	// The header and the first 32 KiB, then 32 KiB by 32 KiB.
	writes := []int{1203, 2389, 555, 4761, 5947, 7133, 8319, 2783, 10691, 11877, 10251, 14249, 15435, 3135, 16401, 16401, 16401}
	for _, c := range []struct {
		name   string
		traces []Trace
		drs    DRS
		want   []int // sizes at the start of a download
	}{
		{"none seen", plain, DRSAuto, []int{16401, 16401, 16401}},
		{"none seen, on", plain, DRSOn, []int{1203, 2389, 3575, 4761, 5947}},
		{"none seen, off", plain, DRSOff, []int{16401, 16401, 16401}},
		{"seen", grown, DRSAuto, writes},
		{"seen twice", teach(goServer{}, [][]int{{400_000, 400_000}}, 5, newRand(1)), DRSAuto, writes},
		{"seen, interrupted", interrupted(teach(goServer{}, [][]int{{400_000}}, 5, newRand(1))), DRSAuto, writes},
		{"seen, on", grown, DRSOn, writes},
		{"seen, off", grown, DRSOff, []int{4113, 16401, 12491, 16401, 16401}},
		{"of a page only", teach(goServer{}, [][]int{{3000}}, 5, newRand(1)), DRSAuto, []int{1203, 2389, 3575, 4761}},
	} {
		m := Learn(c.traces, c.drs)
		for seed := range uint64(400) {
			if got := sizes(m, len(c.want), seed); !slices.Equal(got, c.want) {
				t.Fatalf("%s: records of %v, want %v", c.name, got, c.want)
			}
		}
	}
}

// interrupted has the scheduler take 2 ms from a server behind a record that has grown.
func interrupted(traces []Trace) []Trace {
	for _, t := range traces {
		for _, b := range t.Bursts {
			for i := 20; i < len(b.Records); i++ {
				b.Records[i].At += 2 * ms
			}
		}
	}
	return traces
}

func sizes(m *Model, n int, seed uint64) (sizes []int) {
	var p Pacer
	rnd := newRand(seed)
	for range n {
		size, _ := p.Next(m, 1, rnd)
		p.Sent(m, 1, size, rnd)
		sizes = append(sizes, size)
	}
	return sizes
}

func TestReset(t *testing.T) {
	lesson := func(f front, idles ...time.Duration) (traces []Trace) {
		for _, idle := range idles {
			traces = append(traces, watch(f, newRand(1), 0, idle, 400_000, 400_000))
		}
		return traces
	}
	for _, c := range []struct {
		name   string
		traces []Trace
		want   time.Duration
	}{
		{"Go never", lesson(goServer{}, 100*ms, time.Second, 5*time.Second), 0},
		{"after a second", lesson(cloudflare{}, 100*ms, 400*ms, 1100*ms, 3*time.Second), 1100 * ms},
		{"not in what was seen", lesson(cloudflare{}, 100*ms, 400*ms), 0},
		{"nothing grows", lesson(nginx{}, 100*ms, 5*time.Second), 0},
	} {
		m := Learn(c.traces, DRSAuto)
		if got := m.Quality().ResetAfter; got != c.want {
			t.Errorf("%s: reset after %v, want %v", c.name, got, c.want)
		}
	}
}

// TestResetIsPaced: a burst behind a long silence begins small again, one behind a short silence does not.
func TestResetIsPaced(t *testing.T) {
	var traces []Trace
	for _, idle := range []time.Duration{100 * ms, 1100 * ms} {
		traces = append(traces, watch(cloudflare{}, newRand(1), 0, idle, 400_000, 400_000))
	}
	m := Learn(traces, DRSAuto)
	for _, c := range []struct {
		idle time.Duration
		want int
	}{{300 * ms, 16401}, {2 * time.Second, 1386}} {
		var p Pacer
		now, rnd := clock.Time(time.Hour), newRand(1)
		burst(&p, m, &now, rnd, 400_000)
		p.Uplink(now.Add(c.idle - 100*ms))
		p.Next(m, now.Add(c.idle-100*ms), rnd) // asked too early, when there was nothing to send
		if size, _ := p.Next(m, now.Add(c.idle), rnd); size != c.want {
			t.Errorf("after %v of silence the first record has %d bytes, want %d", c.idle, size, c.want)
		}
	}
}

func TestTail(t *testing.T) {
	chunk := func(tail int) Trace {
		return Trace{Bursts: []Burst{{Records: []Record{{0, 4113}, {0, 2000}, {9 * ms, 4113}, {9 * ms, 700}, {20 * ms, tail}}}}}
	}
	m := Learn([]Trace{chunk(22), chunk(22), chunk(22), chunk(22)}, DRSAuto)
	if m.Tail() != 22 {
		t.Fatalf("the tail has %d bytes, want 22: %+v", m.Tail(), m.Quality())
	}
	var p Pacer
	rnd, now := newRand(1), clock.Time(time.Hour)
	for i, c := range []struct {
		left, want int
		waits      bool
	}{{1000, 978, false}, {22, 22, true}} {
		size, due := p.NextOf(m, now, c.left, rnd)
		if size != c.want || (due > now) != c.waits {
			t.Errorf("record %d of %d bytes: %d bytes in %v, want %d", i, c.left, size, due.Sub(now), c.want)
		}
		now = max(now, due)
		p.Sent(m, now, size, rnd)
	}
	page := func(n, tail int) Trace { return Trace{Bursts: []Burst{{Records: records(0, 0, n, tail)}}} }
	m = Learn([]Trace{page(4000, 200), page(4000, 210), page(9000, 24), page(14000, 24)}, DRSAuto)
	for _, c := range []struct{ left, want int }{{9000, 9000}, {9024, 9000}, {15000, 14976}} {
		var p Pacer
		if size, _ := p.NextOf(m, now, c.left, rnd); min(size, c.left) != c.want && size != 4000 {
			t.Errorf("a tail from 9,024 bytes on: of %d bytes %d are in the first record, want %d", c.left, size, c.want)
		}
	}
	if Learn([]Trace{chunk(22), chunk(30), chunk(40), chunk(50)}, DRSAuto).Tail() != 0 {
		t.Error("rests of different lengths make no tail")
	}
}

// TestCutResponsesHaveNoEnd: that the watcher had seen enough says nothing about tails.
func TestCutResponsesHaveNoEnd(t *testing.T) {
	var traces []Trace
	for range 3 {
		traces = append(traces,
			Trace{Bursts: []Burst{{Records: records(0, 0, 4000, 200, 22)}, {Records: records(ms, 0, 4000, 300, 22)}}},
			Trace{Bursts: []Burst{{Records: records(0, 0, slices.Repeat([]int{4000}, 500)...), Cut: true}}})
	}
	if m := Learn(traces, DRSAuto); m.Tail() != 22 || m.Quality().TailFrom > 4222 {
		t.Errorf("a tail of %d bytes from %d on, want 22 from 4222 on", m.Tail(), m.Quality().TailFrom)
	}
}

// TestGreeting: what only the first burst of a connection begins with is not replayed in later ones, and not lost there.
func TestGreeting(t *testing.T) {
	first := []int{56, 30, 26, 39, 8192, 8192, 8192, 500}
	later := []int{39, 8192, 8192, 8192, 500}
	var traces []Trace
	for range 3 {
		traces = append(traces, Trace{Bursts: []Burst{
			{Records: records(0, 0, first...)}, {Records: records(ms, 0, later...)}, {Records: records(2*ms, 0, later...)},
		}})
	}
	m := Learn(traces, DRSAuto)
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	stored := new(Model)
	if err := json.Unmarshal(b, stored); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Model{m, stored} {
		for seed := range uint64(400) {
			var p Pacer
			rnd, now := newRand(seed), clock.Time(time.Hour)
			for i, want := range [][]int{first, later, later} {
				now = now.Add(time.Second)
				p.Uplink(now)
				var got []int
				for _, r := range burst(&p, m, &now, rnd, 40_000)[:len(want)-1] {
					got = append(got, r.Size)
				}
				if !slices.Equal(got, want[:len(want)-1]) {
					t.Fatalf("burst %d: records of %v, want %v", i, got, want)
				}
			}
		}
	}
}

// TestStartsFitTheLength: a long response begins as a long one did.
func TestStartsFitTheLength(t *testing.T) {
	page := func(header, n int) Burst {
		return Burst{Records: records(0, 0, append([]int{header}, slices.Repeat([]int{4000}, n)...)...)}
	}
	var traces []Trace
	pages := []Burst{page(180, 2), page(185, 20), page(190, 500)}
	for range 9 {
		traces = append(traces, Trace{Bursts: pages})
		pages = append(pages[1:], pages[0])
	}
	m := Learn(traces, DRSAuto)
	for seed := range uint64(400) {
		for _, c := range []struct{ left, want int }{{7000, 180}, {100_000, 185}, {50_000, 185}, {10 << 20, 190}} {
			var p Pacer
			p.flags = greeted
			if size, _ := p.NextOf(m, 1, c.left, newRand(seed)); size != c.want {
				t.Errorf("%d bytes begin with a record of %d, want %d", c.left, size, c.want)
			}
		}
	}
}

// TestTailThatWasNone: when more bytes come before the tail is due, it was not the end.
func TestTailThatWasNone(t *testing.T) {
	m := taught(goServer{chunked: true, off: true})
	var p Pacer
	rnd, now := newRand(1), clock.Time(time.Hour)
	size, _ := p.NextOf(m, now, 400, rnd)
	if size != 400-m.Tail() {
		t.Fatalf("record of %d bytes, want %d", size, 400-m.Tail())
	}
	p.Sent(m, now, size, rnd)
	if size, _ := p.NextOf(m, now, m.Tail()+50_000, rnd); size == m.Tail() {
		t.Errorf("record of %d bytes, want one of the steady state", size)
	}
}
