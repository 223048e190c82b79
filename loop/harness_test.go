package loop

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/clock"
	"mtrelay/relay"
	"mtrelay/relay/relaytest"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

const frontHost = "front.example"

var key = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// patience ends a hanging test; nothing is measured against it.
const patience = 30 * time.Second

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// options returns those of a proxy that sends every DC to dc and every stranger to front.
func options(dc, front string) Options {
	site := mustAddr(front)
	return Options{
		Listen:         []netip.AddrPort{mustAddr("127.0.0.1:0")},
		Loops:          2,
		MaxConnections: 1000,
		MaxUnproven:    500,
		MaxFronted:     500,
		Secrets:        []tlsfront.Secret{{Name: "default", Host: frontHost, Key: key}},
		Tolerance:      2 * time.Minute,
		Replay:         tlsfront.NewReplay(2*time.Minute, clock.Unix(time.Now().Unix()-1), 10000),
		Fronts:         []Front{{ServerName: frontHost, Host: site.Addr().String(), Port: site.Port()}},
		DCs:            relay.NewDCTable(nil, []netip.AddrPort{mustAddr(dc)}, relay.PreferIPv4, false),
		Prefer:         relay.PreferIPv4,
		Handshake:      10 * time.Second,
		Connect:        5 * time.Second,
		Idle:           5 * time.Minute,
		Linger:         30 * time.Second,
		Socket:         SocketOptions{KeepAlive: true, UserTimeout: 2 * time.Minute, NotSentLowat: 128 << 10, WindowClamp: 2 << 20},
		Stats:          newStats(),
		Log:            zerolog.Nop(),
	}
}

// serve starts a proxy that ends with the test, and fails the test if that leaves a descriptor open.
func serve(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// fakeDC serves every connection with handle until the test ends.
func fakeDC(t testing.TB, handle func(*relaytest.DCConn)) *relaytest.DC {
	t.Helper()
	dc, err := relaytest.ListenDC("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dc.Serve(handle)
	t.Cleanup(func() { dc.Close() })
	return dc
}

// listenTCP serves every connection with handle, each in a goroutine of its own, until the test ends, and returns
// its address.
func listenTCP(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	return ln.Addr().String()
}

// fakeFront is listenTCP but for the first connection: that is the self-probe of the proxy that is started with it, and
// is closed at once.
func fakeFront(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	var probed atomic.Bool
	return listenTCP(t, func(c *net.TCPConn) {
		if probed.Swap(true) {
			handle(c)
		}
	})
}

func echoFront(c *net.TCPConn) { io.Copy(c, c) }

// connect proves to hold the secret and asks for DC 2.
func connect(t testing.TB, s *Server, opts ...relaytest.Option) *relaytest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := relaytest.Dial(ctx, s.Addresses()[0].String(), key, frontHost, 2, opts...)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c
}

// visit connects as a stranger.
func visit(t testing.TB, s *Server) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.Addresses()[0].String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// echo sends n bytes of a pattern and wants them back.
func echo(t testing.TB, c io.ReadWriter, n int64) {
	t.Helper()
	sent := make(chan error, 1)
	go func() { sent <- relaytest.SendPattern(c, 1, n) }()
	if err := relaytest.CheckPattern(c, 1, n); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// await polls until ok holds; only the test's own deadline bounds it, since a busy machine may be slow.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func newStats() *stats.Stats {
	return stats.New("test", StatsLabels([]tlsfront.Secret{{Name: "default"}}))
}

// refuses tells whether nobody listens for s any more.
func refuses(s *Server) bool {
	c, err := net.Dial("tcp", s.Addresses()[0].String())
	if err == nil {
		c.Close()
	}
	return err != nil
}
