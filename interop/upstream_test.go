package interop

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// blackHole returns an address that neither accepts nor refuses a connection: a listener's whose queue is full, so that
// the kernel drops every further SYN.
func blackHole(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0").(*net.TCPListener)
	t.Cleanup(func() { l.Close() })
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) })
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	for range 10 {
		conn, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the listener's queue does not fill")
	return ""
}

// nobody returns an address that refuses connections.
func nobody(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }

// TestLeavingWhileDialling: the DC does not answer, the client gives up, and so does the proxy: long before the timer
// of the dial, which is set to five minutes here.
func TestLeavingWhileDialling(t *testing.T) {
	const clients = 50
	s := startScene(t, sceneConfig{dcs: []string{blackHole(t)}, tables: "[network.timeout]\ntcp = \"5m\"\n"})
	watchBystander(t, s)
	fds := s.restingFDs(t)
	for name, leave := range map[string]func(*relaytest.Client){
		"FIN":                   func(c *relaytest.Client) { c.CloseWrite() },
		"FIN after bytes":       func(c *relaytest.Client) { c.Write(pattern(100_000)); c.CloseWrite() },
		"closed":                func(c *relaytest.Client) { c.Close() },
		"RST":                   func(c *relaytest.Client) { reset(c.NetConn()) },
		"RST with bytes unread": func(c *relaytest.Client) { c.Write(pattern(100_000)); reset(c.NetConn()) },
	} {
		t.Run(name, func(t *testing.T) {
			all := make([]*relaytest.Client, clients)
			for i := range all {
				all[i] = s.dial(t, 2)
			}
			until(t, func() (bool, string) { // both sockets of each are there
				n := s.fds(t)
				return n == fds+2*clients, fmt.Sprintf("%d descriptors, %d expected", n, fds+2*clients)
			})
			for _, c := range all {
				leave(c)
			}
			s.untilFDs(t, fds)
			for _, c := range all {
				readToEnd(c.NetConn()) // that there is an end is what counts
				c.Close()
			}
		})
	}
}

// TestNextAddress: a DC's address that refuses or is silent costs a moment, not the session; what the client sends
// meanwhile is kept.
func TestNextAddress(t *testing.T) {
	for name, c := range map[string]sceneConfig{
		"the first refuses":        {dcs: []string{nobody(t), sceneDC}},
		"two refuse":               {dcs: []string{nobody(t), nobody(t), sceneDC}},
		"the first is silent":      {dcs: []string{blackHole(t), sceneDC}},
		"one is silent, one not":   {dcs: []string{blackHole(t), nobody(t), sceneDC}},
		"the first times out soon": {dcs: []string{blackHole(t), sceneDC}, tables: "[network.timeout]\ntcp = \"100ms\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startScene(t, c)
			watchBystander(t, s)
			fds := s.restingFDs(t)
			s.work[2] = relaytest.Echo
			for range 3 {
				client := s.dial(t, 2)
				bounce(t, client, 500_000)
				client.Close()
			}
			s.untilFDs(t, fds)
		})
	}
}

// TestNoDC: no address of the DC answers. The client is given the end that a site would give it.
func TestNoDC(t *testing.T) {
	for name, c := range map[string]sceneConfig{
		"all refuse":     {dcs: []string{nobody(t), nobody(t)}},
		"all are silent": {dcs: []string{blackHole(t), blackHole(t)}, tables: "[network.timeout]\ntcp = \"1s\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startScene(t, c)
			watchBystander(t, s)
			fds := s.restingFDs(t)
			clients := make([]*relaytest.Client, 5)
			for i := range clients {
				clients[i] = s.dial(t, 2)
			}
			for _, c := range clients {
				expectEnd(t, c)
				c.Close()
			}
			s.untilFDs(t, fds)
		})
	}
}

// TestNoFront: the site is down. A stranger is not left hanging, and clients do not notice.
func TestNoFront(t *testing.T) {
	for name, front := range map[string]string{"refuses": nobody(t), "is silent": blackHole(t)} {
		t.Run(name, func(t *testing.T) {
			s := startScene(t, sceneConfig{front: front, tables: "[network.timeout]\ntcp = \"1s\"\n"})
			watchBystander(t, s)
			fds := s.restingFDs(t)
			conns := make([]*net.TCPConn, 5)
			for i := range conns {
				conns[i] = s.dialRaw(t)
				if _, err := conns[i].Write(pattern(500)); err != nil {
					t.Fatal(err)
				}
			}
			for _, conn := range conns {
				if got, end := readToEnd(conn); end == endHeld || len(got) > 0 {
					t.Errorf("the stranger got %d bytes, then %s", len(got), end)
				}
				conn.Close()
			}
			s.untilFDs(t, fds)
		})
	}
}
