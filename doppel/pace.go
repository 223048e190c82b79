package doppel

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"mtrelay/clock"
)

// Numbers of our choosing.
const (
	// quietAfter a record could have left and did not, there was nothing to send. Requests that a client sends ahead during a
	// download come sooner, and are no reason for a new burst.
	quietAfter = 10 * time.Millisecond

	// meanBlock is how many records of the steady state are replayed in one go on average: enough for what belongs together,
	// few enough for a download not to repeat a stretch of its model.
	meanBlock = 32

	jumpTries = 16

	aboutAsLong = 1.25 // times as far from a length as the nearest is
)

// Pacer shapes the downlink of one session. The zero value is a new connection. It may be given another Model at any time.
// Not safe for concurrent use.
type Pacer struct {
	due  clock.Time // of the next record
	sent clock.Time // when the last record left

	bytes   uint32 // payload that left since record sizes were last reset
	burst   uint32 // payload that left since the burst began
	records uint16 // like bytes

	size  uint16 // of the next record
	at    uint16 // the next record's index in its start
	block uint16 // the next record's index in the steady state
	start uint16 // index in the model's starts, or inSteady
	rest  uint16 // plain text of the current write, when the model limits records
	flags pacerFlags
}

const inSteady = math.MaxUint16

type pacerFlags uint16

const (
	drawn   pacerFlags = 1 << iota // size and due are those of the next record
	first                          // which is the first of a burst
	dry                            // there was nothing more to send behind the last record
	asked                          // the client spoke while there was nothing to send
	ending                         // NextOf left bytes for a tail
	last                           // NextOf saw no more bytes than the next record takes
	tail                           // the next record is a tail
	goesOn                         // the current write has more than rest
	greeted                        // a record left on this connection
	fitted                         // the start is that of a response of such a length
)

// is reports whether all of the flags are set.
func (p *Pacer) is(f pacerFlags) bool { return p.flags&f == f }

// Next returns how many bytes of payload the next record may carry, and the earliest instant at which it may leave, which is
// not after now when it begins a burst. Without Sent or Uplink in between it returns the same again, unless the downlink
// was empty for MaxGap. The size is in 18..16640, the instant at most MaxGap after the last Sent. m may be nil for Default.
func (p *Pacer) Next(m *Model, now clock.Time, rnd *rand.Rand) (size int, due clock.Time) {
	if m == nil {
		m = defaultModel
	}
	if p.beginsBurst(m, now) {
		p.begin(m, now, rnd)
	}
	return int(p.size), p.due
}

func (p *Pacer) beginsBurst(m *Model, now clock.Time) bool {
	if p.is(drawn | first) {
		return p.bytes > 0 && p.resets(m, now) // it waited for long
	}
	return !p.is(drawn) || p.is(asked) || now.Sub(p.lastChance()) > MaxGap
}

func (p *Pacer) resets(m *Model, now clock.Time) bool {
	return m.resetAfter > 0 && now.Sub(p.sent) >= m.resetAfter
}

// lastChance is the last instant at which there may have been something to send.
func (p *Pacer) lastChance() clock.Time {
	if p.is(dry) {
		return p.sent
	}
	return max(p.sent, p.due)
}

// begin draws the first record of a burst.
func (p *Pacer) begin(m *Model, now clock.Time, rnd *rand.Rand) {
	if p.resets(m, now) {
		p.bytes, p.records = 0, 0
	}
	p.flags = drawn | first | p.flags&greeted
	p.due = now
	p.at, p.rest, p.burst = 0, 0, 0
	p.block = uint16(below(uint32(len(m.steady)), rnd.Uint32()))
	p.start = m.pickStart(p.class(), 0, rnd.Uint32())
	p.draw(m, rnd)
}

// class is that of a burst which begins now.
func (p *Pacer) class() int {
	if !p.is(greeted) {
		return classOf(greeting)
	}
	return classOf(int(p.bytes))
}

// fit draws the first record of a burst again, now that its length is known: from a response of about that length, since
// a longer one has a longer header.
func (p *Pacer) fit(m *Model, left int, rnd *rand.Rand) {
	p.flags |= fitted
	if start := m.nearStart(p.class(), left, rnd); start != inSteady {
		p.start, p.at, p.rest = start, 0, 0
		p.flags &^= goesOn
		p.draw(m, rnd)
	}
}

