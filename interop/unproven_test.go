package interop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// What peers may cost who have not proven anything yet, or nothing that matters.
const (
	unprovenPeers = 1000            // of each kind
	unprovenTimer = 4 * time.Second // their time for a handshake
	maxUnproven   = 6 << 10         // bytes of RSS for each, at the worst moment from the first one's coming to the last one's end

	// maxRoundTrip bounds the 99th percentile of an echo beside them. What is aimed at is 5 ms; but the peers, the
	// front, both ends of the echo and whatever else runs here want the same processors as the proxy.
	maxRoundTrip = 250 * time.Millisecond
)

type unprovenKind struct {
	name  string
	begin func(*unprovenPeer) error
	ours  bool // the proxy ends it by its own timer; the others are the front's to end
}

// unprovenKinds are ways to take a place and give nothing for it.
var unprovenKinds = []unprovenKind{
	{name: "half a hello", begin: func(p *unprovenPeer) error {
		hello := relaytest.ClientHello(sceneKey, siteHost)
		_, err := p.conn.Write(hello[:len(hello)/2])
		return err
	}},
	{name: "silence", begin: func(*unprovenPeer) error { return nil }},
	{name: "a byte a second", begin: func(p *unprovenPeer) error {
		p.drops = relaytest.ClientHello(sceneKey, siteHost)
		return p.drip()
	}},
	{name: "FakeTLS and no more", ours: true, begin: func(p *unprovenPeer) error {
		ctx, cancel := within(patience)
		defer cancel()
		_, err := relaytest.Dial(ctx, "", sceneKey, siteHost, echoID, relaytest.OverConn(p.conn), relaytest.LateInit())
		return err
	}},
}

type unprovenPeer struct {
	conn  *net.TCPConn
	drops []byte // still to be sent, one by one
}

// drip sends the next byte.
func (p *unprovenPeer) drip() error {
	if len(p.drops) == 0 {
		return nil
	}
	_, err := p.conn.Write(p.drops[:1])
	p.drops = p.drops[1:]
	return err
}

// TestUnprovenPeers has a thousand peers of each kind come at once, and watches the proxy until the last is gone.
func TestUnprovenPeers(t *testing.T) {
	for _, kind := range unprovenKinds {
		t.Run(kind.name, func(t *testing.T) {
			front := newPatientFront(t)
			s := startUnprovenScene(t, front)
			echo := startRoundTrips(t, s)
			fds, before, since := s.restingFDs(t), s.memory(t), time.Now()

			done := make(chan error, 1)
			go func() { done <- besiege(s, front, kind) }()
			peak := s.peakUntil(t, done)
			each := (peak.rss - before.rss) / unprovenPeers
			t.Logf("RSS %v before, %v at most: %.2f KiB for each of %d; all gone after %.1f s", before, peak, kib(each), unprovenPeers, time.Since(since).Seconds())
			if each > maxUnproven {
				t.Errorf("each costs %d bytes, more than %d", each, maxUnproven)
			}
			s.untilFDs(t, fds)
			echo.check(t)
		})
	}
}

