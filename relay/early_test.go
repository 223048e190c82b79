package relay

import (
	"bytes"
	"testing"
	"time"

	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// hesitant is a client that has said nothing, or half a hello, for a second: its front is being dialled.
func hesitant(t *testing.T, said int) (*world, genuine) {
	g := readGenuine(t, "tdlib-1.8.65")
	w := newWorld(t, g.time, g.secret)
	w.openEarly(time.Second)
	w.send(Client, g.hello[:said])
	w.wait()
	if w.pending != DialFront || w.now != 2e9 {
		t.Fatalf("dial %d at %d", w.pending, w.now)
	}
	w.expect(StateHello, ReasonNotEnded)
	return w, g
}

// altered is a hello whose digest is wrong, in its last byte.
func altered(g genuine) []byte {
	b := bytes.Clone(g.hello)
	b[len(b)-1]++
	return b
}

// TestEarlyFront: what was opened for a client that took its time, and what became of that.
func TestEarlyFront(t *testing.T) {
	const said = 700
	for _, test := range []struct {
		name string
		then func(w *world, g genuine)
		want State
		why  tlsfront.Reason
	}{
		{"the timer ends the wait", func(w *world, g genuine) { w.dialed(true); w.wait() }, StateFront, tlsfront.ReasonTimer},
		{"the timer comes before the front", func(w *world, g genuine) { w.wait(); w.dialed(true) }, StateFront, tlsfront.ReasonTimer},
		{"the front hangs up", func(w *world, g genuine) { w.dialed(true); w.end(Upstream, EndFIN) }, StateDrain, tlsfront.ReasonFront},
		{"the front resets", func(w *world, g genuine) { w.dialed(true); w.end(Upstream, EndReset) }, StateClosed, tlsfront.ReasonFront},
		{"the front speaks", func(w *world, g genuine) { w.dialed(true); w.send(Upstream, []byte("hi")) }, StateFront, tlsfront.ReasonFront},
		{"the client hangs up", func(w *world, g genuine) { w.dialed(true); w.end(Client, EndFIN) }, StateDrain, tlsfront.ReasonFIN},
		{"no hello after all", func(w *world, g genuine) { w.dialed(true); w.send(Client, altered(g)[said:]) }, StateFront, tlsfront.ReasonDigest},
		{"no hello, before the front is there", func(w *world, g genuine) { w.send(Client, altered(g)[said:]); w.dialed(true) }, StateFront, tlsfront.ReasonDigest},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, g := hesitant(t, said)
			test.then(w, g)
			if w.s.State() != test.want || w.s.FrontReason() != test.why || w.judged != 1 {
				t.Fatalf("state %v, reason %v, judged %d times", w.s.State(), w.s.FrontReason(), w.judged)
			}
			if got := w.peers[Upstream].got; string(got[:said]) != string(g.hello[:said]) {
				t.Fatal("the front did not get what the client had said")
			}
			if test.why == tlsfront.ReasonFront && test.want == StateFront {
				w.expectGot(Client, []byte("hi"))
			}
		})
	}
}

// TestEarlyFrontIsDropped for a client that is one of ours, dialled or not, and its session goes on.
func TestEarlyFrontIsDropped(t *testing.T) {
	for _, connected := range []bool{false, true} {
		w, g := hesitant(t, 0)
		if connected {
			w.dialed(true)
		}
		w.send(Client, g.hello)
		w.expect(StateClientInit, ReasonNotEnded)
		if w.pending != DialNone || w.peers[Upstream].there {
			t.Fatal("the front is still there")
		}
		if due := w.s.Deadline(); due != clock.Time(1e9).Add(testHandshake) {
			t.Fatalf("the init is due at %d", due)
		}
		w.send(Client, newTelegram(g, tagPaddedIntermediate, 2, 7).first(nil))
		w.dialed(true)
		w.expect(StateRelay, ReasonNotEnded)
	}
}

// TestEarlyFrontUnreachable: it is dialled again when it is needed.
func TestEarlyFrontUnreachable(t *testing.T) {
	w, _ := hesitant(t, 0)
	w.dialed(false)
	w.expect(StateHello, ReasonNotEnded)
	w.send(Client, []byte("GET / HTTP/1.1"))
	if w.pending != DialFront {
		t.Fatal("not dialled again")
	}
}

// TestEarlyFrontOfAnotherSite: the SNI comes late and names another front than the silent client's.
func TestEarlyFrontOfAnotherSite(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	other := tlsfront.Secret{Name: "other", Host: "other.example"}
	w := newWorld(t, g.time, other, tlsfront.Secret{Name: "named", Host: g.secret.Host})
	w.openEarly(time.Second)
	w.wait()
	if w.last.Front != 0 {
		t.Fatalf("front %d for silence", w.last.Front)
	}
	w.dialed(true)
	w.send(Client, g.hello)
	if w.pending != DialFront || w.last.Front != 1 {
		t.Fatalf("dial %d, front %d", w.pending, w.last.Front)
	}
	w.dialed(true)
	w.expectGot(Upstream, g.hello)
}

// TestEarlyFrontOfAnotherSiteEnds: half a hello names another site than the early front's, which then hangs up. That
// concerns nobody; the client is to see the site that it named.
func TestEarlyFrontOfAnotherSiteEnds(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	for _, end := range []End{EndFIN, EndReset} {
		w := newWorld(t, g.time, tlsfront.Secret{Name: "other", Host: "other.example"}, tlsfront.Secret{Name: "named", Host: g.secret.Host})
		w.openEarly(time.Second)
		w.wait()
		w.dialed(true)
		w.send(Client, g.hello[:1700])
		w.end(Upstream, end)
		w.expect(StateDialFront, ReasonNotEnded)
		if w.pending != DialFront || w.last.Front != 1 {
			t.Fatalf("dial %d, front %d", w.pending, w.last.Front)
		}
	}
}
