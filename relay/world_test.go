package relay

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"mtrelay/clock"
	"mtrelay/relay/chunk"
	"mtrelay/tlsfront"
)

// world is a loop without sockets around one session: two byte queues per side, moved by the test, under
// the contract that Session's comments state. Whatever a call returned is copied out and overwritten
// before the next, so that anything that still points into it shows.
type world struct {
	t       testing.TB
	s       Session
	env     Env
	now     clock.Time
	scratch []byte
	dirty   int // bytes at the front of scratch that the present call may use
	peers   [2]peer
	pending Dial // under way
	again   bool
	close   Close
	judged  int
	last    Out // of the last call; its slices are no longer valid
	limit   int // of one read
	mark    int // bytes of the upstream below which the kernel keeps quiet
}

// peer is the other end of one socket.
type peer struct {
	there bool

	in       []byte // sent by the peer, not read by us
	inEnd    End    // what follows in
	hasEnd   bool
	endRead  bool
	deaf     bool // our next write fails
	reported bool

	queue       []byte // written by us, not taken by the kernel
	got         []byte // arrived at the peer
	full        bool   // the kernel takes nothing
	wantFIN     bool
	wantRST     bool
	gotFIN, rst bool
}

const (
	testHandshake = 10 * time.Second
	testIdle      = 5 * time.Minute
	testLinger    = 30 * time.Second
)

var dcAddr = netip.MustParseAddrPort("127.0.0.1:17001")

// newWorld accepts a client. Its secrets are those given; fronts are their hosts, in order.
func newWorld(t testing.TB, wall clock.Unix, secrets ...tlsfront.Secret) *world {
	w := &world{t: t, now: 1e9, scratch: make([]byte, 128<<10), limit: 128 << 10}
	var hosts []string
	for _, s := range secrets {
		hosts = append(hosts, s.Host)
	}
	w.env = Env{
		Gate:      tlsfront.NewGate(secrets, 2*time.Minute, nil, rand.NewChaCha8([32]byte{'g'})),
		Secrets:   secrets,
		Probe:     -1,
		Chunks:    new(chunk.Pool),
		DCs:       NewDCTable(map[int][]netip.AddrPort{2: {dcAddr}, -4: {dcAddr}}, nil, PreferIPv4, false),
		Fronts:    NewFronts(hosts, 0),
		Rand:      rand.NewChaCha8([32]byte{'r'}),
		Random:    rand.New(rand.NewPCG(1, 2)),
		Wall:      wall,
		Early:     testHandshake, // not before; see early_test.go
		Handshake: testHandshake,
		Idle:      testIdle,
		Linger:    testLinger,
	}
	w.peers[Client].there = true
	w.s.Start(&w.env, w.now, Peer{MSS: 1460})
	return w
}

var poison = bytes.Repeat([]byte{0xa5}, 64<<10)

// call makes one call into the session and carries out what it decided.
func (w *world) call(f func(out *Out)) {
	var out Out
	f(&out)
	w.carryOut(&out)
	w.last = out
	copy(w.scratch[:w.dirty], poison)
	copy(w.env.out[:cap(w.env.out)], poison)
	w.dirty = 0
	w.invariants()
}

func (w *world) carryOut(out *Out) {
	w.write(Client, out.Client, out.ShutClient, out.ResetClient)
	w.write(Upstream, out.Upstream, out.ShutUpstream, out.ResetUpstream)
	w.again = w.again || out.Again
	if out.DropUpstream {
		w.dropUpstream()
	}
	if out.Judged {
		w.judged++
	}
	if out.Dial != DialNone {
		if w.pending != DialNone || w.peers[Upstream].there {
			w.t.Fatal("a second dial")
		}
		w.pending = out.Dial
	}
	w.close = max(w.close, out.Close)
}

// dropUpstream: only an upstream that has not been told anything is ever dropped.
func (w *world) dropUpstream() {
	u := &w.peers[Upstream]
	if w.pending == DialNone && !u.there {
		w.t.Fatal("nothing to drop")
	}
	if len(u.got)+len(u.queue) > 0 || u.wantFIN || u.wantRST {
		w.t.Fatal("dropped in the middle")
	}
	w.pending, *u = DialNone, peer{}
}

