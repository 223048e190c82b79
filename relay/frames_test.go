package relay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// framed wraps a message as the transport of that tag has it.
func framed(tag uint32, message []byte) []byte {
	n := uint32(len(message))
	switch {
	case tag != tagAbridged:
		return append(binary.LittleEndian.AppendUint32(nil, n), message...)
	case n/4 < longLengthByte:
		return append([]byte{byte(n / 4)}, message...)
	}
	return append(binary.LittleEndian.AppendUint32(nil, n/4<<8|longLengthByte), message...)
}

func someKeys() clientKeys {
	return clientKeys{&keyIV{key: [32]byte{1}, iv: [16]byte{9}}, &[keySecretLen]byte{5}}
}

// TestFramesAreFollowed, however they are cut: at each byte it is known how far the frame goes that it belongs to.
func TestFramesAreFollowed(t *testing.T) {
	for _, tag := range []uint32{tagPaddedIntermediate, tagIntermediate, tagAbridged} {
		var plain []byte
		var ends []int // behind each byte, where the last frame ends
		add := func(b []byte) {
			plain = append(plain, b...)
			for range b {
				ends = append(ends, len(plain))
			}
		}
		for _, n := range []int{4, 40, 504, 508, 512, 70_000, 4} {
			add(framed(tag, make([]byte, n)))
			add([]byte{0x81, 2, 3, 0x84}) // a quick ack, in both byte orders
		}
		keys := someKeys()
		sent := bytes.Clone(plain)
		keys.down().stream().XORKeyStream(sent, sent)
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			env, f := new(Env), frames{abridged: tag == tagAbridged}
			for at := 0; at < len(sent); {
				n := min(1+rnd.IntN(1<<(1+rnd.IntN(16))), len(sent)-at)
				f.pass(env, keys, sent[at:at+n], uint64(at))
				at += n
				want := ends[at-1] - at
				// Of a length that was cut only itself is known.
				if got := int(f.end); f.lost || got != want && (f.have == 0 || got > want || got == 0) {
					t.Fatalf("%x: behind byte %d %d more are known of, want %d; %+v", tag, at, got, want, f)
				}
			}
		}
	}
}

func TestNoFrames(t *testing.T) {
	for _, tag := range []uint32{tagPaddedIntermediate, tagAbridged} {
		for _, word := range []uint32{0, 0x7fffff7f} {
			f, keys := frames{abridged: tag == tagAbridged}, someKeys()
			p := binary.LittleEndian.AppendUint32(nil, word)
			keys.down().stream().XORKeyStream(p, p)
			if f.pass(new(Env), keys, p, 0); !f.lost {
				t.Errorf("%x: %#x is taken for a length", tag, word)
			}
		}
	}
}

// full is the shape of a site that sends full records without pauses.
func full() *doppel.Model { return doppel.Default() }

// TestFramesFillRecords: where the DC's bytes come in segments, records are as long as the front's all the same, and what
// ends a frame leaves at once.
func TestFramesFillRecords(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		w, c, dc := shaped(t, reencrypt, &Look{Shape: full()})
		small, large := framed(tagPaddedIntermediate, pattern(76, 5)), framed(tagPaddedIntermediate, pattern(100_000, 3))
		sent := slices.Concat(small, large)
		var segments [][]byte
		segments = append(segments, dc.encrypt(small))
		segments = slices.AppendSeq(segments, slices.Chunk(dc.encrypt(large), 1448))
		for _, segment := range segments {
			w.send(Upstream, segment)
			w.now = w.now.Add(600 * time.Microsecond)
		}
		if left := len(w.peers[Upstream].in); left > 0 {
			t.Fatalf("%d bytes of a whole frame wait", left)
		}
		payload, sizes := unwrap(t, w.peers[Client].got)
		c.down.XORKeyStream(payload, payload)
		if !bytes.Equal(payload, sent) {
			t.Fatal("other bytes arrived")
		}
		want := []int{80, 16401, 16401, 16401, 16401, 16401, 16401, 1598}
		if reencrypt { // the first bytes of a frame cannot be looked at before they are read
			want = []int{80, 1448, 16401, 16401, 16401, 16401, 16401, 16401, 150}
		}
		if !slices.Equal(sizes, want) {
			t.Errorf("records of %v, want %v", sizes, want)
		}
	})
}

// TestHeldTogether: what waits goes on waiting when more of the DC's messages begins, be it a quick ack or the end of one.
func TestHeldTogether(t *testing.T) {
	message := func(n int) []byte { return framed(tagPaddedIntermediate, pattern(n-4, 3)) }
	for _, c := range []struct {
		name string
		sent []byte
		want []int
	}{
		{"ack and answer", slices.Concat([]byte{1, 2, 3, 0x84}, message(40_004)), []int{16401, 16401, 7206}},
		{"two messages", slices.Concat(message(10_004), message(40_004)), []int{16401, 16401, 16401, 805}},
	} {
		w, _, dc := shaped(t, false, &Look{Shape: full()})
		sent := dc.encrypt(c.sent)
		w.send(Upstream, sent[:4])
		for segment := range slices.Chunk(sent[4:], 1448) {
			w.now = w.now.Add(2 * time.Millisecond)
			w.send(Upstream, segment)
		}
		if _, sizes := unwrap(t, w.peers[Client].got); !slices.Equal(sizes, c.want) {
			t.Errorf("%s: records of %v, want %v", c.name, sizes, c.want)
		}
	}
}

