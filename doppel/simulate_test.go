package doppel

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"mtrelay/clock"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }

// watch fetches bodies one after the other on one connection, as a scout does. The first record comes after thinking.
func watch(f front, rnd *rand.Rand, thinking, idle time.Duration, bodies ...int) (t Trace) {
	c := f.connect(rnd)
	at := 10 * time.Millisecond
	for i, n := range bodies {
		if r, ok := c.(interface{ reset() }); ok && i > 0 && idle >= time.Second {
			r.reset()
		}
		b := Burst{Asked: at, Records: c.respond(n)}
		for i := range b.Records {
			b.Records[i].At += at + thinking
		}
		t.Bursts = append(t.Bursts, b)
		at = b.Records[len(b.Records)-1].At + idle
	}
	return t
}

// observation is what is compared: sizes of all records, and gaps inside bursts.
type observation struct{ sizes, gaps []int }

func (o *observation) add(records []Record) {
	for i, r := range records {
		o.sizes = append(o.sizes, r.Size)
		if i > 0 {
			o.gaps = append(o.gaps, int(r.At-records[i-1].At))
		}
	}
}

func (o *observation) sort() {
	slices.Sort(o.sizes)
	slices.Sort(o.gaps)
}

// tolerantly is the smallest d for which front(x − 1 ms) − d <= ours(x) <= front(x + 1 ms) + d for all x.
func tolerantly(front, ours []int) (d float64) {
	share := func(a []int, x int) float64 { // of values up to x
		return float64(sort.SearchInts(a, x+1)) / float64(len(a))
	}
	ms := int(time.Millisecond)
	points := slices.Clone(ours)
	for _, g := range front {
		points = append(points, g-ms, g+ms, g-ms-1, g+ms-1)
	}
	for _, x := range append(points, ours...) {
		for _, x := range []int{x, x - 1} {
			d = max(d, share(front, x-ms)-share(ours, x), share(ours, x)-share(front, x+ms))
		}
	}
	return d
}

// relayed plays the same responses through a Pacer, whose source is never empty before the end.
func relayed(m *Model, rnd *rand.Rand, bodies [][]Record) (out [][]Record) {
	var p Pacer
	now := clock.Time(time.Hour)
	for _, body := range bodies {
		now = now.Add(400 * time.Millisecond)
		p.Uplink(now)
		now = now.Add(time.Millisecond)
		out = append(out, burst(&p, m, &now, rnd, total(body)))
	}
	return out
}

func burst(p *Pacer, m *Model, now *clock.Time, rnd *rand.Rand, left int) (records []Record) {
	for left > 0 {
		size, due := p.NextOf(m, *now, left, rnd)
		if due > *now {
			*now = due.Add(time.Duration(rnd.IntN(100)) * time.Microsecond) // a timer's tick
		}
		n := min(size, left)
		left -= n
		records = append(records, Record{time.Duration(*now), n})
		p.Sent(m, *now, n, rnd)
		*now = now.Add(time.Duration(rnd.IntN(40)) * time.Microsecond)
	}
	return records
}

func total(records []Record) (n int) {
	for _, r := range records {
		n += r.Size
	}
	return n
}

var downloads = []struct {
	name  string
	bytes int
	times int // so that there are 1,000 records
}{{"4KB", 4096, 1200}, {"64KB", 65536, 300}, {"1MB", 1 << 20, 30}, {"20MB", 20 << 20, 3}}

var fronts = []struct {
	name   string
	front  front
	header bool // the size of a record in the midst of a response tells how long the header is
}{
	{"nginx", nginx{}, false},
	{"nginx with its header alone", nginx{firstAlone: true}, false},
	{"go files", goServer{}, true},
	{"go files without growth", goServer{off: true}, true},
	{"go chunks", goServer{chunked: true}, false},
	{"go chunks without growth", goServer{chunked: true, off: true}, false},
	{"go chunks by weibull", goServer{chunked: true, weibull: true}, false},
	{"cloudflare", cloudflare{}, false},
}

// lessons are what a scout fetches: bodies by connection.
var lessons = []struct {
	name  string
	conns [][]int
	times int
}{
	{"a file", [][]int{{400_000}}, 48},
	{"a file twice", [][]int{{400_000, 400_000}}, 24},
	{"pages and files", [][]int{{3000}, {70_000, 5000}, {1_000_000, 9000}}, 16},
}

func teach(f front, conns [][]int, times int, rnd *rand.Rand) (traces []Trace) {
	for range times {
		for _, bodies := range conns {
			traces = append(traces, watch(f, rnd, 150*time.Millisecond, 400*time.Millisecond, bodies...))
		}
	}
	return traces
}

// TestLikeTheFront is the purpose of the package: an observer cannot tell what it fetched from a front from a relayed
// transfer of as many bytes, by record sizes and gaps.
func TestLikeTheFront(t *testing.T) {
	// The whole proxy is allowed 0.10. A front that has 4 KB to say cuts its last chunk to fit, and we do not know that
	// it is the last.
	most := map[int]float64{4096: 0.08}
	for _, f := range fronts {
		for _, lesson := range lessons {
			rnd := newRand(1)
			m := Learn(teach(f.front, lesson.conns, lesson.times, rnd), DRSAuto)
			for _, d := range downloads {
				t.Run(fmt.Sprintf("%s/%s/%s", f.name, lesson.name, d.name), func(t *testing.T) {
					c := compare(f.front, m, rnd, d.bytes, d.times)
					t.Logf("sizes %.3f (front to itself %.3f), gaps %.3f (%.3f)", c.sizes, c.ownSizes, c.gaps, c.ownGaps)
					most := cmp.Or(most[d.bytes], 0.05)
					if f.header { // of 400,000 bytes it is longer
						most = max(most, 1.01/c.records)
					}
					if c.sizes > most || c.gaps > most {
						t.Errorf("sizes %.3f, gaps %.3f, want at most %v", c.sizes, c.gaps, most)
					}
				})
			}
		}
	}
}

// comparison is a front's distance from ours and from itself, and how many records its responses have.
type comparison struct{ sizes, ownSizes, gaps, ownGaps, records float64 }

func compare(f front, m *Model, rnd *rand.Rand, bytes, times int) (c comparison) {
	var theirs, again, ours observation
	for range times {
		body := f.connect(rnd).respond(bytes)
		theirs.add(body)
		ours.add(relayed(m, rnd, [][]Record{body})[0])
		again.add(f.connect(rnd).respond(bytes))
	}
	for _, o := range []*observation{&theirs, &again, &ours} {
		o.sort()
	}
	c.records = float64(len(theirs.sizes)) / float64(times)
	c.sizes, c.ownSizes = apart(theirs.sizes, ours.sizes), apart(theirs.sizes, again.sizes)
	if len(theirs.gaps) > 0 && len(ours.gaps) > 0 {
		c.gaps, c.ownGaps = tolerantly(theirs.gaps, ours.gaps), tolerantly(theirs.gaps, again.gaps)
	}
	return c
}
