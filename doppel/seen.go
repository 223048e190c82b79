package doppel

import "time"

// Seen returns what a model is learned from: the payload of each record, and, one fewer per burst, the gap before each
// but the first. Gaps that are too short to be paced, or that the path explains, are 0.
func (t *Trace) Seen() (sizes []int, gaps []time.Duration) {
	for _, r := range t.observe() {
		sizes = append(sizes, r.sizes...)
		gaps = append(gaps, r.gaps[1:]...)
	}
	return sizes, gaps
}
