package doppel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// draws are values at random from a distribution.
func draws(d distribution, n int, rnd *rand.Rand) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = d.quantile((float64(i) + rnd.Float64()) / float64(n))
	}
	return xs
}

func TestFitKnownParameters(t *testing.T) {
	rnd := newRand(1)
	near := func(got, want float64) bool { return math.Abs(got-want) <= 0.02*math.Abs(want)+0.001 }
	for _, want := range []logNormal{{0, 1}, {16, 0.5}, {-3, 2}, {18, 0.01}} {
		if got, ok := fitLogNormal(draws(want, 5000, rnd)); !ok || !near(got.mu, want.mu) || !near(got.sigma, want.sigma) {
			t.Errorf("fitted %+v (%v), want %+v", got, ok, want)
		}
	}
	for _, want := range []weibull{{1, 1}, {0.5, 3e6}, {2, 1e7}, {5, 1e-3}, {0.2, 1e9}, {40, 2e7}} {
		if got, ok := fitWeibull(draws(want, 5000, rnd)); !ok || !near(got.shape, want.shape) || !near(got.scale, want.scale) {
			t.Errorf("fitted %+v (%v), want %+v", got, ok, want)
		}
	}
}

func TestQuantileInvertsCDF(t *testing.T) {
	for _, d := range []distribution{logNormal{16, 0.6}, weibull{0.7, 1e7}, weibull{3, 1}} {
		for p := 0.01; p < 1; p += 0.01 {
			if got := d.cdf(d.quantile(p)); math.Abs(got-p) > 1e-9 {
				t.Errorf("%#v: the quantile at %v is at %v", d, p, got)
			}
		}
	}
}

func TestFitDegenerate(t *testing.T) {
	for _, c := range []struct {
		name string
		xs   []float64
		ok   bool
	}{
		{"none", nil, false},
		{"one", []float64{5}, false},
		{"equal", []float64{7e6, 7e6, 7e6, 7e6}, false},
		{"two", []float64{1e6, 2e6}, true},
		{"smallest and largest", []float64{math.SmallestNonzeroFloat64, math.MaxFloat64}, true},
		{"outlier", []float64{1e6, 1.1e6, 1.2e6, 1e18}, true},
	} {
		l, ok := fitLogNormal(c.xs)
		if ok != c.ok {
			t.Errorf("%s: log-normal %+v, %v, want %v", c.name, l, ok, c.ok)
		}
		if w, ok := fitWeibull(c.xs); ok && (!finite(w.shape) || !finite(w.scale)) || ok && !c.ok {
			t.Errorf("%s: weibull %+v, %v", c.name, w, ok)
		}
		if ok && (!finite(l.mu) || !finite(l.sigma)) {
			t.Errorf("%s: log-normal %+v", c.name, l)
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func TestApart(t *testing.T) {
	for _, c := range []struct {
		a, b []int
		want float64
	}{
		{[]int{1, 2, 3}, []int{1, 2, 3}, 0},
		{[]int{1, 1, 1}, []int{1}, 0},
		{[]int{1, 2}, []int{3, 4}, 1},
		{[]int{1, 2, 3, 4}, []int{1, 2, 5, 6}, 0.5},
		{[]int{1, 1, 1, 5}, []int{1, 5, 5, 5}, 0.5},
	} {
		if got := apart(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
		if got := apart(c.b, c.a); got != c.want {
			t.Errorf("%v and %v: %v, want %v", c.b, c.a, got, c.want)
		}
	}
}

func TestLearnGapsChooses(t *testing.T) {
	rnd := newRand(3)
	mixed := append(draws(logNormal{math.Log(2e6), 0.05}, 300, rnd), draws(logNormal{math.Log(60e6), 0.05}, 300, rnd)...)
	for _, c := range []struct {
		name string
		xs   []float64
		want Fit
	}{
		{"log-normal", draws(logNormal{math.Log(9e6), 0.5}, 500, rnd), FitLogNormal},
		{"weibull", draws(weibull{3, 40e6}, 500, rnd), FitWeibull},
		{"two kinds of pauses", mixed, FitEmpirical},
		{"equal", slices.Repeat([]float64{5e6}, 100), FitEmpirical},
		{"few", draws(logNormal{math.Log(9e6), 0.5}, fewGaps-1, rnd), FitEmpirical},
	} {
		table, q := learnGaps(durations(c.xs))
		if q.Fit != c.want {
			t.Errorf("%s: %+v, want %s", c.name, q, c.want)
		}
		if !slices.IsSorted(table[:]) || float64(table[0]) < slices.Min(c.xs)-1 || float64(table[cells]) > slices.Max(c.xs) {
			t.Errorf("%s: the table is not in order, or goes beyond what was seen: %v", c.name, table)
		}
		var drawn []float64
		for u := range uint32(10_000) {
			drawn = append(drawn, float64(table.draw(u*(1<<32/10_000))))
		}
		slices.Sort(c.xs)
		if d := apart(c.xs, drawn); d > 0.06 && c.want != FitEmpirical || d > 0.02 && len(c.xs) > 100 {
			t.Errorf("%s: what is drawn is %.3f from what was seen", c.name, d)
		}
	}
}

func durations(xs []float64) (ds []time.Duration) {
	for _, x := range xs {
		ds = append(ds, time.Duration(x))
	}
	return ds
}
