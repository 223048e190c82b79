package doppel

import (
	"math"
	"slices"
)

// A distribution of positive numbers, by the formulas of any textbook.
type distribution interface {
	cdf(x float64) float64
	quantile(p float64) float64 // 0 < p < 1
}

// logNormal: the logarithms have mean mu and standard deviation sigma > 0.
type logNormal struct{ mu, sigma float64 }

func (d logNormal) cdf(x float64) float64 {
	return math.Erfc((d.mu-math.Log(x))/(d.sigma*math.Sqrt2)) / 2
}

func (d logNormal) quantile(p float64) float64 {
	return math.Exp(d.mu + d.sigma*math.Sqrt2*math.Erfinv(2*p-1))
}

// weibull: 1 − exp(−(x/scale)^shape).
type weibull struct{ shape, scale float64 }

func (d weibull) cdf(x float64) float64 { return -math.Expm1(-math.Pow(x/d.scale, d.shape)) }

func (d weibull) quantile(p float64) float64 {
	return d.scale * math.Pow(-math.Log1p(-p), 1/d.shape)
}

// fitLogNormal returns the one of maximum likelihood. ok is false when there is none, since the values are all alike,
// or fewer than two. The values must be positive and finite.
func fitLogNormal(xs []float64) (d logNormal, ok bool) {
	var squares float64
	for _, x := range xs {
		d.mu += math.Log(x) / float64(len(xs))
	}
	for _, x := range xs {
		squares += (math.Log(x) - d.mu) * (math.Log(x) - d.mu)
	}
	d.sigma = math.Sqrt(squares / float64(len(xs)))
	return d, d.sigma > minSpread // false for NaN too
}

const (
	// minSpread of logarithms: below, all values are alike but for rounding.
	minSpread = 1e-9

	// The range in which a Weibull's shape is looked for. Gaps have 0.3 to 5; at 1,000 the values differ by a tenth of a percent.
	minShape, maxShape = 1e-2, 1e3
)

// fitWeibull is fitLogNormal for the Weibull distribution. The shape k of maximum likelihood is where
// Σ xᵏ ln x / Σ xᵏ − 1/k equals the mean of ln x. The left side grows with k, so that halving finds it whatever the values,
// which Newton's method does not. Logarithms are taken relative to the largest, so that no power overflows.
func fitWeibull(xs []float64) (d weibull, ok bool) {
	if len(xs) < 2 {
		return d, false
	}
	largest := math.Log(slices.Max(xs))
	logs := make([]float64, len(xs))
	var mean float64
	for i, x := range xs {
		logs[i] = math.Log(x) - largest
		mean += logs[i] / float64(len(xs))
	}
	if mean > -minSpread {
		return d, false
	}
	low, high := math.Log(minShape), math.Log(maxShape)
	for range 50 {
		k := math.Exp((low + high) / 2)
		if powers, weighted := powerSums(logs, k); weighted/powers-1/k < mean {
			low = (low + high) / 2
		} else {
			high = (low + high) / 2
		}
	}
	d.shape = math.Exp(low)
	powers, _ := powerSums(logs, d.shape)
	d.scale = math.Exp(largest + math.Log(powers/float64(len(xs)))/d.shape)
	return d, d.shape > 2*minShape && d.shape < maxShape/2
}

// powerSums returns Σ xᵏ and Σ xᵏ ln x.
func powerSums(logs []float64, k float64) (powers, weighted float64) {
	for _, l := range logs {
		p := math.Exp(k * l)
		powers += p
		weighted += p * l
	}
	return powers, weighted
}

// distance is the Kolmogorov-Smirnov statistic between sorted values and a distribution.
func distance(sorted []float64, d distribution) (ks float64) {
	n := float64(len(sorted))
	for i, x := range sorted {
		f := d.cdf(x)
		ks = max(ks, f-float64(i)/n, float64(i+1)/n-f)
	}
	return ks
}

// apart is the Kolmogorov-Smirnov statistic between two sorted samples, neither of them empty.
func apart[T int | float64](a, b []T) (ks float64) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x := min(a[i], b[j])
		for i < len(a) && a[i] == x {
			i++
		}
		for j < len(b) && b[j] == x {
			j++
		}
		ks = max(ks, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return ks
}
