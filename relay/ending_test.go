package relay

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"mtrelay/tlsfront"
)

// fronted brings a session to front; what the client sent so far is helloSSH.
func fronted(t testing.TB) *world {
	t.Helper()
	g := readGenuine(t, "tdlib-1.8.65")
	w := newWorld(t, g.time, g.secret)
	w.send(Client, []byte(helloSSH))
	w.dialed(true)
	w.expect(StateFront, ReasonNotEnded)
	w.expectGot(Upstream, []byte(helloSSH))
	w.peers[Upstream].got = nil
	return w
}

const helloSSH = "SSH-2.0-OpenSSH_9.2p1\r\n"

// situation names a way to bring a fresh session into a state.
type situation struct {
	name  string
	state State
	make  func(t testing.TB) *world
}

func inRelay(t testing.TB) *world { w, _, _ := relayed(t, false); return w }

// after continues a situation by some events.
func after(make func(testing.TB) *world, events ...func(*world)) func(testing.TB) *world {
	return func(t testing.TB) *world {
		w := make(t)
		for _, event := range events {
			event(w)
		}
		return w
	}
}

func started(send func(c *telegram) [][]byte) func(testing.TB) *world {
	return func(t testing.TB) *world {
		g := readGenuine(t, "tdlib-1.8.65")
		w := newWorld(t, g.time, g.secret)
		for _, b := range send(newTelegram(g, tagPaddedIntermediate, 2, 7)) {
			w.send(Client, b)
		}
		return w
	}
}

func clientFIN(w *world)     { w.end(Client, EndFIN) }
func clientRST(w *world)     { w.end(Client, EndReset) }
func upstreamFIN(w *world)   { w.end(Upstream, EndFIN) }
func upstreamRST(w *world)   { w.end(Upstream, EndReset) }
func clientFails(w *world)   { w.fail(Client); w.run() }
func upstreamFails(w *world) { w.fail(Upstream); w.run() }
func deadline(w *world)      { w.wait() }
func dialOK(w *world)        { w.dialed(true) }
func dialFailed(w *world)    { w.dialed(false) }
func hangup(w *world)        { w.call(func(out *Out) { w.s.Hangup(w.now, out) }) }

var (
	silent     = started(func(*telegram) [][]byte { return nil })
	halfHello  = started(func(c *telegram) [][]byte { return [][]byte{c.hello[:900]} })
	replied    = started(func(c *telegram) [][]byte { return [][]byte{c.hello} })
	halfInit   = started(func(c *telegram) [][]byte { return [][]byte{c.hello, c.first(nil)[:40]} })
	dialling   = started(func(c *telegram) [][]byte { return [][]byte{c.hello, c.first(nil)} })
	stranger   = started(func(*telegram) [][]byte { return [][]byte{[]byte(helloSSH)} })
	badInit    = started(func(c *telegram) [][]byte { c.init[56] ^= 1; return [][]byte{c.hello, c.first(nil)} })
	badUplink  = after(inRelay, func(w *world) { w.send(Client, []byte{21, 3, 3, 0, 2, 1, 0}) })
	situations = []situation{
		{"silent", StateHello, silent},
		{"half a hello", StateHello, halfHello},
		{"replied", StateClientInit, replied},
		{"half an init", StateClientInit, halfInit},
		{"dialling the DC", StateDialDC, dialling},
		{"dialling the front", StateDialFront, stranger},
		{"dialling the front, client gone", StateDialFront, after(halfHello, clientFIN)},
		{"relayed", StateRelay, inRelay},
		{"fronted", StateFront, func(t testing.TB) *world { return fronted(t) }},
		{"client ended", StateDrain, after(inRelay, clientFIN)},
		{"DC ended", StateDrain, after(inRelay, upstreamFIN)},
		{"DC does not listen", StateDrain, after(inRelay, upstreamFails)},
		{"fronted client ended", StateDrain, after(func(t testing.TB) *world { return fronted(t) }, clientFIN)},
		{"client reset", StateClosed, after(inRelay, clientRST)},
		{"DC reset", StateLinger, after(inRelay, upstreamRST)},
		{"bad init", StateLinger, badInit},
		{"both ended", StateClosed, after(inRelay, clientFIN, upstreamFIN)},
		{"lingered", StateClosed, after(badInit, deadline)},
		{"cancelled", StateClosed, after(dialling, hangup)},
	}
)

