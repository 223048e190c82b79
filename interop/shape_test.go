package interop

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
)

// measureShapes in the environment asks for TestShape: three minutes of comparisons that want a quiet machine (README, "How
// close it is"). `make shape` sets it.
const measureShapes = "INTEROP_SHAPE"

// longShapes in the environment asks for the fronts and sizes that take minutes.
const longShapes = "INTEROP_SHAPE_LONG"

// Targets of the design.
const (
	mostSizeDistance = 0.10
	mostGapDistance  = 0.10
)

// ks is the Kolmogorov-Smirnov distance of two sorted samples.
func ks(a, b []int) (d float64) {
	for _, points := range [][]int{a, b} {
		for _, x := range points {
			d = max(d, abs(share(a, x)-share(b, x)))
		}
	}
	return d
}

func abs(x float64) float64 { return max(x, -x) }

// share is that of the sorted values up to x.
func share(sorted []int, x int) float64 {
	return float64(sort.SearchInts(sorted, x+1)) / float64(len(sorted))
}

// tolerant is the smallest d with front(x - 1 ms) - d <= ours(x) <= front(x + 1 ms) + d, for sorted samples.
func tolerant(front, ours []int) (d float64) {
	ms := int(time.Millisecond)
	points := slices.Clone(ours)
	for _, g := range front {
		points = append(points, g-ms, g+ms)
	}
	for _, at := range points {
		for _, x := range []int{at, at - 1} { // the functions step up at a point
			d = max(d, share(front, x-ms)-share(ours, x), share(ours, x)-share(front, x+ms))
		}
	}
	return d
}

// sample is all of an observer's figures.
type sample struct{ sizes, gaps []int }

func sampleOf(downloads []download) (s sample) {
	for _, d := range downloads {
		s.sizes = append(s.sizes, d.sizes()...)
		s.gaps = append(s.gaps, d.gaps()...)
	}
	slices.Sort(s.sizes)
	slices.Sort(s.gaps)
	return s
}

// batch is how many downloads of a size are made: a thousand records and, where downloads have several, a thousand gaps.
type batch struct {
	name                 string
	times                int
	streamed             int  // by the front whose records are shorter
	overPath, streamedBy bool // also in the short run: over the path; from that front
}

var batches = []batch{{"4k", 340, 340, true, true}, {"64k", 260, 70, false, true}, {"1m", 17, 6, true, true}, {"20m", 1, 1, true, false}}