// NextOf is Next for a caller who knows how many bytes are there to be sent. When they are the last, for now, the record leaves
// room for the model's tail, which comes next. It never leaves less than the smallest record of TLS, but takes it along.
func (p *Pacer) NextOf(m *Model, now clock.Time, left int, rnd *rand.Rand) (size int, due clock.Time) {
	if m == nil {
		m = defaultModel
	}
	p.flags &^= ending | last
	if p.is(tail) && left > int(p.size) { // it was not the end
		p.flags &^= tail
		due := p.due
		p.draw(m, rnd)
		p.due = due // it has waited already, and Next has said until when
	}
	size, due = p.Next(m, now, rnd)
	if p.is(first) && !p.is(fitted) {
		p.fit(m, left, rnd)
		size = int(p.size)
	}
	rest := max(int(m.tail), minSize)
	switch {
	case left >= size+rest:
		return size, due
	case m.tail > 0 && left >= minSize+rest && plus(p.burst, left) >= m.tailFrom && !p.is(tail):
		p.flags |= ending
		return left - rest, due
	case left > size && left >= 2*minSize && (left > fullSize || p.limited(m)):
		return min(left-minSize, maxSize), due
	}
	p.flags |= last
	return max(size, min(left, maxSize)), due
}

// limited reports whether the next record is as long as any may be.
func (p *Pacer) limited(m *Model) bool {
	return p.size >= fullSize || m.drs == DRSOn && int(p.size) >= goLimit(int(p.records), int(p.bytes))
}

// Sent tells that a record of n bytes of payload left, and draws the next.
func (p *Pacer) Sent(m *Model, now clock.Time, n int, rnd *rand.Rand) {
	if m == nil {
		m = defaultModel
	}
	before := p.flags
	p.flags = drawn | greeted | before&goesOn
	if n <= int(p.size)-minSize || before&last != 0 {
		p.flags |= dry
	}
	p.sent = now
	p.due = max(p.due, now)
	p.bytes = plus(p.bytes, n)
	p.burst = plus(p.burst, n)
	p.records += min(1, math.MaxUint16-p.records)
	if before&ending != 0 && m.tail > 0 {
		p.drawTail(m, rnd)
	} else {
		p.draw(m, rnd)
	}
	p.due = min(p.due, now.Add(MaxGap)) // should records have left too early
}

func (p *Pacer) drawTail(m *Model, rnd *rand.Rand) {
	p.flags |= tail
	p.size = m.tail
	if rnd.Uint32()>>16 < m.tailWaited {
		p.wait(&m.steadyGaps, rnd.Uint32())
	}
}

// plus adds up to MaxInt32.
func plus(sum uint32, n int) uint32 { return uint32(min(int(sum)+max(n, 0), math.MaxInt32)) }

// Uplink tells that the client spoke: when there was nothing to send, what comes next is the answer.
func (p *Pacer) Uplink(now clock.Time) {
	if p.is(dry) || now.Sub(p.lastChance()) > quietAfter {
		p.flags |= asked
	}
}

// draw takes the next record from the model.
func (p *Pacer) draw(m *Model, rnd *rand.Rand) {
	if m.drs == DRSOn {
		p.drawLimited(m, rnd)
		return
	}
	p.size = uint16(p.take(m, rnd).size())
}

// drawLimited cuts records from the application's writes as crypto/tls does.
func (p *Pacer) drawLimited(m *Model, rnd *rand.Rand) {
	limit := uint16(goLimit(int(p.records), int(p.bytes)) - overhead)
	for p.rest == 0 || p.rest < limit && p.is(goesOn) {
		s := p.take(m, rnd)
		p.rest += uint16(s.size() - overhead)
		p.flags &^= goesOn
		if s.size() >= fullSize && !s.ended() {
			p.flags |= goesOn
		}
	}
	n := min(p.rest, limit)
	p.rest -= n
	p.size = n + overhead
}

// take returns the model's next record, and waits if it does.
func (p *Pacer) take(m *Model, rnd *rand.Rand) step {
	u := rnd.Uint64() // one draw for two: the low bits for the record, the high ones for its gap
	s, gaps := p.step(m, uint32(u), rnd)
	if s.waited() && !p.is(first) {
		p.wait(gaps, uint32(u>>32))
	}
	return s
}