// Which ending each event leads to, and what either peer sees of it.
func TestEndings(t *testing.T) {
	front := func(t testing.TB) *world { return fronted(t) }
	for _, c := range []struct {
		name   string
		in     func(testing.TB) *world
		events []func(*world)
		state  State
		reason Reason
		sees   string // c: the client, u: the upstream; a: alert, F: FIN, R: RST; then close
	}{
		{"FIN at once", silent, []func(*world){clientFIN}, StateDialFront, ReasonNotEnded, "c u"},
		{"FIN at once, front up", silent, []func(*world){clientFIN, dialOK}, StateDrain, ReasonClientClosed, "c uF"},
		{"FIN in the hello", halfHello, []func(*world){clientFIN, dialOK, upstreamFIN}, StateClosed, ReasonClientClosed, "cF uF drained"},
		{"FIN in the hello, front down", halfHello, []func(*world){clientFIN, dialFailed}, StateClosed, ReasonFrontUnreachable, "cF u drained"},
		{"RST in the hello", halfHello, []func(*world){clientRST}, StateClosed, ReasonClientGone, "c u now"},
		{"silence", silent, []func(*world){deadline}, StateDialFront, ReasonNotEnded, "c u"},
		{"silence, front up", silent, []func(*world){deadline, dialOK}, StateFront, ReasonNotEnded, "c u"},

		{"FIN after the reply", replied, []func(*world){clientFIN}, StateClosed, ReasonClientGone, "cF u drained"},
		{"RST after the reply", replied, []func(*world){clientRST}, StateClosed, ReasonClientGone, "c u now"},
		{"reply not taken", replied, []func(*world){clientFails}, StateClosed, ReasonClientGone, "c u now"},
		{"silence after the reply", replied, []func(*world){deadline}, StateLinger, ReasonHandshakeTimeout, "cF u"},
		{"half an init", halfInit, []func(*world){deadline, clientFIN}, StateClosed, ReasonHandshakeTimeout, "cF u drained"},
		{"bad init", badInit, nil, StateLinger, ReasonBadInit, "caF u"},
		{"bad init, client stays", badInit, []func(*world){deadline}, StateClosed, ReasonBadInit, "caF u drained"},
		{"bad init, bytes never taken", badInit, []func(*world){deadline, deadline}, StateClosed, ReasonBadInit, "caF u now"},

		{"hangup while dialling the DC", dialling, []func(*world){hangup}, StateClosed, ReasonClientGone, "c u now"},
		{"hangup while dialling the front", stranger, []func(*world){hangup}, StateDialFront, ReasonNotEnded, "c u"},
		{"DC unreachable", dialling, []func(*world){dialFailed}, StateLinger, ReasonDCUnreachable, "caF u"},
		{"front unreachable", stranger, []func(*world){dialFailed}, StateLinger, ReasonFrontUnreachable, "cF u"},
		{"front unreachable, client goes", stranger, []func(*world){dialFailed, clientRST}, StateClosed, ReasonFrontUnreachable, "cF u drained"},

		{"client closes", inRelay, []func(*world){clientFIN}, StateDrain, ReasonClientClosed, "c uF"},
		{"client closes, then the DC", inRelay, []func(*world){clientFIN, upstreamFIN}, StateClosed, ReasonClientClosed, "cF uF drained"},
		{"client closes, the DC resets", inRelay, []func(*world){clientFIN, upstreamRST}, StateClosed, ReasonClientClosed, "cF uF drained"},
		{"client closes, the DC is silent", inRelay, []func(*world){clientFIN, deadline}, StateClosed, ReasonLingerTimeout, "cF uF drained"},
		{"client closes, then takes nothing", inRelay, []func(*world){clientFIN, clientFails}, StateClosed, ReasonClientClosed, "c uFR drained"},
		{"client resets", inRelay, []func(*world){clientRST}, StateClosed, ReasonClientReset, "c uR drained"},
		{"client resets, the DC ends", inRelay, []func(*world){clientRST, upstreamFIN}, StateClosed, ReasonClientReset, "c uR drained"},
		{"client resets, the DC stays", inRelay, []func(*world){clientRST, deadline}, StateClosed, ReasonClientReset, "c uR now"},
		{"client takes nothing", inRelay, []func(*world){clientFails}, StateDrain, ReasonNotEnded, "c u"},
		{"client takes nothing and ends", inRelay, []func(*world){clientFails, clientFIN}, StateClosed, ReasonClientReset, "c uR drained"},
		{"DC closes", inRelay, []func(*world){upstreamFIN}, StateDrain, ReasonUpstreamClosed, "caF u"},
		{"DC closes, then the client", inRelay, []func(*world){upstreamFIN, clientFIN}, StateClosed, ReasonUpstreamClosed, "caF uF drained"},
		{"DC closes, then takes nothing", inRelay, []func(*world){upstreamFIN, upstreamFails}, StateLinger, ReasonUpstreamClosed, "caF u"},
		{"DC closes, the client is silent", inRelay, []func(*world){upstreamFIN, deadline}, StateClosed, ReasonLingerTimeout, "caF uF drained"},
		{"DC resets", inRelay, []func(*world){upstreamRST}, StateLinger, ReasonUpstreamReset, "caF u"},
		{"DC resets, then the client", inRelay, []func(*world){upstreamRST, clientFIN}, StateClosed, ReasonUpstreamReset, "caF u drained"},
		{"DC takes nothing", inRelay, []func(*world){upstreamFails}, StateDrain, ReasonNotEnded, "c u"},
		{"DC takes nothing and ends", inRelay, []func(*world){upstreamFails, upstreamFIN}, StateLinger, ReasonUpstreamReset, "caF u"},
		{"idle", inRelay, []func(*world){deadline}, StateLinger, ReasonIdle, "caF uF"},
		{"idle, both end", inRelay, []func(*world){deadline, clientFIN, upstreamFIN}, StateClosed, ReasonIdle, "caF uF drained"},
		{"a record that no client sends", badUplink, nil, StateLinger, ReasonBadRecord, "caF uF"},

		{"stranger closes", front, []func(*world){clientFIN}, StateDrain, ReasonClientClosed, "c uF"},
		{"stranger closes, then the front", front, []func(*world){clientFIN, upstreamFIN}, StateClosed, ReasonClientClosed, "cF uF drained"},
		{"stranger resets", front, []func(*world){clientRST}, StateClosed, ReasonClientReset, "c uR drained"},
		{"stranger takes nothing and ends", front, []func(*world){clientFails, clientFIN}, StateClosed, ReasonClientReset, "c uR drained"},
		{"stranger closes, then takes nothing", front, []func(*world){clientFIN, clientFails}, StateClosed, ReasonClientClosed, "c uFR drained"},
		{"front closes", front, []func(*world){upstreamFIN}, StateDrain, ReasonUpstreamClosed, "cF u"},
		{"front resets", front, []func(*world){upstreamRST}, StateClosed, ReasonUpstreamReset, "cR u drained"},
		{"front closes, then resets", front, []func(*world){upstreamFIN, upstreamFails}, StateClosed, ReasonUpstreamClosed, "cFR u drained"},
		{"fronted, idle", front, []func(*world){deadline}, StateLinger, ReasonIdle, "cF uF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := after(c.in, c.events...)(t)
			w.expect(c.state, c.reason)
			if sees := w.sees(t); sees != c.sees {
				t.Errorf("they see %q, want %q", sees, c.sees)
			}
		})
	}
}

