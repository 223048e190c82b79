package doppel

import (
	"math"
	"slices"
	"time"
)

// Numbers of our choosing.
const (
	// maxTail is the longest last record that is taken for a constant of the server rather than the rest of a page.
	maxTail = 64

	// Windows of records are told apart by their Kolmogorov-Smirnov distance: it must be more than chance (once in fifty pairs of
	// samples) and more than anybody would mind.
	chance, minApart = 1.5, 0.1

	// usualTailFrom is assumed when no response was without: two of net/http's buffers, the first with the header, the other full.
	usualTailFrom = 8 << 10

	// leastBulk is how long a response must have become to tell of a download's records: those of an empty page, or of what
	// HTTP/2 says beside it, would be repeated for megabytes. Nobody knows how such a site sends a file; most send full records.
	leastBulk = 4 << 10

	fewRecords    = 16 // are no sample
	greetingLen   = 8  // first records of a burst by which it is told whether it is a greeting
	leastGreeting = 5  // records of one: SETTINGS, WINDOW_UPDATE, acknowledgement, header, and what follows
	blockLen      = 64 // of records that stay together when only a part is kept
)

// Learn makes a model of what was observed; nil when there was no record.
func Learn(traces []Trace, drs DRS) *Model {
	l := learner{seen: observe(traces)}
	if len(l.seen) == 0 {
		return nil
	}
	m := &l.model
	m.drs = drs
	for _, c := range l.seen {
		m.quality.Connections++
		l.all = append(l.all, c...)
	}
	l.learnTail()
	l.learnGrowth()
	l.learnLength()
	l.learnStarts()
	l.learnSteady()
	l.learnGaps()
	l.report()
	return m
}

type learner struct {
	seen  []connection
	all   []*response
	model Model

	small  bool            // records grow, in an unknown way
	greets int             // records by which the first burst of a connection is like no other
	length int             // records of a burst's start
	later  []time.Duration // gaps behind starts, zeros included
	early  []time.Duration // gaps in starts
}

// learnTail looks for a small last record that responses share, all of them or those from some length on: net/http ends a chunked
// body in a record of its own when the rest of the body did not wait in its buffer.
func (l *learner) learnTail() {
	size := l.commonEnd()
	if size == 0 {
		return
	}
	var with, without []int // lengths of responses
	gaps := 0
	for _, r := range l.all {
		if r.cut {
			continue
		}
		n := len(r.sizes)
		if n < 2 || r.sizes[n-1] != size {
			without = append(without, r.bytes())
			continue
		}
		with = append(with, r.bytes())
		if r.gaps[n-1] > 0 {
			gaps++
		}
	}
	from, wrong := separate(with, without)
	if len(with) < 2 || wrong*5 > len(with)+len(without) {
		return
	}
	if len(without) == 0 {
		from = min(from, usualTailFrom)
	}
	if len(without) == 0 && gaps*2 > len(with) {
		from = 0 // the server waited when all else was sent, so it does with less
	}
	for _, r := range l.all {
		n := len(r.sizes)
		r.tail = n > 1 && r.sizes[n-1] == size && !r.cut
	}
	m := &l.model
	m.tail, m.tailFrom, m.tailWaited = uint16(size), uint32(min(from, math.MaxInt32)), uint32(gaps<<16/len(with))
	if float64(gaps) < rareGaps*float64(len(with)) {
		m.tailWaited = 0
	}
}

// commonEnd is the most common size of small last records, 0 when there are none.
func (l *learner) commonEnd() (best int) {
	var counts [maxTail + 1]int
	for _, r := range l.all {
		if n := len(r.sizes); n > 1 && r.sizes[n-1] <= maxTail && !r.cut {
			counts[r.sizes[n-1]]++
		}
	}
	for size, n := range counts {
		if n > counts[best] {
			best = size
		}
	}
	return best
}

// separate returns the length from which on responses are most clearly with and not without, and how many are on the wrong side.
func separate(with, without []int) (from, wrong int) {
	wrong = math.MaxInt
	slices.Sort(with)
	slices.Sort(without)
	for i, length := range with {
		shorter, _ := slices.BinarySearch(without, length)
		if n := i + len(without) - shorter; n < wrong {
			from, wrong = length, n
		}
	}
	return from, wrong
}

