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

// batch is how many downloads of a size are made.
type batch struct {
	name  string
	times int
}

// batches gives a thousand records and, where the downloads have several, a thousand gaps. Responses of nginx are fewest.
var batches = []batch{{"4k", 340}, {"64k", 260}, {"1m", 17}, {"20m", 2}}

func TestShapeOfDownloads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // nobody here may wait for somebody else's goroutine
	s := shapeFiles(t)
	fronts := []shapeFront{nginxFront(t, s, "http/1.1"), goFilesFront(t, s, "http/1.1"), streamFront(t, s, "http/1.1")}
	if os.Getenv(longShapes) != "" {
		fronts = append(fronts, nginxFront(t, s, "h2"), goFilesFront(t, s, "h2"), streamFront(t, s, "h2"))
	} else {
		t.Logf("SHORT: fronts by HTTP/2 are not compared; %s=1 does", longShapes)
	}
	if only := os.Getenv("INTEROP_SHAPE_FRONT"); only != "" {
		fronts = slices.DeleteFunc(fronts, func(f shapeFront) bool { return !strings.Contains(f.name, only) })
	}
	for _, f := range fronts {
		t.Run(f.name, func(t *testing.T) {
			p := startShaped(t, f.addr, faithful("/4k", "/64k", "/1m", "/20m"))
			p.learned(t, raidRepeats)
			for _, path := range []string{"no path", "path"} {
				frontAddr, proxyAddr := f.addr, p.addr
				if path == "path" {
					frontAddr, proxyAddr = lengthen(t, f.addr), lengthen(t, p.addr)
				}
				for _, c := range batches {
					t.Run(path+"/"+c.name, func(t *testing.T) { compare(t, f, frontAddr, proxyAddr, c, path == "path") })
				}
			}
		})
	}
}

// compare judges downloads of one size.
func compare(t *testing.T, f shapeFront, frontAddr, proxyAddr string, c batch, path bool) {
	atOnce := f.atOnce
	if path {
		atOnce = max(atOnce, min(24, c.times/12))
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
	if failed {
		t.Logf("front: %v", brief(first[0]))
		t.Logf("front: %v", brief(first[1]))
		t.Logf("ours:  %v", brief(ours[0]))
		t.Logf("ours:  %v", brief(ours[1]))
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