// startUnprovenScene runs a proxy whose handshake timer is short, and has some clients use it: what a process gathers
// in its first moments is not those peers' doing.
func startUnprovenScene(t *testing.T, front *patientFront) *scene {
	t.Helper()
	s := startScene(t, sceneConfig{
		front:  front.addr,
		fronts: fmt.Sprintf("max-connections = %d", 2*unprovenPeers),
		tables: fmt.Sprintf("[network.timeout]\nhandshake = %q\nlinger = \"2s\"\n", unprovenTimer),
	})
	err := inParallel(300, 2, func(int) error { return visit(s.addr) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// visit has some bytes echoed and leaves.
func visit(addr string) error {
	conn, err := connectFrom(addr)
	if err != nil {
		return err
	}
	ctx, cancel := within(patience)
	defer cancel()
	c, err := relaytest.Dial(ctx, "", sceneKey, siteHost, echoID, relaytest.OverConn(conn))
	if err != nil {
		return err
	}
	b := &bystander{client: c}
	return errors.Join(b.trip(), c.Close())
}

// besiege connects all peers of a kind and returns when each has seen its end.
func besiege(s *scene, front *patientFront, kind unprovenKind) error {
	peers := make([]*unprovenPeer, unprovenPeers)
	err := inParallel(len(peers), 2, func(i int) (err error) {
		p := &unprovenPeer{}
		peers[i] = p
		if p.conn, err = connectFrom(s.addr); err != nil {
			return err
		}
		return kind.begin(p)
	})
	if err != nil {
		return err
	}
	stop := dripAll(peers)
	if !kind.ours {
		time.Sleep(unprovenTimer + time.Second) // so that what is measured includes what the timer makes of them
		err = front.endAll(len(peers))
	}
	stop()
	return errors.Join(err, endOf(peers))
}

// dripAll sends a byte of each peer every second until stop.
func dripAll(peers []*unprovenPeer) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stopping:
				return
			case <-tick.C:
			}
			for _, p := range peers {
				_ = p.drip() // its end shows when it is read
			}
		}
	}()
	return func() {
		close(stopping)
		<-stopped
	}
}

// endOf reads every peer's connection to its end and closes it.
func endOf(peers []*unprovenPeer) error {
	by := time.Now().Add(patience)
	for _, p := range peers {
		p.conn.SetReadDeadline(by)
		_, end := readToEnd(p.conn)
		p.conn.Close()
		if end == endHeld {
			return errors.New("a peer's connection does not end")
		}
	}
	return nil
}

// patientFront accepts visitors and lets them be until it is told to end them all.
type patientFront struct {
	addr  string
	enter chan struct{} // one for each visitor
	leave chan struct{} // closed when they are to go
}

func newPatientFront(t *testing.T) *patientFront {
	t.Helper()
	f := &patientFront{enter: make(chan struct{}, unprovenPeers), leave: make(chan struct{})}
	f.addr = rawFront(t, func(c *net.TCPConn) {
		f.enter <- struct{}{}
		<-f.leave
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
	return f
}

// endAll waits for n visitors and closes their connections.
func (f *patientFront) endAll(n int) error {
	defer close(f.leave)
	hangs := time.After(patience)
	for i := range n {
		select {
		case <-f.enter:
		case <-hangs:
			return fmt.Errorf("%d of %d peers have come to the front", i, n)
		}
	}
	return nil
}

// roundTrips is a client that has bytes echoed all the while, and takes the time.
type roundTrips struct {
	bystander *bystander
	stop      chan struct{}
	done      chan error
	took      []time.Duration
}

func startRoundTrips(t *testing.T, s *scene) *roundTrips {
	t.Helper()
	r := &roundTrips{bystander: newBystander(t, s), stop: make(chan struct{}), done: make(chan error, 1)}
	go func() { r.done <- r.run() }()
	return r
}

func (r *roundTrips) run() error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return nil
		case <-tick.C:
		}
		since := time.Now()
		if err := r.bystander.trip(); err != nil {
			return err
		}
		r.took = append(r.took, time.Since(since))
	}
}

// check ends the round trips: every byte must have come back, and soon.
func (r *roundTrips) check(t *testing.T) {
	t.Helper()
	close(r.stop)
	if err := <-r.done; err != nil {
		t.Fatalf("the echo beside them was disturbed after %d round trips: %v", len(r.took), err)
	}
	slices.Sort(r.took)
	at := func(percent int) time.Duration { return r.took[len(r.took)*percent/100] }
	t.Logf("%d round trips beside them: half in %v, 99 %% in %v, all in %v", len(r.took), at(50), at(99), r.took[len(r.took)-1])
	if at(99) > maxRoundTrip {
		t.Errorf("99 %% of the round trips take %v, more than %v", at(99), maxRoundTrip)
	}
}