// TestShape measures what an observer can tell, and what looking alike costs.
func TestShape(t *testing.T) {
	if os.Getenv(measureShapes) == "" {
		t.Skipf("%s is not set: see `make shape`", measureShapes)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // nobody here may wait for somebody else's goroutine
	s := setShapeStage(t)
	if !s.long {
		t.Logf("SHORT: no HTTP/2, few comparisons over the path, no 20 MB in chunks, fewer idle sessions; %s=1 does all", longShapes)
	}
	for i, f := range s.fronts {
		t.Run(f.name, func(t *testing.T) {
			t.Run("no path", func(t *testing.T) { s.compareAll(t, i, false) })
			t.Run("path", func(t *testing.T) { s.compareAll(t, i, true) })
			t.Run("classifier", func(t *testing.T) { s.classify(t, i) })
			t.Run("endings", func(t *testing.T) { s.listEndings(t, i) })
		})
	}
	t.Run("speed", s.speed)
	t.Run("idle", s.idle)
	t.Run("stall", s.stall)
	t.Run("behind a slow DC", s.behindSlowDC)
}

// compareAll compares one front's downloads of all sizes.
func (s *shapeStage) compareAll(t *testing.T, front int, path bool) {
	f := s.fronts[front]
	frontAddr, proxyAddr := f.addr, s.like[front].addr
	if path {
		frontAddr, proxyAddr = lengthen(t, frontAddr), lengthen(t, proxyAddr)
	}
	for _, b := range batches {
		if !s.long && (path && !b.overPath || f.slow && !b.streamedBy || path && front == 1) {
			continue
		}
		if f.slow {
			b.times = b.streamed
		}
		t.Run(b.name, func(t *testing.T) { compare(t, f, frontAddr, proxyAddr, b, path) })
	}
}

// compare judges downloads of one size.
func compare(t *testing.T, f shapeFront, frontAddr, proxyAddr string, c batch, path bool) {
	atOnce := f.atOnce
	if path {
		atOnce = max(atOnce, min(24, c.times/6))
	}
	began := time.Now()
	visit := func(ctx context.Context, i int) (download, error) {
		return visitFront(ctx, frontAddr, c.name, f.proto, clientEnds)
	}
	// The two halves of the front's downloads alternate, so that whatever the machine does meets both.
	both := collect(t, 2*c.times, atOnce, visit)
	var first, second []download
	for i := range c.times {
		first, second = append(first, both[2*i]), append(second, both[2*i+1])
	}
	ours := collect(t, c.times, atOnce, func(ctx context.Context, i int) (download, error) {
		return visitProxy(ctx, proxyAddr, first[i].bytes, clientEnds)
	})
	a, b, o := sampleOf(first), sampleOf(second), sampleOf(ours)
	sizes, sizeFloor := ks(a.sizes, o.sizes), ks(a.sizes, b.sizes)
	gaps, gapFloor := tolerant(a.gaps, o.gaps), tolerant(a.gaps, b.gaps)
	t.Logf("sizes %.3f (front itself %.3f), %d and %d records; gaps %.3f (front itself %.3f), %d and %d; plain KS of gaps %.3f (%.3f); median time %v and %v; %v",
		sizes, sizeFloor, len(a.sizes), len(o.sizes), gaps, gapFloor, len(a.gaps), len(o.gaps), ks(a.gaps, o.gaps), ks(a.gaps, b.gaps),
		medianTime(first), medianTime(ours), time.Since(began).Round(time.Millisecond))
	if len(o.sizes) < 1000 || len(a.sizes) < 1000 {
		t.Errorf("too few records to judge by")
	}
	failed := false
	if sizes > mostSizeDistance {
		t.Errorf("sizes: distance %.3f, more than %.2f", sizes, mostSizeDistance)
		t.Logf("\n%s", histograms("payload", a.sizes, o.sizes, sizeCells(a.sizes, o.sizes)))
		failed = true
	}
	if gaps > mostGapDistance {
		t.Errorf("gaps: distance %.3f, more than %.2f", gaps, mostGapDistance)
		t.Logf("\n%s", histograms("gap in us", inMicros(a.gaps), inMicros(o.gaps), []int{10, 30, 100, 300, 500, 1000, 1500, 2000, 3000, 5000, 7500, 10000, 15000, 20000, 30000, 50000, 100000, 1 << 30}))
		failed = true
	}
	if failed || len(first[0].records) < 20 {
		for i := range min(2, c.times) {
			t.Logf("front: %v", brief(first[i]))
			t.Logf("ours:  %v", brief(ours[i]))
		}
	}
}

func inMicros(gaps []int) (out []int) {
	for _, g := range gaps {
		out = append(out, g/1000)
	}
	return out
}

func medianTime(all []download) time.Duration {
	var took []time.Duration
	for _, d := range all {
		took = append(took, d.took)
	}
	slices.Sort(took)
	return took[len(took)/2].Round(10 * time.Microsecond)
}

// brief lists the first records of a download with the gaps before them.
func brief(d download) string {
	var b strings.Builder
	for i, r := range d.records[:min(len(d.records), 40)] {
		if i == d.asked {
			b.WriteString("| ")
		}
		if i > 0 {
			if gap := r.at - d.records[i-1].at; gap >= time.Millisecond/2 {
				fmt.Fprintf(&b, "(%.1f ms) ", gap.Seconds()*1e3)
			}
		}
		fmt.Fprintf(&b, "%d ", r.size)
	}
	fmt.Fprintf(&b, "… %d records, %d bytes, %s, alert %v", len(d.records), d.bytes, d.end, d.alert)
	return b.String()
}

// sizeCells are the upper bounds of a histogram's cells: the commonest values by themselves.
func sizeCells(samples ...[]int) (cells []int) {
	counts := map[int]int{}
	for _, s := range samples {
		for _, x := range s {
			counts[x]++
		}
	}
	for x, n := range counts {
		if n*50 >= len(samples[0]) {
			cells = append(cells, x-1, x)
		}
	}
	cells = append(cells, 64, 256, 1024, 2048, 4096, 8192, 12288, 16384, 16640)
	slices.Sort(cells)
	return slices.Compact(cells)
}

func histograms(unit string, front, ours, cells []int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%22s  front   ours\n", unit)
	low := 0
	for _, high := range cells {
		f, o := share(front, high)-share(front, low-1), share(ours, high)-share(ours, low-1)
		if f > 0 || o > 0 {
			fmt.Fprintf(&b, "%10d..%10d  %.3f  %.3f  %s|%s\n", low, high, f, o, strings.Repeat("#", int(f*30+.5)), strings.Repeat("*", int(o*30+.5)))
		}
		low = high + 1
	}
	return b.String()
}

// behindSlowDC has the DC limit the downloads: what comes in are segments of 1,448 bytes, two at a time. Gaps are the DC's then.
func (s *shapeStage) behindSlowDC(t *testing.T) {
	f := s.fronts[0]
	for _, b := range []batch{{name: "64k", times: 60}, {name: "1m", times: 16}} {
		front := collect(t, b.times, 4, func(ctx context.Context, i int) (download, error) {
			return visitFront(ctx, f.addr, b.name, f.proto, clientEnds)
		})
		ours := collect(t, b.times, 4, func(ctx context.Context, i int) (download, error) {
			return visitProxy(ctx, s.far.addr, front[i].bytes, clientEnds)
		})
		a, o := sampleOf(front), sampleOf(ours)
		d := ks(a.sizes, o.sizes)
		t.Logf("%s: sizes %.3f, gaps %.3f; median time %v", b.name, d, tolerant(a.gaps, o.gaps), medianTime(ours))
		if d > mostSizeDistance {
			t.Errorf("%s: sizes: distance %.3f\n%s", b.name, d, histograms("payload", a.sizes, o.sizes, sizeCells(a.sizes, o.sizes)))
		}
	}
	echo := echoTimes(t, s.far, 200, nil)
	t.Logf("echo: p50 %v, p99 %v", quantileOf2(echo, 0.5), quantileOf2(echo, 0.99))
	if got := quantileOf2(echo, 0.99); got > mostAlone {
		t.Errorf("an echo alone takes %v", got)
	}
}

// listEndings states how connections end, by who ends them. Telegram's clients send no close_notify.
func (s *shapeStage) listEndings(t *testing.T, front int) {
	f := s.fronts[front]
	for _, who := range []ender{serverEnds, clientEnds} {
		if who == serverEnds && f.proto == "h2" {
			continue
		}
		theirs := collect(t, 10, 1, func(ctx context.Context, _ int) (download, error) {
			return f.visit(ctx, "4k", who)
		})
		ours := collect(t, 10, 1, func(ctx context.Context, _ int) (download, error) {
			return visitProxy(ctx, s.like[front].addr, 4096, who)
		})
		t.Logf("the server ends: %v; front %s; ours %s", who == serverEnds, endsOf(theirs), endsOf(ours))
	}
}

func endsOf(all []download) string {
	counts := map[string]int{}
	for _, d := range all {
		counts[fmt.Sprintf("%s, alert %v", d.end, d.alert)]++
	}
	return fmt.Sprint(counts)
}
