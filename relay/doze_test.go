package relay

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// TestDozeAndWake at every offset inside a block of the cipher: what goes through afterwards is what it would have
// been, and so is the farewell.
func TestDozeAndWake(t *testing.T) {
	for n := 1; n < 40; n++ {
		w, c, dc := relayed(t, false)
		up, down := pattern(n, 1), pattern(n, 2)
		w.send(Client, record(xor(c.up, up)))
		w.send(Upstream, xor(dc.down, down))
		fallAsleep(t, w)

		for _, more := range [][]byte{pattern(1, 3), pattern(2878, 4)} {
			w.send(Client, record(xor(c.up, more)))
			w.send(Upstream, xor(dc.down, more))
			up, down = append(up, more...), append(down, more...)
		}
		if got := xor(dc.up, w.peers[Upstream].got); !bytes.Equal(got, up) {
			t.Fatalf("asleep after %d bytes: the DC got others than the client sent", n)
		}
		w.end(Upstream, EndFIN)
		payload, sizes := unwrap(t, w.peers[Client].got)
		c.down.XORKeyStream(payload, payload)
		if !bytes.Equal(payload[:len(down)], down) || sizes[len(sizes)-1] != alertLen {
			t.Fatalf("asleep after %d bytes: the client got others than the DC sent", n)
		}
		if got := announced(payload[len(down):], tagPaddedIntermediate); got != frameAnnounced {
			t.Fatalf("a frame of %d bytes is announced", got)
		}
	}
}

// fallAsleep waits until w's session has given up its ciphers.
func fallAsleep(t *testing.T, w *world) {
	t.Helper()
	w.look()
	w.expect(StateRelay, ReasonNotEnded)
	if w.s.up != (recoder{}) || !w.s.Dozing() {
		t.Fatalf("awake %v after the last byte", w.now.Sub(w.s.active))
	}
}

// TestBytesKeepASessionAwake, in either direction: the look comes, and another is due a minute after the last byte.
func TestBytesKeepASessionAwake(t *testing.T) {
	for _, side := range []Side{Client, Upstream} {
		t.Run(fmt.Sprint(side), func(t *testing.T) {
			w, c, dc := relayed(t, false)
			for range 3 {
				w.now = w.now.Add(50 * time.Second)
				if side == Client {
					w.send(Client, record(xor(c.up, []byte("ping"))))
				} else {
					w.send(Upstream, xor(dc.down, []byte("pong")))
				}
				active := w.now
				w.look()
				if w.s.Dozing() {
					t.Fatal("asleep")
				}
				if wait := w.s.Deadline().Sub(active); wait < quiet || wait >= quiet+time.Duration(dozeTick) {
					t.Fatalf("next look %v after the last byte", wait)
				}
			}
		})
	}
}

// TestSleepersEndToo: the idle timer runs on, from the last byte.
func TestSleepersEndToo(t *testing.T) {
	w, _, _ := relayed(t, false)
	active := w.s.active
	fallAsleep(t, w)
	if got := w.s.Deadline().Sub(active); got != testIdle {
		t.Fatalf("due %v after the last byte", got)
	}
	w.look()
	w.expect(StateLinger, ReasonIdle)
}

// TestSleepersDeadlineAfterWaking is again that of a session that may fall asleep.
func TestSleepersDeadlineAfterWaking(t *testing.T) {
	w, c, _ := relayed(t, false)
	fallAsleep(t, w)
	w.now = w.now.Add(time.Minute)
	w.send(Client, record(xor(c.up, []byte("ping"))))
	if wait := w.s.Deadline().Sub(w.now); wait < quiet || wait >= quiet+time.Duration(dozeTick) {
		t.Fatalf("next look in %v", wait)
	}
}

// TestReencryptedSessionsStayAwake: their keys toward the DC are nowhere else.
func TestReencryptedSessionsStayAwake(t *testing.T) {
	w, c, dc := relayed(t, true)
	if got := w.s.Deadline().Sub(w.now); got != testIdle {
		t.Fatalf("a look in %v", got)
	}
	w.now = w.now.Add(testIdle - time.Second)
	w.send(Client, record(xor(c.up, []byte("ping"))))
	if got := xor(dc.up, w.peers[Upstream].got); string(got) != "ping" {
		t.Fatalf("%q arrived", got)
	}
}

// TestHalfClosedSleeper: a client may go on after the DC closed.
func TestHalfClosedSleeper(t *testing.T) {
	w, c, dc := relayed(t, false)
	fallAsleep(t, w)
	w.end(Upstream, EndFIN)
	w.send(Client, record(xor(c.up, []byte("late"))))
	w.expect(StateDrain, ReasonUpstreamClosed)
	if got := xor(dc.up, w.peers[Upstream].got); string(got) != "late" {
		t.Fatalf("%q arrived", got)
	}
}

// BenchmarkWake is what the first bytes of a client cost after a quiet minute, beyond what any bytes cost.
func BenchmarkWake(b *testing.B) {
	w, _, _ := relayed(b, false)
	b.ReportAllocs()
	for b.Loop() {
		w.s.wake()
	}
}