// learnGrowth finds out how record sizes grow and when that begins anew, and so the offset of each response.
func (l *learner) learnGrowth() {
	m := &l.model
	l.small = beginsSmall(l.seen)
	m.quality.GrowsLikeGo = growsLikeGo(l.seen)
	if m.quality.GrowsLikeGo && m.drs == DRSAuto {
		m.drs = DRSOn
	}
	if m.drs != DRSOff {
		m.resetAfter = learnReset(l.seen)
	}
	for _, c := range l.seen {
		sent, records := 0, 0
		for _, r := range c {
			if m.resetAfter > 0 && r.idle >= m.resetAfter {
				sent, records = 0, 0
			}
			r.offset, r.before = sent, records
			records += len(r.sizes)
			for _, size := range r.sizes {
				sent += size
			}
		}
	}
	l.small = l.small && !m.quality.GrowsLikeGo
	for _, r := range l.all {
		if m.quality.GrowsLikeGo {
			r.undoGrowth()
		}
		if !l.small {
			r.offset = 0 // bursts are alike, wherever on their connection
		}
	}
	markEnds(l.all)
	l.learnGreeting()
}

// learnGreeting tells first bursts of connections apart, if they differ from those that would be like them otherwise.
func (l *learner) learnGreeting() {
	var first, others [greetingLen][]int // sizes, by the record's place
	for _, c := range l.seen {
		for i, r := range c {
			for k, size := range r.sizes[:min(r.whole(), greetingLen)] {
				if i == 0 {
					first[k] = append(first[k], size)
				} else if r.offset == 0 {
					others[k] = append(others[k], size)
				}
			}
		}
	}
	for k := range first {
		slices.Sort(first[k])
		slices.Sort(others[k])
		if len(others[k]) > 0 && unlike(first[k], others[k]) {
			l.greets = max(k+1, leastGreeting)
		}
	}
	for _, c := range l.seen {
		if l.greets > 0 {
			c[0].offset = greeting
		}
	}
}

// unlike reports whether two sorted samples have hardly anything in common. Less may come from what was fetched first.
// Three connections with three bursts each are enough to tell when they have nothing in common.
func unlike(a, b []int) bool {
	d, n, k := apart(a, b), float64(len(a)), float64(len(b))
	return d > 0.5 && d*d*n*k/(n+k) >= 2
}

// isFresh reports whether a burst is one of those that differ most from the steady state.
func (l *learner) isFresh(r *response) bool {
	return r.offset == greeting || r.offset == 0 && (l.small || l.greets == 0)
}

// learnLength finds how many records of a burst differ from later ones, in ever wider windows.
func (l *learner) learnLength() {
	l.length = max(1, l.greets) // the first carries the response's header
	for low, high := 1, 2; high <= maxStartLen; low, high = high, 2*high {
		fresh, again := l.between(low, high, true), l.between(low, high, false)
		rest := l.between(high, 1<<30, true)
		rest.add(l.between(high, 1<<30, false))
		if fresh.differs(rest) || again.differs(rest) || l.small && len(rest.sizes) < fewRecords && len(fresh.sizes) > 0 {
			l.length = high
		}
	}
}

// sample is records from one part of responses.
type sample struct{ sizes, gaps []int }

func (s *sample) add(t sample) {
	s.sizes = append(s.sizes, t.sizes...)
	s.gaps = append(s.gaps, t.gaps...)
}

// between collects the records low..high of bursts on fresh connections, or on others.
func (l *learner) between(low, high int, fresh bool) (s sample) {
	for _, r := range l.all {
		if l.isFresh(r) != fresh {
			continue
		}
		for i := low; i < min(high, r.whole()); i++ {
			s.sizes = append(s.sizes, r.sizes[i])
			if i > 0 {
				s.gaps = append(s.gaps, int(r.gaps[i]))
			}
		}
	}
	slices.Sort(s.sizes)
	slices.Sort(s.gaps)
	return s
}

func (s sample) differs(rest sample) bool {
	return differs(s.sizes, rest.sizes) || differs(s.gaps, rest.gaps)
}

func differs(some, rest []int) bool {
	if len(some) == 0 || len(rest) < fewRecords {
		return false
	}
	slices.Sort(rest)
	return surelyApart(some, rest)
}

// surelyApart compares two sorted samples.
func surelyApart(a, b []int) bool {
	d := apart(a, b)
	n, k := float64(len(a)), float64(len(b))
	return d > minApart && d*d > chance*chance*(n+k)/(n*k)
}

