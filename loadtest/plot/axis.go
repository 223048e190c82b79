package plot

import (
	"fmt"
	"math"
	"strconv"
)

// axis maps values to places from 0 to 1.
type axis struct {
	at    func(v float64) float64
	ticks []tick
}

type tick struct {
	at    float64
	label string
}

// linear is an axis from 0 that holds top, with a tick at every round number of about count.
func linear(top float64, count int, label func(v float64) string) axis {
	step := roundStep(top / float64(count))
	n := max(1, int(math.Ceil(top/step)))
	end := step * float64(n)
	a := axis{at: func(v float64) float64 { return v / end }}
	for i := range n + 1 {
		v := step * float64(i)
		a.ticks = append(a.ticks, tick{a.at(v), label(v)})
	}
	return a
}

// roundStep is the least of 1, 2, 5, 10, 20, … (or 0.5, 0.2, …) that is not below v.
func roundStep(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic is an axis from low to high, both widened to ends of the kind 1, 2 or 5 times a power of ten.
func logarithmic(low, high float64, label func(v float64) string) axis {
	ends := []float64{roundBelow(low)}
	for ends[len(ends)-1] < high || len(ends) == 1 {
		ends = append(ends, roundStep(ends[len(ends)-1]*1.5))
	}
	first, last := math.Log(ends[0]), math.Log(ends[len(ends)-1])
	a := axis{at: func(v float64) float64 { return (math.Log(v) - first) / (last - first) }}
	for _, v := range ends {
		a.ticks = append(a.ticks, tick{a.at(v), label(v)})
	}
	return a
}

func roundBelow(v float64) float64 {
	step := roundStep(v)
	for step > v {
		step = roundStep(step / 2.6)
	}
	return step
}

// tail is an axis of percentiles in which each nine more takes as much room as the one before: 90, 99, 99.9 are 1, 2 and 3
// of log10(1/(1-p)).
func tail(highest float64) axis {
	nines := max(1, outage(highest))
	a := axis{at: func(p float64) float64 { return outage(p) / nines }}
	for _, p := range []float64{50, 90, 99, 99.9, 99.99, 99.999} {
		if p <= highest {
			a.ticks = append(a.ticks, tick{a.at(p), plain(p) + " %"})
		}
	}
	return a
}

func outage(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// thousands writes a whole number with commas.
func thousands(v float64) string {
	s := strconv.FormatInt(int64(math.Round(v)), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// inBytes writes a number of bytes.
func inBytes(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1<<20:
		return fmt.Sprintf("%.3g MiB", v/(1<<20))
	case size >= 1<<10:
		return fmt.Sprintf("%.3g KiB", v/(1<<10))
	}
	return fmt.Sprintf("%.0f B", v)
}
