package doppel

import (
	"slices"
	"time"
)

// DRS is what a model does about dynamic record sizing: records that begin at one segment and grow.
type DRS uint8

const (
	DRSAuto DRS = iota // as it was seen
	DRSOn              // Go's, even when it was not seen
	DRSOff             // none, even when it was seen
)

// How crypto/tls sizes records (Conn.maxPayloadSizeForWrite, TLS 1.3): each record of a connection may be one segment longer than
// the one before, until the maximum, or until this many bytes were sent. It never begins anew.
const (
	goSegment = 1208 - 5 - 16 - 1
	goGrown   = 128 << 10
)

// goLimit is the longest record that crypto/tls makes behind that many others.
func goLimit(records, bytes int) int {
	if bytes >= goGrown || records >= fullSize/goSegment {
		return fullSize
	}
	return goSegment*(records+1) + overhead
}

// growsLikeGo reports whether nearly all connections kept to Go's limits and some met them at once. Nearly, since a server's
// first record may be shorter, and the watcher may have missed one.
func growsLikeGo(seen []connection) bool {
	kept, met := 0, 0
	for _, c := range seen {
		r := c[0]
		bytes, keeps, meets := 0, true, false
		for i := range r.whole() {
			limit := goLimit(i, bytes)
			keeps = keeps && r.sizes[i] <= limit
			meets = meets || r.sizes[i] == limit && limit < fullSize
			bytes += r.sizes[i]
		}
		if keeps {
			kept++
		}
		if keeps && meets {
			met++
		}
	}
	return met > 0 && kept*10 >= len(seen)*9
}

// undoGrowth replaces the records of a response by the writes that they came from: as the records would be if none had
// been limited. Only the order of writes is the application's, and it is the same wherever in its growth a connection is.
func (r *response) undoGrowth() {
	whole := r.whole()
	u := response{idle: r.idle, tail: r.tail, cut: r.cut}
	write, sent := 0, r.offset // bytes of plain text of the write so far; payload of the connection
	var gap time.Duration
	for i, size := range r.sizes[:whole] {
		if write == 0 {
			gap = r.gaps[i]
		}
		write += size - overhead
		limited := size == goLimit(r.before+i, sent)
		goesOn := limited && r.gaps[i+1] == 0
		sent += size
		for ; write >= fullSize-overhead || write > 0 && !goesOn; gap = 0 {
			plain := min(write, fullSize-overhead)
			write -= plain
			u.add(plain+overhead, gap)
			u.ended = append(u.ended, plain+overhead == fullSize && write == 0 && !limited)
		}
	}
	for i := whole; i < len(r.sizes); i++ {
		u.add(r.sizes[i], r.gaps[i])
		u.ended = append(u.ended, false)
	}
	*r = u
}

// markEnds marks where writes end in records that have grown, where that does not show, if all writes that end in a full
// record are of one length: io.Copy's are of 32 KiB, which is two.
func markEnds(all []*response) {
	length := writeLength(all)
	if length == 0 {
		return
	}
	for _, r := range all {
		for i := range r.whole() {
			run := r.fullBefore(i)
			r.ended[i] = r.ended[i] || r.sizes[i] == fullSize && run == length-1
		}
	}
}

// writeLength is how many full records those writes have that end in one, 0 when there are fewer than two, or of different
// lengths.
func writeLength(all []*response) int {
	counts := map[int]int{}
	total, best := 0, 0
	for _, r := range all {
		for i, ended := range r.ended {
			if !ended {
				continue
			}
			n := 1 + r.fullBefore(i)
			total++
			if counts[n]++; counts[n] > counts[best] {
				best = n
			}
		}
	}
	if total < 2 || counts[best]*10 < total*9 {
		return 0
	}
	return best
}

// fullBefore is how many full records of the same write come before one.
func (r *response) fullBefore(i int) (n int) {
	for i--; i >= 0 && r.sizes[i] == fullSize && !r.ended[i]; i-- {
		n++
	}
	return n
}

func (r *response) add(size int, gap time.Duration) {
	r.sizes = append(r.sizes, size)
	r.gaps = append(r.gaps, gap)
}

// smallStart is how many records of a burst tell whether it began small.
const smallStart = 3

// largestAtStart is the longest of the first records of a response, 0 when the response is too short to tell.
func largestAtStart(r *response) int {
	if r.whole() < smallStart {
		return 0
	}
	return slices.Max(r.sizes[:smallStart])
}

// extremes returns the longest record among the first ones of any connection, and among all.
func extremes(seen []connection) (first, longest int) {
	for _, c := range seen {
		first = max(first, largestAtStart(c[0]))
		for _, r := range c {
			longest = max(longest, slices.Max(r.sizes))
		}
	}
	return first, longest
}

// beginsSmall reports whether the first records of connections are short, whoever made them so.
func beginsSmall(seen []connection) bool {
	first, longest := extremes(seen)
	return first > 0 && 2*first <= longest
}

// learnReset returns after which silence of the downlink record sizes begin anew, 0 for never: the answer that is right about
// most of the bursts that came when their connection had grown out of small records.
func learnReset(seen []connection) (after time.Duration) {
	if !beginsSmall(seen) {
		return 0
	}
	small, _ := extremes(seen)
	var again, on []time.Duration // silences before bursts that began anew, and that went on
	for _, c := range seen {
		grown := false
		for _, r := range c {
			if first := largestAtStart(r); grown && first > small {
				on = append(on, r.idle)
			} else if grown && first > 0 {
				again = append(again, r.idle)
			}
			grown = grown || slices.Max(r.sizes) >= 2*small
		}
	}
	best := 0 // how many more are right than with "never"
	for _, limit := range again {
		right := atLeast(again, limit) - atLeast(on, limit)
		if right > best || right == best && right > 0 && limit > after {
			best, after = right, max(limit, 1)
		}
	}
	return after
}

func atLeast(silences []time.Duration, limit time.Duration) (n int) {
	for _, s := range silences {
		if s >= limit {
			n++
		}
	}
	return n
}
