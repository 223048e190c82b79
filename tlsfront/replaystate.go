package tlsfront

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"

	"mtrelay/clock"
)

// The state of a Replay, as a later process reads it. Integers are little-endian.
//
//	 8  "mtreplay"
//	 1  version
//	 1  1 when it was written at a clean end, else 0
//	 2  number of shards
//	 8  window, in seconds
//	 8  since: every hello accepted and stamped from then on is here, but for those forgotten after their window
//	 8  when it was written
//	    for each shard:
//	 4    number of entries
//	20    each entry, the oldest first: 16 bytes of the digest, 4 of the stamp
//	 4  CRC-32C of all that
//
// Nothing of it is secret: a digest and a stamp travel in the clear in their hello. The checksum is against accidents;
// whoever can write the file can also delete it.
const (
	replayMagic    = "mtreplay"
	replayVersion  = 1
	replayHeadLen  = 36
	replayStateLen = replayKeyLen + 4 // of an entry

	replayBlock = 4096 // entries read at a time
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errReplayCut      = errors.New("it is cut short")
	errReplayMagic    = errors.New("it is no memory of hellos")
	errReplayHead     = errors.New("its head makes no sense")
	errReplayChecksum = errors.New("its checksum is wrong")
	errReplayTrailing = errors.New("bytes follow its end")
)

// replayHead are the facts that come before the entries.
type replayHead struct {
	clean          bool
	window         int64 // seconds
	since, written clock.Unix
}

// replayState is a state that was read.
type replayState struct {
	replayHead
	shards [][]replayEntry // each with the oldest first

	// Entries for which there was no room.
	dropped int
	lost    uint32 // the newest stamp among them
}

// WriteState writes what is remembered at wall, one shard after the other, each of them locked while it is copied (some
// 3 ns per entry). clean says that nothing will be accepted any more. The errors are those of w.
func (r *Replay) WriteState(w io.Writer, wall clock.Unix, clean bool) error {
	sum := crc32.New(castagnoli)
	out := io.MultiWriter(w, sum)
	b := replayHead{clean, r.window, r.since, wall}.append(nil, len(r.shards))
	for i := range r.shards {
		b = r.shards[i].appendState(b)
		if _, err := out.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(b, sum.Sum32()))
	return err
}

// ReadState remembers what WriteState wrote, as far as there is room: of more, the newest entries are kept. r is to be
// as NewReplay made it, and is so still after an error, which says what is wrong with the bytes or is src's own.
//
// since is for RefuseBefore, once nobody can read the same state as a clean one again. It is the older process's own
// when that left nothing unknown, which makes a chain of clean ends: what the first of them had to refuse because of a
// process before it is refused still. A secret that was exchanged meanwhile changes nothing: digests of the old key are of
// no hello any more, and of hellos under the new one none was accepted. Otherwise since is the time that NewReplay was
// given, and the digests protect all the same.
func (r *Replay) ReadState(src io.Reader) (since clock.Unix, err error) {
	s, err := decodeReplay(src, r.most*len(r.shards))
	if err != nil {
		return r.since, err
	}
	for e := range s.oldestFirst() {
		r.recall(e, s)
	}
	if r.complete(s) {
		return s.since, nil
	}
	return r.since, nil
}

// complete tells whether no hello that the clock check still lets through can have been accepted without being
// remembered.
func (r *Replay) complete(s *replayState) bool {
	switch {
	case !s.clean:
		return false // what was accepted after the last write is unknown
	case s.window < r.window:
		return false // what the older process forgot may be fresh again
	case s.written < s.since || r.since < s.written:
		return false // somebody set the clock
	case s.written < r.since-clock.Unix(r.window):
		// An old file may have been put back from a copy, and other processes may have served since. Within the window they
		// would have had to be quick.
		return false
	}
	return s.dropped == 0 || int64(s.lost)+r.window < int64(r.since)
}

// recall remembers an entry of an older process as the newest one. A stamp from a future that the clock has taken back
// would never expire, and a full memory would stay full.
func (r *Replay) recall(e replayEntry, s *replayState) {
	if latest := int64(r.since) + r.window; int64(e.stamp) > latest {
		e.stamp = uint32(max(latest, 0))
	}
	hash := r.hash(&e.key)
	shard := r.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if _, found := shard.find(&e.key, hash); found {
		return
	}
	if shard.n == r.most {
		s.drop(shard.entries[shard.first])
		shard.forgetOldest(r)
	}
	shard.add(r, e, hash)
}

func (s *replayState) drop(e replayEntry) {
	s.dropped++
	s.lost = max(s.lost, e.stamp)
}

