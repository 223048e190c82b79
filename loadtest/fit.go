package loadtest

import (
	"errors"
	"math"
)

// errFit: the measurements do not determine the coefficients, as when all have the same number of connections.
var errFit = errors.New("too few measurements, or too alike, for a fit")

// leastSquares returns the coefficients c for which the sum of (y[i] - Σ c[j]·x[i][j])² is least. All x[i] have the same
// length.
func leastSquares(x [][]float64, y []float64) ([]float64, error) {
	if len(x) == 0 || len(x) < len(x[0]) {
		return nil, errFit
	}
	n := len(x[0])
	scale := columnScales(x)
	a := make([][]float64, n) // the normal equations, the right side last
	for j := range a {
		a[j] = make([]float64, n+1)
		for i, row := range x {
			for k := range n {
				a[j][k] += row[j] / scale[j] * row[k] / scale[k]
			}
			a[j][n] += row[j] / scale[j] * y[i]
		}
	}
	c, err := solve(a)
	for j := range c {
		c[j] /= scale[j]
	}
	return c, err
}

// columnScales makes connections by the thousand and a constant of 1 alike, so that a pivot of 1e-9 means dependence.
func columnScales(x [][]float64) []float64 {
	scale := make([]float64, len(x[0]))
	for _, row := range x {
		for j, v := range row {
			scale[j] = max(scale[j], math.Abs(v))
		}
	}
	for j, s := range scale {
		if s == 0 {
			scale[j] = 1
		}
	}
	return scale
}

// solve is Gauss's elimination; it overwrites a, whose last column is the right side.
func solve(a [][]float64) ([]float64, error) {
	n := len(a)
	for j := range n {
		best := j
		for i := j + 1; i < n; i++ {
			if math.Abs(a[i][j]) > math.Abs(a[best][j]) {
				best = i
			}
		}
		a[j], a[best] = a[best], a[j]
		if math.Abs(a[j][j]) < 1e-9 {
			return nil, errFit
		}
		for i := range n {
			if i == j {
				continue
			}
			f := a[i][j] / a[j][j]
			for k := j; k <= n; k++ {
				a[i][k] -= f * a[j][k]
			}
		}
	}
	c := make([]float64, n)
	for j := range c {
		c[j] = a[j][n] / a[j][j]
	}
	return c, nil
}

// line returns the straight line through points by least squares.
func line(x, y []float64) (base, slope float64, err error) {
	rows := make([][]float64, len(x))
	for i, v := range x {
		rows[i] = []float64{1, v}
	}
	c, err := leastSquares(rows, y)
	if err != nil {
		return 0, 0, err
	}
	return c[0], c[1], nil
}

// worst returns the largest part by which any y[i] is off the fit.
func worst(c []float64, x [][]float64, y []float64) (part float64) {
	for i, row := range x {
		fitted := 0.0
		for j, v := range row {
			fitted += c[j] * v
		}
		part = max(part, math.Abs(fitted-y[i])/math.Abs(y[i]))
	}
	return part
}
