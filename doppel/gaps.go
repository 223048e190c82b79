package doppel

import (
	"math"
	"slices"
	"time"
)

// Fit names the distribution that a model's gaps are drawn from.
type Fit string

const (
	FitNone      Fit = ""          // no gaps
	FitLogNormal Fit = "lognormal" // parameters: mean and standard deviation of the logarithm of nanoseconds
	FitWeibull   Fit = "weibull"   // parameters: shape, scale in nanoseconds
	FitEmpirical Fit = "empirical" // quantiles of what was seen
)

// GapQuality tells how the gaps of a part of the model were learned.
type GapQuality struct {
	Share      float64    `json:"share"` // of the records that a gap came before
	Count      int        `json:"count"` // gaps that were seen
	Fit        Fit        `json:"fit"`
	Parameters [2]float64 `json:"parameters"`
	KS         float64    `json:"ks"` // distance of the fit from what was seen
}

// Numbers of our choosing.
const (
	cells = 128 // of the table; it is off by less than one cell's probability anywhere

	// fewGaps cannot tell one distribution from another.
	fewGaps = 20

	// rareGaps: a smaller share of records with gaps is noise of the scout's machine. It cannot move the distribution by
	// more than itself, while learning it would cost most of the speed of a fast server: a gap takes as long as a hundred records.
	rareGaps = 0.05
)

// gapTable is the inverse of a distribution of gaps at multiples of 1/cells, in nanoseconds.
type gapTable [cells + 1]uint32

// draw returns the gap at u of 1<<32.
func (t *gapTable) draw(u uint32) time.Duration {
	cell, within := u/(1<<32/cells), uint64(u%(1<<32/cells))
	low, high := uint64(t[cell]), uint64(t[cell+1])
	return time.Duration(low + (high-low)*within/(1<<32/cells))
}

// learnGaps makes a table of observed gaps, all of them in MinGap..MaxGap and at least one.
//
// A fitted distribution is taken when the sample could well come from it, because it knows more than a small sample: with 50
// gaps the quantiles of the sample are off by 0.12 on average, those of the right family by 0.06. Otherwise the sample's
// own quantiles are the best that is known.
func learnGaps(gaps []time.Duration) (t gapTable, q GapQuality) {
	xs := make([]float64, len(gaps))
	for i, g := range gaps {
		xs[i] = float64(g)
	}
	slices.Sort(xs)
	d, q := choose(xs)
	for i := range t {
		p := float64(i) / cells
		x := sampleQuantile(xs, p)
		if d != nil && i > 0 && i < cells {
			x = d.quantile(p)
		}
		t[i] = uint32(min(max(x, xs[0]), xs[len(xs)-1]))
	}
	return t, q
}

// choose returns the nearest distribution, or nil when none is near.
func choose(sorted []float64) (best distribution, q GapQuality) {
	q = GapQuality{Count: len(sorted), Fit: FitEmpirical}
	if len(sorted) < fewGaps {
		return nil, q
	}
	// What KS stays below in 19 of 20 samples of a fitted family (Lilliefors), and what nobody would see.
	q.KS = 0.886/math.Sqrt(float64(len(sorted))) + 0.005
	if d, ok := fitLogNormal(sorted); ok {
		if ks := distance(sorted, d); ks < q.KS {
			best, q.Fit, q.KS, q.Parameters = d, FitLogNormal, ks, [2]float64{d.mu, d.sigma}
		}
	}
	if d, ok := fitWeibull(sorted); ok {
		if ks := distance(sorted, d); ks < q.KS {
			best, q.Fit, q.KS, q.Parameters = d, FitWeibull, ks, [2]float64{d.shape, d.scale}
		}
	}
	if best == nil {
		q.KS = 0
	}
	return best, q
}

// sampleQuantile interpolates between the values of a sorted sample.
func sampleQuantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (sorted[i+1]-sorted[i])*(at-float64(i))
}
