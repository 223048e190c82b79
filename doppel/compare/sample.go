package compare

import (
	"time"

	"mtrelay/doppel"
)

// Sample is the downlink of some connections, as an observer saw it.
type Sample struct {
	Connections int
	Sizes       []int           // payloads of records, bytes
	Gaps        []time.Duration // between records of one response; what the path explains is 0
	Rate        float64         // bytes/s of the longest response; 0 when none was long enough to tell
}

// leastRated is how many records tell a rate.
const leastRated = 16

// NewSample takes the records behind the handshake from the traces.
func NewSample(traces []doppel.Trace) (s Sample) {
	s.Connections = len(traces)
	longest := leastRated - 1
	for i := range traces {
		sizes, gaps := traces[i].Seen()
		s.Sizes = append(s.Sizes, sizes...)
		s.Gaps = append(s.Gaps, gaps...)
		for _, b := range traces[i].Bursts {
			if len(b.Records) > longest {
				longest, s.Rate = len(b.Records), rate(b)
			}
		}
	}
	return s
}

// rate is that of a response from its first record to its last, so without the time that the server thought.
func rate(b doppel.Burst) float64 {
	took := b.Records[len(b.Records)-1].At - b.Records[0].At
	if took <= 0 {
		return 0
	}
	bytes := 0
	for _, r := range b.Records[1:] {
		bytes += r.Size
	}
	return float64(bytes) / took.Seconds()
}

// Distances are those of ours to theirs.
type Distances struct {
	Sizes     float64 `json:"sizes"`      // KS
	Gaps      float64 `json:"gaps"`       // Tolerant, by GapTolerance
	GapsPlain float64 `json:"gaps_plain"` // KS, which has a high floor
}

// Distance compares two samples.
func Distance(a, b Sample) Distances {
	return Distances{
		Sizes:     KS(a.Sizes, b.Sizes),
		Gaps:      Tolerant(a.Gaps, b.Gaps, GapTolerance),
		GapsPlain: KS(a.Gaps, b.Gaps),
	}
}