// TestFarewellFollowsTheFront, by who ends first; of what no client sends every server complains.
func TestFarewellFollowsTheFront(t *testing.T) {
	const unknown, said, omitted = tlsfront.FarewellUnknown, tlsfront.FarewellSaid, tlsfront.FarewellOmitted
	for _, c := range []struct {
		front                               tlsfront.Profile
		clientFirst, dcFirst, idle, garbage string
	}{
		{tlsfront.Profile{AfterClient: unknown, OfItself: unknown}, "cF", "caF", "caF", "caF"},
		{tlsfront.Profile{AfterClient: said, OfItself: said}, "caF", "caF", "caF", "caF"},
		{tlsfront.Profile{AfterClient: omitted, OfItself: said}, "cF", "caF", "caF", "caF"},
		{tlsfront.Profile{AfterClient: said, OfItself: omitted}, "caF", "cF", "cF", "caF"},
	} {
		for want, events := range map[*string][]func(*world){
			&c.clientFirst: {clientFIN, upstreamFIN},
			&c.dcFirst:     {upstreamFIN},
			&c.idle:        {deadline},
			&c.garbage:     {func(w *world) { w.send(Client, []byte{21, 3, 3, 0, 2, 1, 0}) }},
		} {
			w, _, _ := shaped(t, false, &Look{TLS: &c.front})
			for _, event := range events {
				event(w)
			}
			if sees, _, _ := strings.Cut(w.sees(t), " "); sees != *want {
				t.Errorf("%+v: the client sees %q, want %q", c.front, sees, *want)
			}
		}
	}
}

