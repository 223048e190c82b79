package relay

import "mtrelay/tlsfront"

const (
	// MaxRecords of a full size is the most that one read is made into.
	MaxRecords = 6
	// slot is what a full record takes in the scratch buffer.
	slot = tlsfront.RecordHeaderLen + tlsfront.FullRecord
	// MinRecord is the least that a TLS 1.3 record can carry: a byte, its content type, the AEAD tag. A
	// smaller one gives us away, so none is made by cutting; what the DC itself sends alone (quick acks
	// of 4 bytes) has to go as it is, after crumbHold if the session is shaped.
	MinRecord = 1 + 1 + 16
	// emptyFull is the payload that a full record would have without content type and tag: what a proxy sends that
	// has no TLS inside, and no server.
	emptyFull = 1 << 14
)

// recordBuffers appends to dst the payloads of up to MaxRecords full records in scratch, each behind room
// for its header, at most limit bytes in total; a limit that exceeds them by less than MinRecord is met too.
func recordBuffers(scratch []byte, limit int, dst [][]byte) [][]byte {
	if most := MaxRecords * tlsfront.FullRecord; limit >= most+MinRecord {
		limit = most
	}
	for i := 0; limit > 0; i++ {
		lo := i*slot + tlsfront.RecordHeaderLen
		n := min(limit, tlsfront.FullRecord, len(scratch)-lo)
		if n <= 0 || n < limit && n < MinRecord {
			break // no room for a record
		}
		dst = append(dst, scratch[lo:lo+n:lo+n])
		limit -= n
	}
	return dst
}

// downlink makes records of the n bytes that were read into recordBuffers(scratch), and returns them.
func (s *Session) downlink(scratch []byte, n int) []byte {
	if s.down != nil {
		s.down.recodeSlots(scratch, n)
	}
	return frame(scratch, n)
}

// recodeSlots works in place on n bytes that lie in scratch with gaps.
func (r *recoder) recodeSlots(scratch []byte, n int) {
	for n > 0 {
		k := min(n, tlsfront.FullRecord)
		r.recode(scratch[tlsfront.RecordHeaderLen:][:k])
		if n -= k; n > 0 {
			scratch = scratch[slot:]
		}
	}
}

// frame writes the headers of the records whose n bytes of payload lie in scratch with gaps, and returns
// the records: all full but the last. Where the last would fall under MinRecord it borrows from the end of
// the one before: those few bytes move up across the gap, which so moves down.
func frame(scratch []byte, n int) []byte {
	whole, last := n/tlsfront.FullRecord, n%tlsfront.FullRecord
	end := whole * slot // where the last record's header goes
	for i := range whole {
		header(scratch[i*slot:], tlsfront.FullRecord)
	}
	if last == 0 {
		return scratch[:end]
	}
	if borrowed := MinRecord - last; whole > 0 && borrowed > 0 {
		if tlsfront.FullRecord-borrowed == emptyFull {
			borrowed++
		}
		copy(scratch[end+tlsfront.RecordHeaderLen-borrowed:], scratch[end-borrowed:end])
		header(scratch[end-slot:], tlsfront.FullRecord-borrowed)
		end -= borrowed
		last += borrowed
	}
	if last == emptyFull { // that many bytes happened to be there: they become two records
		kept := last - MinRecord
		tail := end + tlsfront.RecordHeaderLen + kept
		copy(scratch[tail+tlsfront.RecordHeaderLen:], scratch[tail:tail+MinRecord])
		header(scratch[end:], kept)
		end, last = tail, MinRecord
	}
	header(scratch[end:], last)
	return scratch[:end+tlsfront.RecordHeaderLen+last]
}

func header(b []byte, n int) {
	tlsfront.PutRecordHeader(b, tlsfront.RecordApplicationData, n)
}