// learnStarts keeps the starts of bursts, and what tells where in the steady state they lead, evenly chosen when there are
// too many.
func (l *learner) learnStarts() {
	m := &l.model
	for _, r := range l.all {
		if n := min(l.length+contextLen, maxStartLen, r.whole()); n > 0 && !(r.offset <= 0 && l.hidesGrowth()) {
			s := start{offset: r.offset, bytes: r.bytes(), steps: make([]step, n)}
			for i := range s.steps {
				s.steps[i] = r.step(i)
				if i > 0 {
					l.early = append(l.early, r.gaps[i])
				}
			}
			m.starts = append(m.starts, s)
		}
	}
	m.arrange()
	if keep := min(maxStarts, maxStartSteps/(l.length+contextLen)); len(m.starts) > keep {
		kept := make([]start, keep)
		for i := range kept {
			kept[i] = m.starts[i*len(m.starts)/keep]
		}
		m.starts = kept
		m.arrange()
	}
}

// hidesGrowth reports whether fresh starts are the small records that DRSOff does not want.
func (l *learner) hidesGrowth() bool { return l.model.drs == DRSOff && l.small }

// learnSteady keeps what comes behind the starts.
func (l *learner) learnSteady() {
	var steady []step
	for _, r := range l.all {
		for i := max(l.length, r.bulkFrom()); i < r.whole(); i++ {
			steady = append(steady, r.step(i))
			l.later = append(l.later, r.gaps[i])
		}
	}
	if len(steady) == 0 && !l.small {
		steady = l.anything()
	}
	l.model.steady = thin(steady)
}

// anything is all records that the server sized and that may be a download's.
func (l *learner) anything() (steps []step) {
	for _, r := range l.all {
		for i := r.bulkFrom(); i < r.whole(); i++ {
			steps = append(steps, r.step(i))
		}
	}
	return steps
}

// bulkFrom is the first record with which the response has leastBulk bytes.
func (r *response) bulkFrom() int {
	bytes := 0
	for i, n := range r.sizes {
		if bytes += n; bytes >= leastBulk {
			return i
		}
	}
	return len(r.sizes)
}

// thin keeps blocks of records, evenly chosen.
func thin(steps []step) []step {
	if len(steps) <= maxSteady {
		return slices.Clip(steps)
	}
	kept := make([]step, 0, maxSteady)
	const blocks = maxSteady / blockLen
	for i := range blocks {
		at := i * (len(steps) - blockLen) / (blocks - 1)
		kept = append(kept, steps[at:at+blockLen]...)
	}
	return kept
}

// learnGaps makes the tables of both parts. A part with few gaps uses those of the other too.
func (l *learner) learnGaps() {
	m := &l.model
	early, earlyShare := gapsOf(l.early)
	later, laterShare := gapsOf(l.later)
	both := slices.Concat(early, later)
	if len(early) < fewGaps {
		early = both
	}
	if len(later) < fewGaps {
		later = both
	}
	if earlyShare > 0 {
		m.startGaps, m.quality.StartGaps = learnGaps(early)
	} else {
		for _, s := range m.starts {
			forget(s.steps)
		}
	}
	if laterShare > 0 || earlyShare > 0 {
		m.steadyGaps, m.quality.SteadyGaps = learnGaps(later)
	}
	if laterShare == 0 {
		forget(m.steady)
	}
	m.quality.StartGaps.Share, m.quality.SteadyGaps.Share = earlyShare, laterShare
	l.learnTailGap()
}

// learnTailGap: without a gap anywhere else there is none to draw for the tail.
func (l *learner) learnTailGap() {
	if l.model.steadyGaps[0] == 0 {
		l.model.tailWaited = 0
	}
}

// gapsOf returns the gaps that are not zero, and their share, which is 0 when it is not worth learning.
func gapsOf(all []time.Duration) (gaps []time.Duration, share float64) {
	for _, g := range all {
		if g > 0 {
			gaps = append(gaps, g)
		}
	}
	if len(all) > 0 {
		share = float64(len(gaps)) / float64(len(all))
	}
	if share < rareGaps {
		return nil, 0
	}
	return gaps, share
}

func forget(steps []step) {
	for i := range steps {
		steps[i] &^= waited
	}
}

func (l *learner) report() {
	q := &l.model.quality
	q.Bursts = len(l.all)
	for _, r := range l.all {
		q.Records += len(r.sizes)
	}
	q.StartLen, q.Starts, q.Steady = l.length, len(l.model.starts), len(l.model.steady)
	q.ResetAfter, q.Tail, q.TailFrom = l.model.resetAfter, int(l.model.tail), int(l.model.tailFrom)
}