func (w *world) sees(t *testing.T) string {
	t.Helper()
	s := "c"
	if got := w.peers[Client].got; len(got) >= 24 && bytes.Equal(got[len(got)-24:][:5], []byte{23, 3, 3, 0, 19}) {
		s += "a"
	}
	for i, p := range w.peers {
		if i == int(Upstream) {
			s += " u"
		}
		if p.gotFIN {
			s += "F"
		}
		if p.rst {
			s += "R"
		}
	}
	return s + [...]string{"", " drained", " now"}[w.close]
}

// The bytes before an end arrive before it, however slowly they are taken, and those of the direction
// that is left go on.
func TestBytesAroundEnds(t *testing.T) {
	t.Run("of the DC", func(t *testing.T) {
		w, c, dc := relayed(t, false)
		w.peers[Client].full = true
		text := pattern(200000, 1)
		w.send(Upstream, xor(dc.down, text))
		w.end(Upstream, EndFIN)
		for w.s.State() == StateRelay {
			w.flush(Client, 5000)
			w.run()
		}
		w.send(Client, record(xor(c.up, text[:5000])))
		w.flush(Client, 1<<30)
		w.end(Client, EndFIN)
		if !bytes.Equal(xor(dc.up, w.peers[Upstream].got), text[:5000]) {
			t.Error("the DC missed what the client sent after the FIN")
		}
		payload, sizes := unwrap(t, w.peers[Client].got)
		if len(payload) != len(text)+alertLen || sizes[len(sizes)-1] != alertLen || !w.peers[Client].gotFIN {
			t.Fatalf("the client got %d bytes, FIN %v", len(payload), w.peers[Client].gotFIN)
		}
		if !bytes.Equal(xor(c.down, payload[:len(text)]), text) {
			t.Error("the client got other bytes")
		}
		w.expect(StateClosed, ReasonUpstreamClosed)
	})
	t.Run("of the client", func(t *testing.T) {
		w, c, dc := relayed(t, true)
		w.peers[Upstream].full = true
		text := pattern(60000, 2)
		w.send(Client, record(xor(c.up, text)))
		w.end(Client, EndFIN)
		w.flush(Upstream, 1<<30)
		w.run()
		w.send(Upstream, xor(dc.down, text))
		if !bytes.Equal(xor(dc.up, w.peers[Upstream].got), text) || !w.peers[Upstream].gotFIN {
			t.Error("the DC missed something")
		}
		if payload, _ := unwrap(t, w.peers[Client].got); !bytes.Equal(xor(c.down, payload), text) {
			t.Error("the client missed what the DC sent after the FIN")
		}
	})
	t.Run("of a stranger", func(t *testing.T) {
		w := fronted(t)
		w.peers[Upstream].full = true
		text := pattern(100000, 3)
		w.send(Client, text)
		w.end(Client, EndReset)
		for len(w.peers[Upstream].queue) > 0 {
			w.flush(Upstream, 7000)
			w.run()
		}
		w.expectGot(Upstream, text)
		if !w.peers[Upstream].rst {
			t.Error("the front did not see the RST")
		}
	})
}