func (p *Pacer) wait(gaps *gapTable, u uint32) {
	if gap := gaps.draw(u); gap >= MinGap {
		p.due = p.due.Add(gap)
	}
}

// step is the next record of the start that is being replayed, or of another that is longer, or of the steady state.
func (p *Pacer) step(m *Model, u uint32, rnd *rand.Rand) (step, *gapTable) {
	if int(p.start) < len(m.starts) {
		if int(p.at) >= len(m.starts[p.start].steps) {
			p.leaveStart(m, rnd)
		}
		if p.start != inSteady {
			p.at++
			return m.starts[p.start].steps[p.at-1], &m.startGaps
		}
	}
	p.start = inSteady
	if len(m.steady) == 0 {
		return fullSize, &m.steadyGaps
	}
	if p.block++; int(p.block) >= len(m.steady) {
		p.block = 0
	}
	if u%meanBlock == 0 {
		p.jump(m, m.steady[:p.block], rnd)
	}
	return m.steady[p.block], &m.steadyGaps
}

// leaveStart goes on in a longer start, behind a record like the last one, or in the steady state.
func (p *Pacer) leaveStart(m *Model, rnd *rand.Rand) {
	s := &m.starts[p.start]
	class := classOf(s.offset)
	p.start = inSteady
	for range jumpTries {
		longer := m.pickStart(class, int(p.at), rnd.Uint32())
		if longer == inSteady {
			break
		}
		if follows(m.starts[longer].steps[:p.at], s.steps) == contextLen {
			p.start = longer
			return
		}
	}
	if len(m.steady) > 0 {
		p.jump(m, s.steps, rnd)
		p.block-- // step goes one further
	}
}

// jump looks for a place in the steady state that comes behind records like the last ones, since what follows depends on them:
// a write ends with a short record, and pauses come between writes.
func (p *Pacer) jump(m *Model, last []step, rnd *rand.Rand) {
	best := -1
	for range jumpTries {
		block := below(uint32(len(m.steady)), rnd.Uint32())
		if n := follows(m.steady[:block], last); n > best {
			best, p.block = n, uint16(block)
		}
		if best == contextLen {
			return
		}
	}
}

// contextLen is how many records are looked at to tell what comes next.
const contextLen = 2

// follows returns how many of the last records of both, contextLen at most, are alike, counted from the end. Where there were fewer,
// any will do.
func follows(before, last []step) (n int) {
	for n < contextLen && (n >= len(last) || n < len(before) && alike(before[len(before)-1-n], last[len(last)-1-n])) {
		n++
	}
	return n
}

func alike(a, b step) bool {
	n, k := a.size(), b.size()
	return 8*max(n-k, k-n) <= k && a.ended() == b.ended()
}

// pickStart returns a start of the class with more than at records, or inSteady when there is none.
func (m *Model) pickStart(class, at int, u uint32) uint16 {
	c := m.classes[class]
	ofClass := m.starts[c.low:c.high]
	n := sort.Search(len(ofClass), func(i int) bool { return len(ofClass[i].steps) <= at }) // the longest come first
	if n == 0 {
		return inSteady
	}
	return c.low + uint16(below(uint32(n), u))
}

// nearStart returns a start of the class whose response was about as long, or inSteady when there is none.
func (m *Model) nearStart(class, length int, rnd *rand.Rand) (picked uint16) {
	c := m.classes[class]
	best := math.Inf(1)
	for _, s := range m.starts[c.low:c.high] {
		best = min(best, unevenness(s.bytes, length))
	}
	picked = inSteady
	met := uint32(0)
	for i, s := range m.starts[c.low:c.high] {
		if unevenness(s.bytes, length) > best*aboutAsLong {
			continue
		}
		if met++; below(met, rnd.Uint32()) == 0 { // each of those met with the same probability
			picked = c.low + uint16(i)
		}
	}
	return picked
}

// unevenness is the greater of two lengths by the smaller.
func unevenness(a, b int) float64 { return float64(max(a, b, 1)) / float64(max(min(a, b), 1)) }

// below maps a uniform number of 32 bits to 0..n-1.
func below(n, u uint32) uint32 { return uint32(uint64(n) * uint64(u) >> 32) }
