package loop

import (
	"io"
	"net"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// TestSilentClientEndsWhenTheFrontEndsIt: long before the handshake timer, which would come in an hour.
func TestSilentClientEndsWhenTheFrontEndsIt(t *testing.T) {
	front := fakeFront(t, func(c *net.TCPConn) { c.Write([]byte("bye")) })
	o := options("127.0.0.1:1", front)
	o.Handshake = time.Hour
	s := serve(t, o)
	c := visit(t, s)
	if got, err := io.ReadAll(c); err != nil || string(got) != "bye" {
		t.Fatalf("got %q, %v", got, err)
	}
	c.Close()
	await(t, "the places are free", func() bool {
		return s.Clients() == 0 && s.fronted.taken.Load() == 0 && s.unproven.taken.Load() == 0
	})
}

// TestHesitantClientIsServed: its front is opened, seen to be dropped without a byte, and the relay works.
func TestHesitantClientIsServed(t *testing.T) {
	visited := make(chan []byte, 1)
	front := fakeFront(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		visited <- b
	})
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), front))
	conn := visit(t, s)
	await(t, "the front is connected", func() bool { return s.fronted.taken.Load() == 1 })
	c := connect(t, s, relaytest.OverConn(conn))
	if b := <-visited; len(b) != 0 {
		t.Fatalf("the front got %d bytes", len(b))
	}
	echo(t, c, 100_000)
	if n := s.fronted.taken.Load(); n != 0 {
		t.Fatalf("%d places at the front are taken", n)
	}
}

// TestHesitantClientNeedsNoPlaceAtTheFront: those are taken, and a client is served all the same.
func TestHesitantClientNeedsNoPlaceAtTheFront(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.MaxFronted = 0
	s := serve(t, o)
	conn := visit(t, s)
	await(t, "a place at the front was asked for", func() bool { return s.askedEarly() })
	echo(t, connect(t, s, relaytest.OverConn(conn)), 1000)
}

// TestEarlyFrontThatFails gives its place back, each time.
func TestEarlyFrontThatFails(t *testing.T) {
	s := serve(t, options("127.0.0.1:1", refusing(t).String()))
	var silent []*net.TCPConn
	for range 5 {
		silent = append(silent, visit(t, s))
	}
	await(t, "the front was dialled for each", func() bool { return s.opts.Stats.Front.DialFailures.Get() >= 5 })
	for _, c := range silent {
		c.Close()
	}
	await(t, "all have left", func() bool { return s.Clients() == 0 })
	if n := s.fronted.taken.Load(); n != 0 {
		t.Fatalf("%d places at the front are lost", n)
	}
}

// askedEarly tells whether a silent client's front was asked for: since then its handshake timer runs, not the early one.
func (s *Server) askedEarly() bool {
	asked := make(chan bool)
	for _, l := range s.loops {
		l.call(func(l *loop) {
			found := false
			for c := range l.sockets() {
				if c.pair.session.Deadline() == c.pair.accepted.Add(l.opts.Handshake) {
					found = true
				}
			}
			asked <- found
		})
	}
	any := false
	for range s.loops {
		any = <-asked || any
	}
	return any
}