// Activity moves no deadline; the deadline looks at it.
func TestIdleIsLazy(t *testing.T) {
	w, c, _ := relayed(t, true) // which does not doze
	first := w.s.Deadline()
	if got := first.Sub(w.now); got != testIdle {
		t.Fatalf("due in %v", got)
	}
	w.now = w.now.Add(time.Minute)
	w.send(Client, record(xor(c.up, []byte("ping"))))
	active := w.now
	if w.s.Deadline() != first {
		t.Error("a record moved the deadline")
	}
	w.wait()
	w.expect(StateRelay, ReasonNotEnded)
	if got := w.s.Deadline().Sub(active); got != testIdle {
		t.Errorf("due %v after the activity", got)
	}
	w.wait()
	w.expect(StateLinger, ReasonIdle)
}

// A half-closed session waits for Linger after the last byte of the direction that is left; bytes that go
// nowhere do not count.
func TestDrainAndLingerTimes(t *testing.T) {
	w, _, dc := relayed(t, false)
	clientFIN(w)
	for range 10 {
		w.now = w.now.Add(testLinger - time.Second)
		w.send(Upstream, xor(dc.down, pattern(10, 1)))
		w.call(func(out *Out) { w.s.Expire(w.now, out) })
		w.expect(StateDrain, ReasonClientClosed)
	}
	last := w.now
	w.wait()
	if w.now.Sub(last) > testLinger {
		t.Errorf("waited %v", w.now.Sub(last))
	}

	w = badInit(t)
	due := w.s.Deadline()
	if due.Sub(w.now) != testLinger {
		t.Errorf("lingers %v", due.Sub(w.now))
	}
	w.now = due - 1
	w.send(Client, pattern(100000, 1))
	if len(w.peers[Client].in) != 0 || w.s.Deadline() != due {
		t.Errorf("%d bytes not discarded, deadline moved by %v", len(w.peers[Client].in), w.s.Deadline().Sub(due))
	}
}

// A session that only lingers keeps no cipher and no chunk.
func TestEndedSessionsAreLight(t *testing.T) {
	for _, c := range situations {
		w := c.make(t)
		if c.state >= StateLinger && (w.s.up != recoder{} || w.s.down != nil || w.s.opening != nil) {
			t.Errorf("%s: keeps something", c.name)
		}
	}
}

// anyEvent are calls that a loop could make, in the wrong moment too.
var anyEvent = map[string]func(w *world, out *Out){
	"client bytes": func(w *world, out *Out) { w.s.Client(w.now, pattern(100, 9), out) },
	"no bytes":     func(w *world, out *Out) { w.s.Client(w.now, nil, out) },
	"upstream bytes": func(w *world, out *Out) {
		n := fill(w.s.UpstreamBuffers(w.now, w.scratch, 20000, 0, nil), pattern(17000, 9))
		w.s.Upstream(w.now, w.scratch, n, out)
	},
	"nothing read":   func(w *world, out *Out) { w.s.Upstream(w.now, w.scratch, 0, out) },
	"client FIN":     func(w *world, out *Out) { w.s.Ended(w.now, Client, EndFIN, out) },
	"client RST":     func(w *world, out *Out) { w.s.Ended(w.now, Client, EndReset, out) },
	"client fails":   func(w *world, out *Out) { w.s.Ended(w.now, Client, EndWrite, out) },
	"upstream FIN":   func(w *world, out *Out) { w.s.Ended(w.now, Upstream, EndFIN, out) },
	"upstream RST":   func(w *world, out *Out) { w.s.Ended(w.now, Upstream, EndReset, out) },
	"upstream fails": func(w *world, out *Out) { w.s.Ended(w.now, Upstream, EndWrite, out) },
	"hangup":         func(w *world, out *Out) { w.s.Hangup(w.now, out) },
	"dialled":        func(w *world, out *Out) { w.s.Dialed(w.now, true, out) },
	"dial failed":    func(w *world, out *Out) { w.s.Dialed(w.now, false, out) },
	"continue":       func(w *world, out *Out) { w.s.Continue(w.now, out) },
	"early":          func(w *world, out *Out) { w.s.Expire(w.now, out) },
	"deadline":       func(w *world, out *Out) { w.now = max(w.now, w.s.Deadline()); w.s.Expire(w.now, out) },
	"release":        func(w *world, out *Out) { w.s.Release() },
}

