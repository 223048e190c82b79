package loadtest

import (
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latency is a distribution of durations, to three digits and some 64 ns. Safe for concurrent use.
type latency struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram // ns
}

// What a latency can tell apart; what is longer counts as the longest.
const (
	leastLatency = 100 * time.Nanosecond
	mostLatency  = 2 * time.Minute
)

func newLatency() *latency {
	return &latency{h: hdrhistogram.New(int64(leastLatency), int64(mostLatency), 3)}
}

func (l *latency) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.RecordValue(int64(min(max(d, 0), mostLatency))) // no error: it is in range
}

func (l *latency) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.h.TotalCount()
}

// ms returns the percentile p, 0 to 100, in milliseconds: the least value that so many percent do not exceed. The histogram
// itself would round the rank to the nearest, which of 99 values takes the second highest for the 99th percentile.
func (l *latency) ms(p float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := float64(l.h.TotalCount())
	if n == 0 {
		return 0
	}
	rank := max(1, math.Ceil(p/100*n-1e-9))
	return float64(l.h.ValueAtPercentile(100*rank/n)) / 1e6
}

// reported are the percentiles that tables show.
var reported = []float64{1, 10, 25, 50, 75, 90, 95, 99, 99.9, 100}

func (l *latency) percentiles() (list []Percentile) {
	for _, p := range reported {
		list = append(list, Percentile{p, l.ms(p)})
	}
	return list
}
