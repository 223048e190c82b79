package doppel

import (
	"slices"
	"time"
)

// A gap is the server's only when nothing else explains it. Three other causes are known here:
//
//   - Schedulers and queues: gaps under MinGap.
//   - A congestion window that is still growing: a record came late by no more than a round trip, and together with what had come
//     since the last gap it would not have fitted into the window, which begins with ten segments and doubles with every
//     such gap. A server that makes pauses waits behind less than that.
//   - A link that is full: records come at one rate, all the time, and at one that links have. Pauses of servers vary.

// Numbers of the congestion control that servers have (RFC 6928).
const initialWindow = 10 * 1460

// Numbers of our choosing.
const (
	largestWindow = 4 << 20 // a fast server's window no longer grows then, or the path is full

	linkWindow  = 8       // records over which a rate is measured: enough for a forwarder's timer to even out
	linkWindows = 4       // fewer say nothing
	linkSpread  = 1.3     // of the rates, from the tenth to the ninetieth percentile; log-normal pauses give 2 and more
	slowestLink = 2 << 20 // bytes/s; what is slower and steady is a server that limits its rate
)

// withoutPath sets to 0 the gaps that the server did not make.
func (r *response) withoutPath(rtt time.Duration) {
	if limit := r.linkGap(); limit > 0 {
		r.dropGaps(func(i int) bool { return r.gaps[i] <= limit })
	}
	r.dropGaps(func(i int) bool { return r.gaps[i] < MinGap })
	if rtt >= MinGap {
		r.dropGaps(slowStart(r, rtt))
	}
}

func (r *response) dropGaps(explained func(i int) bool) {
	for i, gap := range r.gaps {
		if gap > 0 && explained(i) {
			r.gaps[i] = 0
		}
	}
}

// slowStart returns what tells, asked about the gaps in order, which of them waited for the window.
func slowStart(r *response, rtt time.Duration) func(i int) bool {
	window, flight, counted := initialWindow, 0, 0
	return func(i int) bool {
		for flight = 0; counted < i; counted++ {
			flight += r.sizes[counted]
		}
		for window < flight {
			window *= 2 // it must have been
		}
		if window > largestWindow || flight+r.sizes[i] <= window || r.gaps[i] > rtt+rtt/4+MinGap {
			return false
		}
		window *= 2
		return true
	}
}

// linkGap is up to how long a gap is the link's, or 0 when the link was not full.
func (r *response) linkGap() time.Duration {
	var spans []float64 // seconds per byte
	var longest time.Duration
	for i := linkWindow; i+linkWindow <= len(r.sizes)-1; i += linkWindow { // without the beginning and the rest
		var bytes int
		var span time.Duration
		for k := i; k < i+linkWindow; k++ {
			bytes += r.sizes[k]
			span += r.gaps[k]
		}
		longest = max(longest, span)
		spans = append(spans, span.Seconds()/float64(bytes))
	}
	if len(spans) < linkWindows {
		return 0
	}
	slices.Sort(spans)
	low, high := spans[len(spans)/10], spans[len(spans)-1-len(spans)/10]
	if low == 0 || high > linkSpread*low || high*slowestLink > 1 {
		return 0
	}
	return longest
}