// Any two events in any situation, whether the loop should make them or not.
func TestAnyEventAnywhere(t *testing.T) {
	for _, c := range situations {
		if w := c.make(t); w.s.State() != c.state {
			t.Fatalf("%s: state %v, want %v", c.name, w.s.State(), c.state)
		}
		for name1, event1 := range anyEvent {
			for name2, event2 := range anyEvent {
				label := fmt.Sprint(c.name, ", ", name1, ", ", name2)
				w := c.make(t)
				before := w.s.State()
				for _, event := range []func(*world, *Out){event1, event2} {
					event(w, new(Out))
					client, upstream := w.s.Want()
					if state := w.s.State(); state < before || client < 0 || upstream < 0 {
						t.Fatalf("%s: %v after %v, wants %d and %d", label, state, before, client, upstream)
					}
					before = w.s.State()
				}
				w.s.Release()
				if w.env.Chunks.Taken() != 0 {
					t.Fatalf("%s: %d chunks lost", label, w.env.Chunks.Taken())
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range States() {
		seen["state "+s.String()] = true
	}
	for _, r := range Reasons() {
		seen["reason "+r.String()] = true
	}
	if delete(seen, "state "); len(seen) != int(numStates)+int(numReasons) || seen["reason "] {
		t.Errorf("a name is missing or used twice: %v", seen)
	}
}

// TestSlowReaderIsNotIdle: the DC has ended, the client takes what is queued for it little by little.
func TestSlowReaderIsNotIdle(t *testing.T) {
	w, _, _ := relayed(t, false)
	w.end(Upstream, EndFIN)
	w.expect(StateDrain, ReasonUpstreamClosed)
	for range 5 {
		w.now = w.now.Add(testLinger - 1)
		w.s.Progress(w.now)
		w.call(func(out *Out) { w.s.Expire(w.now, out) })
		w.expect(StateDrain, ReasonUpstreamClosed)
	}
	w.wait() // looks at the last progress
	w.wait()
	w.expect(StateClosed, ReasonLingerTimeout)
}

// TestClientLeaves: who was answered gets the end at once, as from a site; who was not is waited for, as is what a DC has begun
// to say.
func TestClientLeaves(t *testing.T) {
	answer := framed(tagPaddedIntermediate, pattern(300, 5))
	for _, c := range []struct {
		name    string
		shape   bool
		asks    bool          // behind the DC's answer, once more
		answer  int           // bytes of it that come
		silence time.Duration // before the client leaves
		at      bool          // it gets the end at once
	}{
		{"answered", true, false, len(answer), 0, true},
		{"says nothing, hears nothing", true, false, 0, 0, true},
		{"not answered", true, true, len(answer), answerTime - 1, false},
		{"said something that needs no answer", true, true, len(answer), answerTime, true},
		{"amidst an answer", true, false, len(answer) - 1, 0, false},
		{"amidst its length", true, false, 3, 0, false},
		{"unshaped", false, false, len(answer), 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			look := &Look{Shape: full()}
			if !c.shape {
				look.Shape = nil
			}
			w, client, dc := shaped(t, false, look)
			w.send(Upstream, dc.encrypt(answer[:c.answer]))
			if c.answer < len(answer) { // what is held leaves
				w.now = w.now.Add(holdTime)
				w.run()
			}
			if c.asks {
				w.send(Client, record(xor(client.up, make([]byte, 40))))
			}
			w.now = w.now.Add(c.silence)
			w.end(Client, EndFIN)
			if got := w.peers[Client].gotFIN; got != c.at {
				t.Fatalf("FIN at once: %v", got)
			}
			if !w.peers[Upstream].gotFIN {
				t.Error("the DC is not told")
			}
			if !c.at {
				if c.asks {
					w.send(Upstream, dc.encrypt([]byte{1, 2, 3, 0x84})) // a quick ack is no answer
					w.now = w.now.Add(crumbHold)
					w.run()
					if w.peers[Client].gotFIN {
						t.Fatal("FIN behind a quick ack")
					}
				}
				w.send(Upstream, dc.encrypt(append(answer[c.answer:], answer...)))
				if got := w.peers[Client].gotFIN; got != (c.shape) {
					t.Errorf("FIN behind the answer: %v", got)
				}
			}
			w.end(Upstream, EndFIN)
			w.expect(StateClosed, ReasonClientClosed)
		})
	}
}
