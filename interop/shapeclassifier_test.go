package interop

import (
	"cmp"
	"context"
	"math"
	mrand "math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Numbers of the classifier.
const (
	sessionsPerSide = 100
	neighbours      = 5
	folds           = 10
	mostAccuracy    = 0.65
)

// features are what an observer makes of one connection: the sizes of its records, the gaps between them, its end. The flight is left
// out: four encrypted records cannot be imitated. So is the time until the response begins, which is the server's own.
func (d *download) features() (f []float64) {
	sizes, gaps := d.sizes(), d.gaps()
	for i := range 12 {
		if i < len(sizes) {
			f = append(f, float64(sizes[i]))
		} else {
			f = append(f, 0)
		}
	}
	f = append(f, float64(len(sizes)), float64(d.asked))
	slices.Sort(sizes)
	for _, limit := range []int{64, 300, 1300, 4200, 8300, 12300, 16300, 16400, 16401} {
		f = append(f, share(sizes, limit))
	}
	slices.Sort(gaps)
	for _, p := range []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1} {
		f = append(f, logOf(quantileOf(gaps, p)))
	}
	for _, limit := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		f = append(f, share(gaps, int(limit)))
	}
	return append(f, logOf(int(d.late)), yes(d.alert), yes(d.end == string(endFIN)), yes(d.end == string(endRST)))
}

// logOf makes of times below the millisecond one: those are the machine's.
func logOf(ns int) float64 { return math.Log(math.Max(float64(ns), 1e6)) }

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func quantileOf(sorted []int, p float64) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1))]
}

// accuracy is how often a kNN classifier, cross-validated, tells the two sides apart; 0.5 is guessing.
func accuracy(a, b [][]float64) float64 {
	all := append(slices.Clone(a), b...)
	order := mrand.New(mrand.NewPCG(1, 2)).Perm(len(all))
	right := 0
	for fold := range folds {
		var train []int
		var tests []int
		for i, x := range order {
			if i%folds == fold {
				tests = append(tests, x)
			} else {
				train = append(train, x)
			}
		}
		mean, spread := scales(all, train)
		for _, x := range tests {
			slices.SortStableFunc(train, func(p, q int) int {
				return cmp.Compare(distance(all[x], all[p], mean, spread), distance(all[x], all[q], mean, spread))
			})
			votes := 0
			for _, n := range train[:neighbours] {
				if n < len(a) {
					votes++
				}
			}
			if (votes > neighbours/2) == (x < len(a)) {
				right++
			}
		}
		slices.Sort(train)
	}
	return float64(right) / float64(len(all))
}

func scales(all [][]float64, train []int) (mean, spread []float64) {
	mean, spread = make([]float64, len(all[0])), make([]float64, len(all[0]))
	for i := range mean {
		for _, x := range train {
			mean[i] += all[x][i] / float64(len(train))
		}
		for _, x := range train {
			spread[i] += (all[x][i] - mean[i]) * (all[x][i] - mean[i]) / float64(len(train))
		}
		spread[i] = math.Sqrt(spread[i])
	}
	return mean, spread
}

func distance(a, b, mean, spread []float64) (d float64) {
	for i := range a {
		if spread[i] > 0 {
			d += (a[i] - b[i]) * (a[i] - b[i]) / (spread[i] * spread[i])
		}
	}
	return d
}

// telltales names the features that tell the sides apart best by themselves, as the KS distance of each.
func telltales(t *testing.T, front, ours [][]float64) {
	for i := range front[0] {
		var f, o []int
		for k := range front {
			f = append(f, int(front[k][i]*1000))
		}
		for k := range ours {
			o = append(o, int(ours[k][i]*1000))
		}
		slices.Sort(f)
		slices.Sort(o)
		if d := ks(f, o); d > 0.2 {
			t.Logf("feature %d: KS %.2f, median %d and %d (of a thousandth)", i, d, quantileOf(f, 0.5), quantileOf(o, 0.5))
		}
	}
}

func featuresOf(all []download) (f [][]float64) {
	for _, d := range all {
		f = append(f, d.features())
	}
	return f
}

// classify has connections of three lengths, half of them ended by the server and half by the client.
func (s *shapeStage) classify(t *testing.T, front int) {
	f := s.fronts[front]
	names := []string{"4k", "64k", "1m"}
	for _, end := range []string{"both", "server", "client"} {
		if end != "both" && !s.long || end != "client" && f.proto == "h2" { // HTTP/2 knows no request to end a connection
			continue
		}
		t.Run("ended by "+end, func(t *testing.T) {
			who := func(i int) ender { return ender(end == "server" || end == "both" && i/2%2 == 0) }
			both := collect(t, 2*sessionsPerSide, f.atOnce, func(ctx context.Context, i int) (download, error) {
				return f.visit(ctx, names[i/2%3], who(i))
			})
			var first, second []download
			for i := range sessionsPerSide {
				first, second = append(first, both[2*i]), append(second, both[2*i+1])
			}
			ours := collect(t, sessionsPerSide, f.atOnce, func(ctx context.Context, k int) (download, error) {
				return visitProxy(ctx, s.like[front].addr, first[k].bytes, who(2*k))
			})
			a, b, o := featuresOf(first), featuresOf(second), featuresOf(ours)
			got := accuracy(a, o)
			t.Logf("accuracy %.3f (front itself %.3f)", got, accuracy(a, b))
			if got > mostAccuracy {
				t.Errorf("accuracy %.3f, more than %.2f", got, mostAccuracy)
			}
			telltales(t, a, o)
		})
	}
}
