package relay

import (
	"bytes"
	"crypto/cipher"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"mtrelay/tlsfront"
)

// A Session lies in every connection's struct; what it weighs, each idle client weighs.
func TestSessionIsSmall(t *testing.T) {
	const limit = 240
	if size := unsafe.Sizeof(Session{}); size > limit {
		t.Errorf("%d bytes, at most %d wanted", size, limit)
	}
}

// relayed brings a session to relay. dc is what the DC makes of the init it got.
func relayed(t testing.TB, reencrypt bool) (w *world, c *telegram, dc oracle) {
	t.Helper()
	g := readGenuine(t, "tdlib-1.8.65")
	w = newWorld(t, g.time, g.secret)
	w.env.Reencrypt = reencrypt
	c = newTelegram(g, tagPaddedIntermediate, 2, 7)
	w.send(Client, c.hello)
	checkReply(t, w.peers[Client].got, c.hello, g.secret.Key)
	w.peers[Client].got = nil
	w.send(Client, c.first(nil))
	if w.s.DC() != 2 || w.s.Secret() != 0 || w.s.Verdict() != tlsfront.Accepted {
		t.Fatalf("DC %d, secret %d, verdict %v", w.s.DC(), w.s.Secret(), w.s.Verdict())
	}
	if !slices.Equal(w.last.Targets, addrs(dcAddr.String())) {
		t.Fatalf("targets %v", w.last.Targets)
	}
	w.dialed(true)
	w.expect(StateRelay, ReasonNotEnded)
	init := w.peers[Upstream].got
	if len(init) != initLen {
		t.Fatalf("the DC got %d bytes", len(init))
	}
	w.peers[Upstream].got = nil
	return w, c, readInit(init, nil)
}

func bothDownlinks(t *testing.T, f func(t *testing.T, reencrypt bool)) {
	t.Run("pass", func(t *testing.T) { f(t, false) })
	t.Run("reencrypt", func(t *testing.T) { f(t, true) })
}

func TestRelay(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		w, c, dc := relayed(t, reencrypt)
		if dc.dc != 2 || dc.tag != tagPaddedIntermediate {
			t.Fatalf("the DC reads id %d, tag %x", dc.dc, dc.tag)
		}
		var up, down []byte
		for _, n := range []int{1, 17, 2878, 65535, 16384, 40} {
			text := pattern(n, byte(n))
			up = append(up, text...)
			w.send(Client, append(record(xor(c.up, text)), ccs...))
		}
		if got := xor(dc.up, w.peers[Upstream].got); !bytes.Equal(got, up) {
			t.Error("the DC got other bytes than the client sent")
		}
		for _, n := range []int{1, 4, 17, 18, 16401, 16402, 16418, 16419, 49203, 49204, 300000} {
			text := pattern(n, byte(n))
			down = append(down, text...)
			w.send(Upstream, xor(dc.down, text))
		}
		payload, _ := unwrap(t, w.peers[Client].got)
		if !bytes.Equal(xor(c.down, payload), down) {
			t.Error("the client got other bytes than the DC sent")
		}
	})
}

// Both directions at once, under random arrivals, reads, read limits and kernels that take little.
func TestRelayUnderRandomSchedules(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		for seed := range 100 {
			rnd := rand.New(rand.NewPCG(uint64(seed), 1))
			w, c, dc := relayed(t, reencrypt)
			up, down := pattern(rnd.IntN(200000), 1), pattern(rnd.IntN(200000), 2)
			upWire, downWire := records(xor(c.up, up), rnd), xor(dc.down, down)
			for len(upWire)+len(downWire) > 0 {
				side := Side(rnd.IntN(2))
				switch rnd.IntN(6) {
				case 0:
					upWire = w.arrive(Client, upWire, rnd.IntN(20000))
				case 1:
					downWire = w.arrive(Upstream, downWire, rnd.IntN(60000))
				case 2, 3:
					w.read(side)
				case 4:
					w.peers[side].full = rnd.IntN(2) == 0
					w.limit = 1 + rnd.IntN(128<<10)
				case 5:
					w.flush(side, rnd.IntN(20000))
				}
			}
			w.finish()
			payload, _ := unwrap(t, w.peers[Client].got)
			if !bytes.Equal(xor(dc.up, w.peers[Upstream].got), up) || !bytes.Equal(xor(c.down, payload), down) {
				t.Fatalf("seed %d: other bytes arrived", seed)
			}
		}
	})
}

// records wraps b into records of random sizes, with a CCS here and there.
func records(b []byte, rnd *rand.Rand) (out []byte) {
	for len(b) > 0 {
		n := min(len(b), 1+rnd.IntN(1<<(1+rnd.IntN(16))))
		out = append(out, record(b[:n])...)
		if b = b[n:]; rnd.IntN(10) == 0 {
			out = append(out, ccs...)
		}
	}
	return out
}

