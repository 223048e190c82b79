package tlsfront

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"
	"unsafe"

	"mtrelay/clock"
)

// Numbers of our choosing.
const (
	// ReplayEntryLen is the most bytes that a Replay takes per entry: the entry and its share of the table.
	ReplayEntryLen = int(unsafe.Sizeof(replayEntry{})) + 4*4

	replayShards    = 16   // loops meet here at each accepted hello; so many hardly ever wait
	minShardEntries = 1024 // fewer would leave too uneven shards

	// firstShardEntries is the room that a shard begins with. It doubles when that is used up: a proxy for a few friends
	// needs a few KB, and whatever lies on the heap also raises the garbage that the collector allows.
	firstShardEntries = 64
)

// Replay remembers the hellos that were accepted, exactly, so that none works twice. Safe for concurrent use.
//
// A hello is remembered at least until its own stamp plus the window has passed; before that the clock check refuses
// it. It is forgotten only when its room is needed, the oldest first: the stamp is not covered by the digest, so whoever
// recorded a hello can give it a fresh stamp later, and only this memory tells.
//
// The memory grows up to a fixed size. When it is full of hellos whose window has not passed, new ones are refused: to forget
// one would let it work again, and nobody without a secret can fill the memory. Full means one shard of 16 is (one of
// one when there are few entries); hellos spread evenly, so that happens from about nine tenths on.
type Replay struct {
	window int64      // seconds
	since  clock.Unix // see RefuseBefore
	seed   maphash.Seed
	shards []replayShard
	most   int // entries of a shard
}

type replayShard struct {
	mu       sync.Mutex
	entries  []replayEntry // ring of n entries, the oldest at first
	first    int
	n        int
	table    []uint32 // hash table with linear probing: index into entries + 1, 0 for none; at most half full
	admitted uint64   // since the start, those forgotten included
}

type replayEntry struct {
	key   [replayKeyLen]byte
	stamp uint32
}

// NewReplay returns an empty memory of about maxEntries hellos. window is the clock tolerance of the gates. Hellos
// stamped before started, when the process began, are refused: they may be known to the process before it. (So a client
// whose clock is slow waits for its lag after a restart.) ReadState tells whether that may be relaxed.
func NewReplay(window time.Duration, started clock.Unix, maxEntries int) *Replay {
	shards := 1
	if maxEntries >= replayShards*minShardEntries {
		shards = replayShards
	}
	r := &Replay{
		window: int64((window + time.Second - 1) / time.Second),
		since:  started,
		seed:   maphash.MakeSeed(),
		shards: make([]replayShard, shards),
	}
	r.most = max(1, maxEntries/shards)
	for i := range r.shards {
		r.shards[i].grow(r, min(r.most, firstShardEntries))
	}
	return r
}

// RefuseBefore has hellos stamped before since refused, in place of those stamped before the start: from then on every
// hello that was accepted is known. To be called before the first gate judges.
func (r *Replay) RefuseBefore(since clock.Unix) { r.since = since }

// Admitted returns how many hellos were accepted since the start.
func (r *Replay) Admitted() uint64 {
	n := uint64(0)
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.admitted
		s.mu.Unlock()
	}
	return n
}

// Len returns how many hellos are remembered.
func (r *Replay) Len() int {
	n := 0
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}

// Size returns the bytes that the memory takes now.
func (r *Replay) Size() int {
	n := 0
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += len(s.entries)*int(unsafe.Sizeof(replayEntry{})) + len(s.table)*4 + int(unsafe.Sizeof(*s))
		s.mu.Unlock()
	}
	return n
}

// admit remembers a hello that passed every other check, or says why it must not be accepted. Test and set are one
// step: of two copies that arrive at once on two loops, one gets through.
func (r *Replay) admit(key [replayKeyLen]byte, stamp uint32, wall clock.Unix) Reason {
	if clock.Unix(stamp) < r.since {
		return ReasonBeforeStart
	}
	hash := r.hash(&key)
	s := r.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.find(&key, hash); found {
		return ReasonReplay
	}
	if s.n == r.most {
		if oldest := &s.entries[s.first]; int64(oldest.stamp)+r.window >= int64(wall) {
			return ReasonReplayMemoryFull
		}
		s.forgetOldest(r)
	}
	s.add(r, replayEntry{key, stamp}, hash)
	s.admitted++
	return ReasonNone
}

// hash is seeded per process: whoever holds a secret can choose digests, and must not be able to pile them up in one
// place of the table.
func (r *Replay) hash(key *[replayKeyLen]byte) uint64 { return maphash.Bytes(r.seed, key[:]) }

func (r *Replay) shard(hash uint64) *replayShard { return &r.shards[hash%uint64(len(r.shards))] }

// home is the slot where the search for a hash begins. The low bits choose the shard.
func (s *replayShard) home(hash uint64) int { return int(hash>>32) & (len(s.table) - 1) }

// find returns the slot that holds key, or the free one where it belongs.
func (s *replayShard) find(key *[replayKeyLen]byte, hash uint64) (slot int, found bool) {
	mask := len(s.table) - 1
	for slot = s.home(hash); s.table[slot] != 0; slot = (slot + 1) & mask {
		if s.entries[s.table[slot]-1].key == *key {
			return slot, true
		}
	}
	return slot, false
}

// add makes e, which is not there yet, the newest entry of a shard that is not full.
func (s *replayShard) add(r *Replay, e replayEntry, hash uint64) {
	if s.n == len(s.entries) {
		s.grow(r, min(2*s.n, r.most))
	}
	slot, _ := s.find(&e.key, hash) // anew: growing and forgetting move slots
	i := (s.first + s.n) % len(s.entries)
	s.entries[i] = e
	s.table[slot] = uint32(i) + 1
	s.n++
}

// forgetOldest frees the oldest entry and its slot. The slots behind it move up where the search for them would end at
// the gap.
func (s *replayShard) forgetOldest(r *Replay) {
	key := &s.entries[s.first].key
	gap, _ := s.find(key, r.hash(key))
	mask := len(s.table) - 1
	for slot := (gap + 1) & mask; s.table[slot] != 0; slot = (slot + 1) & mask {
		home := s.home(r.hash(&s.entries[s.table[slot]-1].key))
		if (slot-home)&mask >= (slot-gap)&mask {
			s.table[gap] = s.table[slot]
			gap = slot
		}
	}
	s.table[gap] = 0
	s.first = (s.first + 1) % len(s.entries)
	s.n--
}

// grow moves the entries to a ring of size n, the oldest first.
func (s *replayShard) grow(r *Replay, n int) {
	old := slices.Concat(s.entries[s.first:], s.entries[:s.first])[:s.n]
	s.entries, s.first = make([]replayEntry, n), 0
	s.table = make([]uint32, 1<<bits.Len(uint(2*n-1)))
	for i := range old {
		s.entries[i] = old[i]
		slot, _ := s.find(&old[i].key, r.hash(&old[i].key))
		s.table[slot] = uint32(i) + 1
	}
}
