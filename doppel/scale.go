package doppel

import "time"

// Numbers of our choosing.
const (
	// lateness is what a gap takes beyond its length: a timer's tick and a turn of the loop.
	lateness = 250 * time.Microsecond

	// headroom is left for what sending itself takes.
	headroom = 1.15

	scaleSteps = 24 // of halving
)

// Scaled returns a model whose gaps are shortened so that a burst takes no longer than at minRate bytes/s, in its start
// as well as behind it; m itself when that is so already, or when minRate is 0. Gaps that come out under MinGap are left out.
func (m *Model) Scaled(minRate int) *Model {
	if minRate <= 0 {
		return m
	}
	var starts []step
	for _, s := range m.starts {
		starts = append(starts, s.steps...)
	}
	inStart := scaleFor(starts, &m.startGaps, minRate)
	inSteady := scaleFor(m.steady, &m.steadyGaps, minRate)
	if inStart == 1 && inSteady == 1 {
		return m
	}
	scaled := *m
	scaled.tailWaited = 0 // it would be the slowest part of a short response
	scaled.startGaps.scale(inStart)
	scaled.steadyGaps.scale(inSteady)
	return &scaled
}

// scaleFor returns the largest factor up to 1 with which the steps pass at the rate.
func scaleFor(steps []step, t *gapTable, minRate int) float64 {
	bytes, gaps := 0, 0
	for _, s := range steps {
		bytes += s.size()
		if s.waited() {
			gaps++
		}
	}
	if gaps == 0 {
		return 1
	}
	allowed := float64(bytes) / float64(minRate) / headroom * float64(time.Second) / float64(gaps) // per gap
	if t.mean(1) <= allowed {
		return 1
	}
	low, high := 0.0, 1.0
	for range scaleSteps {
		if middle := (low + high) / 2; t.mean(middle) <= allowed {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// mean is the time that a gap of this table takes when scaled, in nanoseconds.
func (t *gapTable) mean(scale float64) (mean float64) {
	for i := range cells {
		gap := (float64(t[i]) + float64(t[i+1])) / 2 * scale
		if gap >= float64(MinGap) {
			mean += (gap + float64(lateness)) / cells
		}
	}
	return mean
}

func (t *gapTable) scale(factor float64) {
	for i := range t {
		t[i] = uint32(float64(t[i]) * factor)
	}
}