// openEarly has the session, which has seen nothing yet, open the front after d.
func (w *world) openEarly(d time.Duration) {
	w.env.Early = d
	w.s.Start(&w.env, w.now, Peer{MSS: 1460})
}

func (w *world) write(to Side, b []byte, fin, rst bool) {
	p := &w.peers[to]
	if (len(b) > 0 || fin || rst) && !p.there {
		w.t.Fatalf("%d bytes, FIN %v, RST %v for a side that is not there", len(b), fin, rst)
	}
	if (len(b) > 0 || fin) && p.wantFIN {
		w.t.Fatalf("%d bytes, FIN %v after FIN", len(b), fin)
	}
	p.queue = append(p.queue, b...)
	p.wantFIN = p.wantFIN || fin
	p.wantRST = p.wantRST || rst
	if !p.full || len(p.queue) == 0 {
		w.flush(to, 1<<30)
	}
}

// flush lets the kernel take n bytes that are queued for a side.
func (w *world) flush(to Side, n int) {
	p := &w.peers[to]
	n = min(n, len(p.queue))
	if p.deaf { // dropped
		p.queue = nil
		return
	}
	p.got = append(p.got, p.queue[:n]...)
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.gotFIN, p.rst = p.wantFIN, p.wantRST
	}
}

// fail makes writing to a side fail, and tells the session once.
func (w *world) fail(at Side) {
	p := &w.peers[at]
	if !p.there || p.reported || w.close == CloseNow {
		return
	}
	p.deaf, p.reported, p.queue = true, true, nil
	w.call(func(out *Out) { w.s.Ended(w.now, at, EndWrite, out) })
}

// read reads a side once if the contract allows it, and reports whether it did.
func (w *world) read(at Side) bool {
	p, other := &w.peers[at], &w.peers[1-at]
	client, upstream := w.s.Want()
	want := client
	if at == Upstream {
		want = upstream
	}
	if want == 0 || !p.there || p.endRead || len(other.queue) > 0 || w.close == CloseNow {
		return false
	}
	if want = min(want, w.limit); len(p.in) == 0 {
		if !p.hasEnd {
			return false
		}
		p.endRead = true
		w.call(func(out *Out) { w.s.Ended(w.now, at, p.inEnd, out) })
		return true
	}
	if at == Upstream && (!w.reached() || w.s.Shaped() && w.s.Due(w.now) > w.now) {
		return false
	}
	if at == Client {
		buf := w.scratch[:min(want, len(w.scratch))]
		n := copy(buf, p.in)
		p.in, w.dirty = p.in[n:], n
		w.call(func(out *Out) { w.s.Client(w.now, buf[:n], out) })
		return true
	}
	return w.readUpstream(want)
}

// reached reports whether the kernel would tell of the upstream's bytes, of which some are awaited.
func (w *world) reached() bool {
	p := &w.peers[Upstream]
	switch {
	case len(p.in) >= w.mark:
	case p.hasEnd:
		w.s.GiveUpHold()
	case w.s.Retry(w.now) > w.now:
		return false
	}
	w.mark = 0
	return true
}

func (w *world) readUpstream(want int) bool {
	p := &w.peers[Upstream]
	if n := w.s.Peek(len(p.in)); w.s.Shaped() && n > 0 {
		w.s.Peeked(p.in[:n:n])
	}
	n, room := 0, 0
	due := w.s.Due(w.now)
	for _, buf := range w.s.UpstreamBuffers(w.now, w.scratch, want, len(p.in), make([][]byte, 0, 8)) {
		k := copy(buf, p.in[n:])
		n, room = n+k, room+len(buf)
	}
	if room == 0 && w.s.Retry(w.now) > w.now {
		w.mark = w.s.Awaited()
		return false
	}
	if room == 0 {
		w.t.Fatalf("no buffers for %d bytes, due at %d, now %d", len(p.in), due, w.now)
	}
	if room > want+tlsfront.MaxRecord-tlsfront.FullRecord {
		w.t.Fatalf("buffers for %d bytes, limit %d", room, want)
	}
	p.in = p.in[n:]
	w.dirty = min(len(w.scratch), n+MaxPlanned*tlsfront.RecordHeaderLen)
	w.call(func(out *Out) { w.s.Upstream(w.now, w.scratch, n, out) })
	return true
}

