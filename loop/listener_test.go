package loop

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
	"mtrelay/relay/relaytest"
)

func TestSecondProxyIsRefused(t *testing.T) {
	front := fakeFront(t, echoFront)
	first := serve(t, options("127.0.0.1:1", front))
	o := options("127.0.0.1:1", front)
	o.Listen = first.Addresses()
	if _, err := Start(o); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("the same port again: %v", err)
	}
}

func TestSharedPort(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.ReusePort = true
	first := serve(t, o)
	o.Listen = first.Addresses()
	o.Stats = newStats()
	second := serve(t, o)
	for range 50 {
		echo(t, connect(t, second), 10)
	}
}

func TestListensOnSeveralAddresses(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.Listen = []netip.AddrPort{mustAddr("127.0.0.1:0"), mustAddr("[::1]:0"), mustAddr("127.0.0.2:0")}
	s := serve(t, o)
	for _, address := range s.Addresses() {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		echo(t, connect(t, s, relaytest.OverConn(conn)), 1000)
	}
}

// TestAcceptedSocketsInheritOptions reads what a client's socket really has.
func TestAcceptedSocketsInheritOptions(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.Loops = 1
	s := serve(t, o)
	echo(t, connect(t, s), 1)
	for _, test := range []struct {
		name       string
		side       relay.Side
		level, opt int
		want       int
	}{
		{"client NODELAY", relay.Client, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"client KEEPALIVE", relay.Client, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"client USER_TIMEOUT", relay.Client, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 120_000},
		{"client NOTSENT_LOWAT", relay.Client, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 128 << 10},
		{"DC NODELAY", relay.Upstream, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"DC KEEPALIVE", relay.Upstream, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"DC WINDOW_CLAMP", relay.Upstream, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 2 << 20},
	} {
		got := make(chan int, 1)
		s.loops[0].call(func(l *loop) {
			for s := range l.sockets() {
				if s.side == test.side {
					n, err := unix.GetsockoptInt(int(s.fd), test.level, test.opt)
					if err != nil {
						n = -1
					}
					got <- n
					return
				}
			}
			got <- -2
		})
		if n := <-got; n != test.want {
			t.Errorf("%s: %d, want %d", test.name, n, test.want)
		}
	}
}

// TestTooManyConnections: the one over the limit gets RST, and a place becomes free when one leaves.
func TestTooManyConnections(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.MaxConnections = 2
	s := serve(t, o)
	first, second := connect(t, s), connect(t, s)
	over, err := net.Dial("tcp", s.Addresses()[0].String())
	if err == nil { // else the RST was faster
		defer over.Close()
		_, err = over.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("the third: %v, want a reset", err)
	}
	echo(t, first, 1000)
	echo(t, second, 1000)
	first.Close()
	await(t, "a place is free", func() bool { return s.Clients() == 1 })
	echo(t, connect(t, s), 1000)
}

func TestTooManyVisitors(t *testing.T) {
	o := options("127.0.0.1:1", fakeFront(t, echoFront))
	o.MaxFronted = 1
	s := serve(t, o)
	first := visit(t, s)
	first.Write([]byte("hello"))
	if _, err := io.ReadFull(first, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	second := visit(t, s)
	second.Write([]byte("hello"))
	if _, err := second.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Fatalf("the second: %v, want a reset", err)
	}
	first.Write([]byte("still"))
	if _, err := io.ReadFull(first, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

// TestTooManyUnproven: the silent fill their places, the next one gets RST, clients that were there go on.
func TestTooManyUnproven(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.MaxUnproven = 2
	s := serve(t, o)
	proven := connect(t, s)
	first, _ := visit(t, s), visit(t, s)
	await(t, "both are counted", func() bool { return s.unproven.taken.Load() == 2 })
	over, err := net.Dial("tcp", s.Addresses()[0].String())
	if err == nil { // else the RST was faster
		defer over.Close()
		_, err = over.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("the third: %v, want a reset", err)
	}
	echo(t, proven, 1000)
	first.Close()
	await(t, "a place is free", func() bool { return s.unproven.taken.Load() < 2 })
	echo(t, connect(t, s), 1000)
}

// TestListenerIsOpenedAnew: whatever breaks a listening socket, its port comes back.
func TestListenerIsOpenedAnew(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.Loops = 1
	s := serve(t, o)
	established := connect(t, s)
	s.loops[0].call(func(l *loop) { unix.Shutdown(l.listeners[0].fd, unix.SHUT_RDWR) })
	await(t, "the listener is missed", func() bool { return s.Healthy() != nil })
	await(t, "the listener is back", func() bool { return s.Healthy() == nil })
	echo(t, connect(t, s), 1000)
	echo(t, established, 1000)
}