// TestStalledFrameIsNotHeldForLong, and neither is what is no frame.
func TestStalledFrameIsNotHeldForLong(t *testing.T) {
	w, _, dc := shaped(t, false, &Look{Shape: full()})
	w.send(Upstream, dc.encrypt(framed(tagPaddedIntermediate, pattern(50_000, 3))[:10_000]))
	if len(w.peers[Client].got) > 0 {
		t.Fatal("part of a record left")
	}
	retry := w.s.Retry(w.now)
	if got := retry.Sub(w.now); got != holdTime {
		t.Errorf("held for %v", got)
	}
	w.now = retry
	w.run()
	if _, sizes := unwrap(t, w.peers[Client].got); !slices.Equal(sizes, []int{10_000}) {
		t.Errorf("records of %v", sizes)
	}
	garbage, _, dc := shaped(t, false, &Look{Shape: full()})
	for range 3 {
		garbage.send(Upstream, dc.encrypt(bytes.Repeat([]byte{0x7f}, 1000)))
		if len(garbage.peers[Upstream].in) > 0 {
			t.Fatal("garbage is held")
		}
	}
}

// TestMessagesNeverWait: whole ones, several at once and beside quick acks. An ack alone waits for what it can leave with.
func TestMessagesNeverWait(t *testing.T) {
	w, _, dc := shaped(t, false, &Look{Shape: full(), TLS: &tlsfront.Profile{Tickets: []int{266}}})
	ack := []byte{1, 2, 3, 0x84}
	for i := range 50 {
		message := framed(tagPaddedIntermediate, pattern(4+i*700, 3))
		for _, b := range [][]byte{message, slices.Concat(message, ack), slices.Concat(ack, message, message)} {
			w.send(Upstream, dc.encrypt(b))
			if left := len(w.peers[Upstream].in); left > 0 && len(b) >= MinRecord {
				t.Fatalf("%d of %d bytes wait", left, len(b))
			}
		}
	}
	w.send(Upstream, dc.encrypt(ack))
	if got := w.s.Retry(w.now).Sub(w.now); got != crumbHold || w.s.Awaited() != MinRecord {
		t.Errorf("an ack waits for %d bytes, or %v", w.s.Awaited(), got)
	}
	w.now = w.now.Add(crumbHold)
	w.run()
	if len(w.peers[Upstream].in) > 0 {
		t.Error("it waits for ever")
	}
}

// TestUplinkInAFrameIsNoRequest: what a client says during a response does not make a new one of its rest.
func TestUplinkInAFrameIsNoRequest(t *testing.T) {
	w, c, dc := shaped(t, false, &Look{Shape: stepped()})
	rest := dc.encrypt(framed(tagPaddedIntermediate, pattern(60_000, 3)))
	w.send(Upstream, rest[:6000]) // 1000, 2000, 3000
	w.now = w.now.Add(100 * time.Millisecond)
	w.send(Client, record(xor(c.up, make([]byte, 40))))
	w.send(Upstream, rest[6000:])
	if _, sizes := unwrap(t, w.peers[Client].got); !slices.Equal(sizes, []int{1000, 2000, 3000, 4000}) {
		t.Errorf("records of %v", sizes)
	}
}

// TestFollowingAllocatesNothing as long as not too many sessions are busy.
func TestFollowingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	keys := someKeys()
	p := framed(tagPaddedIntermediate, make([]byte, 100))
	keys.down().stream().XORKeyStream(p, p)
	env := new(Env)
	if n := testing.AllocsPerRun(1000, func() { new(frames).pass(env, keys, p, 0) }); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

// FuzzFrames: whatever comes, cut anywhere, what is found out is the same and bounded.
func FuzzFrames(f *testing.F) {
	f.Add(framed(tagAbridged, make([]byte, 600)), uint16(3), true)
	f.Add(slices.Concat(framed(tagIntermediate, make([]byte, 9)), []byte{1, 2, 3, 0x84}, framed(tagIntermediate, make([]byte, 4))), uint16(5), false)
	f.Fuzz(func(t *testing.T, plain []byte, cut uint16, abridged bool) {
		keys := someKeys()
		p := bytes.Clone(plain)
		keys.down().stream().XORKeyStream(p, p)
		env := new(Env)
		whole, cutUp := frames{abridged: abridged}, frames{abridged: abridged}
		whole.pass(env, keys, p, 0)
		at := 0
		for part := range slices.Chunk(p, 1+int(cut)%64) {
			cutUp.pass(env, keys, part, uint64(at))
			at += len(part)
		}
		cutUp.head, whole.head = [4]byte{}, [4]byte{}
		if whole.lost != cutUp.lost || !whole.lost && whole != cutUp || whole.end > longestFrame {
			t.Fatalf("%+v, cut %+v", whole, cutUp)
		}
	})
}