// run lets everything happen that can happen without time passing.
func (w *world) run() {
	for moved := true; moved; {
		moved = w.read(Upstream)
		moved = w.read(Client) || moved
		moved = w.goOn() || moved
		moved = w.drained() || moved
	}
}

// drained tells the session that nothing waits for a client which has ended its direction.
func (w *world) drained() bool {
	c, u := &w.peers[Client], &w.peers[Upstream]
	if !c.endRead || len(c.queue)+len(u.queue)+len(u.in) > 0 || u.hasEnd != u.endRead || w.close == CloseNow {
		return false
	}
	if !w.s.OwesNothing() {
		return false
	}
	w.call(func(out *Out) { w.s.Leave(w.now, out) })
	return true
}

func (w *world) goOn() bool {
	if !w.again || w.close == CloseNow {
		return false
	}
	w.again = false
	w.call(func(out *Out) { w.s.Continue(w.now, out) })
	return true
}

// send has a peer send b, and everything happen that follows.
func (w *world) send(from Side, b []byte) {
	w.peers[from].in = append(w.peers[from].in, b...)
	w.run()
}

// end has a peer send its FIN or RST.
func (w *world) end(from Side, how End) {
	w.peers[from].hasEnd, w.peers[from].inEnd = true, how
	w.run()
}

func (w *world) dialed(ok bool) {
	if w.pending == DialNone || w.close == CloseNow {
		w.t.Fatal("no dial under way")
	}
	w.pending = DialNone
	w.peers[Upstream].there = ok
	w.call(func(out *Out) { w.s.Dialed(w.now, ok, out) })
	w.run()
}

// wait lets time pass up to the deadline, and lets it come; that of a session which only falls asleep is passed over.
func (w *world) wait() {
	if w.s.mayDoze() {
		w.look()
		if w.s.State() != StateRelay || w.s.mayDoze() {
			return
		}
	}
	w.look()
}

func (w *world) look() {
	due := w.s.Deadline()
	if due == 0 {
		w.t.Fatal("nothing to wait for")
	}
	w.now = max(w.now, due)
	w.call(func(out *Out) { w.s.Expire(w.now, out) })
	w.run()
}

// invariants hold after every call.
func (w *world) invariants() {
	client, upstream := w.s.Want()
	if client < 0 || upstream < 0 || client > streaming || upstream > streaming {
		w.t.Fatalf("wants %d, %d", client, upstream)
	}
	if o := w.s.opening; o != nil && len(o.held) > tlsfront.MaxHello {
		w.t.Fatalf("%d bytes held", len(o.held))
	}
	if taken := w.env.Chunks.Taken(); taken > 1 || taken > 0 && w.s.opening == nil {
		w.t.Fatalf("%d chunks taken", taken)
	}
	if s := w.s.State(); s != StateDialDC && s != StateDialFront && w.s.Deadline() == 0 && w.close != CloseNow {
		w.t.Fatalf("no deadline in %v", s)
	}
	if closed := w.s.State() == StateClosed; closed != (w.close != CloseNone) {
		w.t.Fatalf("state %v, close %d", w.s.State(), w.close)
	}
}

func (w *world) expect(state State, reason Reason) {
	w.t.Helper()
	if w.s.State() != state || w.s.EndReason() != reason {
		w.t.Fatalf("state %v (%v), want %v (%v)", w.s.State(), w.s.EndReason(), state, reason)
	}
}

func (w *world) expectGot(at Side, want []byte) {
	w.t.Helper()
	if got := w.peers[at].got; !bytes.Equal(got, want) {
		w.t.Fatalf("side %d got %d bytes, want %d (or other ones):\n% .80x\n% .80x", at, len(got), len(want), got, want)
	}
}