// arrive brings n bytes of b into the kernel and returns the rest.
func (w *world) arrive(from Side, b []byte, n int) []byte {
	n = min(n, len(b))
	w.peers[from].in = append(w.peers[from].in, b[:n]...)
	return b[n:]
}

// finish lets both kernels take everything.
func (w *world) finish() {
	for side := range w.peers {
		w.peers[side].full = false
		w.flush(Side(side), 1<<30)
	}
	w.run()
}

// In pass-through the downlink's ciphertext is moved, not made anew; in reencrypt the legs differ.
func TestDownlinkCiphertext(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		w, _, dc := relayed(t, reencrypt)
		sent := xor(dc.down, pattern(1000, 1))
		w.send(Upstream, sent)
		payload, _ := unwrap(t, w.peers[Client].got)
		if bytes.Equal(payload, sent) == reencrypt {
			t.Error("the client's leg is the wrong one")
		}
	})
}

// What a client sends behind its init before the DC is there stays in the kernel, unless it was glued to
// the hello; either way it reaches the DC first.
func TestBytesBehindTheInit(t *testing.T) {
	for name, glued := range map[string]bool{"in the kernel": false, "glued to the hello": true} {
		t.Run(name, func(t *testing.T) {
			g := readGenuine(t, "tdlib-1.8.65")
			w := newWorld(t, g.time, g.secret)
			c := newTelegram(g, tagPaddedIntermediate, -4, 7)
			text := pattern(10000, 1)
			rest := append(c.first(text[:3000]), record(xor(c.up, text[3000:]))...)
			if glued {
				w.send(Client, append(bytes.Clone(c.hello), rest...))
			} else {
				w.send(Client, c.hello)
				w.send(Client, rest)
			}
			w.expect(StateDialDC, ReasonNotEnded)
			if kernel := len(w.peers[Client].in); glued != (kernel == 0) {
				t.Errorf("%d bytes left in the kernel", kernel)
			}
			w.dialed(true)
			w.send(Client, nil)
			got := w.peers[Upstream].got
			dc := readInit(got[:initLen], nil)
			if dc.dc != -4 || !bytes.Equal(xor(dc.up, got[initLen:]), text) {
				t.Error("the DC got other bytes")
			}
		})
	}
}

// A client that is being answered gets exactly the reply, and is read no further than its init.
func TestInitIsReadExactly(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.0")
	c := newTelegram(g, tagPaddedIntermediate, 2, 7)
	w := newWorld(t, g.time, g.secret)
	w.send(Client, c.hello)
	for _, step := range []struct {
		send []byte
		want int
	}{
		{nil, 5},                       // a header
		{ccs[:2], 3},                   // its rest
		{ccs[2:5], 1},                  // the CCS's body
		{ccs[5:], 5},                   // a header
		{record(c.init)[:5], 64},       // its record
		{record(c.init)[5:15], 54},     // the rest of the 64
		{c.init[10:63], 1},             //
		{append(c.init[63:], 1, 2), 0}, // dialling
	} {
		w.send(Client, step.send)
		if want, _ := w.s.Want(); want != step.want {
			t.Fatalf("after % x: wants %d, not %d", step.send, want, step.want)
		}
	}
	w.expect(StateDialDC, ReasonNotEnded)
	if left := len(w.peers[Client].in); left != 2 {
		t.Errorf("%d bytes left in the kernel", left)
	}
}

func TestManySecretsAreTriedInTurns(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	secrets := make([]tlsfront.Secret, 300)
	for i := range secrets {
		secrets[i] = tlsfront.Secret{Host: g.secret.Host, Key: [16]byte{byte(i), byte(i >> 8), 9}}
	}
	secrets[299] = g.secret
	for name, c := range map[string]struct {
		hello  []byte
		state  State
		secret int
	}{
		"the last one's": {g.hello, StateClientInit, 299},
		"nobody's":       {sign(g.hello, [16]byte{1}, g.time), StateDialFront, -1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, g.time, secrets...)
			turns := 1
			w.peers[Client].in = c.hello
			w.read(Client)
			for ; w.again; turns++ {
				if client, _ := w.s.Want(); client != 0 {
					t.Fatalf("wants %d bytes meanwhile", client)
				}
				w.goOn()
			}
			w.expect(c.state, ReasonNotEnded)
			perTurn := maxHashed / len(c.hello)
			if want := (len(secrets) + perTurn - 1) / perTurn; want < 2 || turns != want || w.judged != 1 || w.s.Secret() != c.secret {
				t.Errorf("%d turns, judged %d times, secret %d", turns, w.judged, w.s.Secret())
			}
		})
	}
}

