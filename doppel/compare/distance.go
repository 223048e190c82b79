// Package compare says how far our traffic is from a front's: distances between two samples, plots of them, a grade for
// the front, and a sentence about what an observer could tell apart. It calculates and writes text; package rehearse
// takes the measurements.
package compare

import (
	"slices"
	"sort"
	"time"
)

// GapTolerance is by how much a gap may be off in either direction without counting. Two runs of one server differ by
// about that, through schedulers alone: between two of nginx the plain distance of gaps is 0.1 to 0.34.
const GapTolerance = time.Millisecond

type number interface{ ~int | ~int64 }

// KS is the Kolmogorov-Smirnov distance of two samples: the largest difference between their distribution functions,
// from 0 (equal) to 1. Samples need not be sorted. It is 0 when one of them is empty, which says nothing.
func KS[T number](a, b []T) float64 { return Tolerant(a, b, 0) }

// Tolerant is the smallest d with A(x−tolerance) − d <= B(x) <= A(x+tolerance) + d for every x, where A and B are the
// distribution functions of the two samples. It is symmetric, and KS when the tolerance is 0.
func Tolerant[T number](a, b []T, tolerance T) float64 {
	a, b = sorted(a), sorted(b)
	return max(excess(a, b, tolerance), excess(b, a, tolerance))
}

// excess is by how much the distribution function of a exceeds that of b, shifted by the tolerance, at most. It is
// largest where a's grows.
func excess[T number](a, b []T, tolerance T) (most float64) {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	for i, x := range a {
		most = max(most, float64(i+1)/float64(len(a))-cdf(b, x+tolerance))
	}
	return most
}

// cdf is the share of a sorted sample up to x.
func cdf[T number](sample []T, x T) float64 {
	n := sort.Search(len(sample), func(i int) bool { return sample[i] > x })
	return float64(n) / float64(len(sample))
}

func sorted[T number](sample []T) []T {
	sample = slices.Clone(sample)
	slices.Sort(sample)
	return sample
}
