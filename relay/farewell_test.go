package relay

import (
	"encoding/binary"
	"fmt"
	"testing"

	"mtrelay/tlsfront"
)

// TestFarewellIsTheBeginningOfAFrame to a client that decrypts on, wherever in the key stream the DC ended.
func TestFarewellIsTheBeginningOfAFrame(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	for _, tag := range []uint32{tagPaddedIntermediate, tagIntermediate, tagAbridged} {
		for _, reencrypt := range []bool{false, true} {
			for _, n := range []int{0, 1, 15, 16, 17, 31, 40_000} {
				t.Run(fmt.Sprintf("%x/%v/%d", tag, reencrypt, n), func(t *testing.T) {
					w := newWorld(t, g.time, g.secret)
					w.env.Reencrypt = reencrypt
					c := newTelegram(g, tag, 2, 7)
					w.send(Client, c.hello)
					w.peers[Client].got = checkReply(t, w.peers[Client].got, c.hello, g.secret.Key)
					w.send(Client, c.first(nil))
					w.dialed(true)
					w.send(Upstream, make([]byte, n))
					w.end(Upstream, EndFIN)

					payload, sizes := unwrap(t, w.peers[Client].got)
					if sizes[len(sizes)-1] != alertLen || len(payload) != n+alertLen {
						t.Fatalf("records of %v bytes", sizes)
					}
					c.down.XORKeyStream(payload, payload)
					if got := announced(payload[n:], tag); got != frameAnnounced {
						t.Fatalf("a frame of %d bytes is announced", got)
					}
				})
			}
		}
	}
}

// announced reads a frame's length as the transport of that tag has it.
func announced(b []byte, tag uint32) uint32 {
	if tag != tagAbridged {
		return binary.LittleEndian.Uint32(b)
	}
	if b[0] != 0x7f {
		return uint32(b[0]) * 4
	}
	return (uint32(b[1]) | uint32(b[2])<<8 | uint32(b[3])<<16) * 4
}

// TestFarewellBeforeAnyKey: a client that fails before its init gets a record too, and nothing panics.
func TestFarewellBeforeAnyKey(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	w := newWorld(t, g.time, g.secret)
	w.send(Client, g.hello)
	rest := checkReply(t, w.peers[Client].got, g.hello, g.secret.Key)
	if len(rest) != 0 {
		t.Fatalf("%d bytes behind the reply", len(rest))
	}
	w.send(Client, []byte{tlsfront.RecordHandshake, 3, 3, 0, 1, 0})
	w.expect(StateLinger, ReasonBadRecord)
	rest = checkReply(t, w.peers[Client].got, g.hello, g.secret.Key)
	if _, sizes := unwrap(t, rest); len(sizes) != 1 || sizes[0] != alertLen {
		t.Fatalf("records of %v bytes", sizes)
	}
}

// TestKeyStreamAcrossCounters: seeking agrees with reading on, also where the counter carries over.
func TestKeyStreamAcrossCounters(t *testing.T) {
	k := keyIV{key: [32]byte{1}}
	for i := range k.iv {
		k.iv[i] = 0xff
	}
	k.iv[0] = 7
	all := make([]byte, 100)
	k.stream().XORKeyStream(all, all)
	for n := range 90 {
		got := make([]byte, 10)
		k.streamAt(uint64(n)).XORKeyStream(got, got)
		if string(got) != string(all[n:n+10]) {
			t.Fatalf("at byte %d", n)
		}
	}
}