func TestSkew(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	w := newWorld(t, g.time+3600, g.secret)
	w.send(Client, g.hello)
	w.expect(StateDialFront, ReasonNotEnded)
	if w.s.FrontReason() != tlsfront.ReasonClock || w.s.Skew().Hours() != -1 || w.s.Secret() != 0 {
		t.Errorf("%v, skew %v, secret %d", w.s.FrontReason(), w.s.Skew(), w.s.Secret())
	}
	w.dialed(true)
	if w.s.Skew() != 0 {
		t.Error("the hello is still kept")
	}
}

// A stranger's SNI chooses among the configured fronts.
func TestFrontByServerName(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	other := tlsfront.Secret{Host: "other.example", Key: [16]byte{5}}
	w := newWorld(t, g.time, other, tlsfront.Secret{Host: g.secret.Host, Key: [16]byte{6}})
	w.send(Client, g.hello)
	if w.last.Dial != DialFront || w.last.Front != 1 {
		t.Errorf("dial %d, front %d", w.last.Dial, w.last.Front)
	}
}

// steadyState measures the allocations of moving a record once the first has been moved.
func steadyState(t *testing.T, reencrypt bool, move func(w *world, out *Out)) {
	t.Helper()
	skipUnderRace(t)
	w, _, _ := relayed(t, reencrypt)
	var out Out
	if n := testing.AllocsPerRun(1000, func() { out = Out{}; move(w, &out) }); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
	w.expect(StateRelay, ReasonNotEnded)
}

func TestRecordsAllocateNothing(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		up := record(make([]byte, 2878))
		steadyState(t, reencrypt, func(w *world, out *Out) {
			w.s.Client(w.now, append(w.scratch[:0], up...), out)
		})
		buffers := make([][]byte, 0, 8)
		steadyState(t, reencrypt, func(w *world, out *Out) {
			w.s.UpstreamBuffers(w.now, w.scratch, 1<<20, 0, buffers)
			w.s.Upstream(w.now, w.scratch, 3*tlsfront.FullRecord-5, out)
		})
	})
}

// A session that goes takes its pooled memory with it, and the next one finds it.
func TestOpeningsAreReused(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	w := newWorld(t, g.time, g.secret)
	w.send(Client, g.hello[:5])
	first := w.s.opening
	w.s.Release()
	if w.env.Chunks.Taken() != 0 || w.s.State() != StateClosed {
		t.Fatal("something is kept")
	}
	w.s.Release()
	w.s.Start(&w.env, w.now, Peer{})
	if w.s.opening != nil {
		t.Error("a silent client has an opening")
	}
	w.s.Client(w.now, []byte{22}, new(Out))
	if w.s.opening != first || len(first.held) != 1 {
		t.Error("the opening is not reused")
	}
	w.s.Release()
}

func benchmark(b *testing.B, size int, reencrypt bool, move func(w *world, out *Out)) {
	w, _, _ := relayed(b, reencrypt)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var out Out
	for b.Loop() {
		out = Out{}
		move(w, &out)
	}
}

func BenchmarkUp(b *testing.B) {
	up := record(make([]byte, 2878))
	b.Run("2878", func(b *testing.B) {
		benchmark(b, 2878, false, func(w *world, out *Out) { w.s.Client(w.now, append(w.scratch[:0], up...), out) })
	})
}

func BenchmarkDown(b *testing.B) {
	for _, size := range []int{16 << 10, 3 * tlsfront.FullRecord} {
		for name, reencrypt := range map[string]bool{"pass": false, "reencrypt": true} {
			buffers := make([][]byte, 0, 8)
			b.Run(name+"/"+sizeName(size), func(b *testing.B) {
				benchmark(b, size, reencrypt, func(w *world, out *Out) {
					w.s.UpstreamBuffers(w.now, w.scratch, 1<<20, 0, buffers)
					w.s.Upstream(w.now, w.scratch, size, out)
				})
			})
		}
	}
}

func sizeName(n int) string {
	if n == 16<<10 {
		return "16KiB"
	}
	return "3records"
}

var sinkStream cipher.Stream

func BenchmarkInit(b *testing.B) {
	v := vectors(b)[0]
	init, secret := [initLen]byte(unhex(b, v.ClientInit)), [keySecretLen]byte(unhex(b, v.Secret))
	b.ReportAllocs()
	for b.Loop() {
		again := init
		c, _ := parseInit(&again, &secret)
		sinkStream = c.dcInit(&again, c.dc, onesReader{})
	}
}

type onesReader struct{}

func (onesReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}