// oldestFirst joins the shards, since another process spreads the hellos otherwise. Each keeps its order; between them
// the stamps decide, so the whole is in order but for what clients' clocks are off.
func (s *replayState) oldestFirst() iter.Seq[replayEntry] {
	return func(yield func(replayEntry) bool) {
		rest := slices.Clone(s.shards)
		for {
			next := -1
			for i, shard := range rest {
				if len(shard) > 0 && (next < 0 || shard[0].stamp < rest[next][0].stamp) {
					next = i
				}
			}
			if next < 0 || !yield(rest[next][0]) {
				return
			}
			rest[next] = rest[next][1:]
		}
	}
}

func (h replayHead) append(dst []byte, shards int) []byte {
	clean := byte(0)
	if h.clean {
		clean = 1
	}
	dst = append(dst, replayMagic...)
	dst = append(dst, replayVersion, clean)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(shards))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.window))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.since))
	return binary.LittleEndian.AppendUint64(dst, uint64(h.written))
}

func (s *replayShard) appendState(dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.first + s.n
	wrapped := max(0, end-len(s.entries))
	return appendEntries(dst, s.entries[s.first:end-wrapped], s.entries[:wrapped])
}

// appendEntries appends a shard, which may lie in two pieces.
func appendEntries(dst []byte, older, newer []replayEntry) []byte {
	n := len(older) + len(newer)
	dst = slices.Grow(dst, 4+n*replayStateLen)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	for _, piece := range [...][]replayEntry{older, newer} {
		for i := range piece {
			dst = append(dst, piece[i].key[:]...)
			dst = binary.LittleEndian.AppendUint32(dst, piece[i].stamp)
		}
	}
	return dst
}

// decodeReplay reads a whole state from bytes that may be anything. Of each shard it keeps the newest entries, as many as
// a memory of most entries with so many shards has room for; of a small one more, since shards fill unevenly.
func decodeReplay(src io.Reader, most int) (*replayState, error) {
	sum := crc32.New(castagnoli)
	in := io.TeeReader(src, sum)
	s := new(replayState)
	shards, err := s.readHead(in)
	if err != nil {
		return nil, err
	}
	block := make([]byte, replayBlock*replayStateLen)
	for range shards {
		if err := s.readShard(in, max(minShardEntries, most/shards), block); err != nil {
			return nil, err
		}
	}
	if err := readChecksum(src, sum.Sum32()); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *replayState) readHead(in io.Reader) (shards int, err error) {
	var b [replayHeadLen]byte
	if err := readAll(in, b[:]); err != nil {
		return 0, err
	}
	if string(b[:8]) != replayMagic {
		return 0, errReplayMagic
	}
	if b[8] != replayVersion {
		return 0, fmt.Errorf("it is of version %d, this is version %d", b[8], replayVersion)
	}
	shards = int(binary.LittleEndian.Uint16(b[10:]))
	if b[9] > 1 || shards < 1 || shards > replayShards {
		return 0, errReplayHead
	}
	s.clean = b[9] == 1
	s.window = int64(binary.LittleEndian.Uint64(b[12:]))
	s.since = clock.Unix(binary.LittleEndian.Uint64(b[20:]))
	s.written = clock.Unix(binary.LittleEndian.Uint64(b[28:]))
	return shards, nil
}

// readShard adds a shard; block is scratch.
func (s *replayState) readShard(in io.Reader, keep int, block []byte) error {
	var count [4]byte
	if err := readAll(in, count[:]); err != nil {
		return err
	}
	left := int64(binary.LittleEndian.Uint32(count[:]))
	entries := make([]replayEntry, 0, min(left, int64(keep)))
	for left > 0 {
		b := block[:min(left, replayBlock)*replayStateLen]
		if err := readAll(in, b); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[replayStateLen:] {
			e := replayEntry{[replayKeyLen]byte(b), binary.LittleEndian.Uint32(b[replayKeyLen:])}
			if left > int64(keep) {
				s.drop(e)
			} else {
				entries = append(entries, e)
			}
			left--
		}
	}
	s.shards = append(s.shards, entries)
	return nil
}

// readChecksum expects want and then the end.
func readChecksum(src io.Reader, want uint32) error {
	var b [4]byte
	if err := readAll(src, b[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b[:]) != want {
		return errReplayChecksum
	}
	switch _, err := io.ReadFull(src, b[:1]); err {
	case io.EOF:
		return nil
	case nil:
		return errReplayTrailing
	default:
		return err
	}
}

// readAll fills b.
func readAll(in io.Reader, b []byte) error {
	_, err := io.ReadFull(in, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errReplayCut
	}
	return err
}
