package loop

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
	"mtrelay/relay/relaytest"
)

// refusing returns an address at which nobody listens.
func refusing(t testing.TB) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// silent returns an address that does not answer a SYN: a listener whose queue is full.
func silent(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, sockaddr(mustAddr("127.0.0.1:0"))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := addrPort(sa)
	for {
		c, err := net.DialTimeout("tcp", address.String(), 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
}

// withDCs sends every DC to these addresses.
func withDCs(o Options, addresses ...netip.AddrPort) Options {
	o.DCs = relay.NewDCTable(nil, addresses, relay.PreferIPv4, false)
	return o
}

func TestNextAddressAfterRefusal(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	s := serve(t, withDCs(o, refusing(t), mustAddr(dc.Addr())))
	echo(t, connect(t, s), 1000)
}

// TestNextAddressBesideSilentOne: the second address is tried long before the first times out.
func TestNextAddressBesideSilentOne(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.Connect = time.Hour
	s := serve(t, withDCs(o, silent(t), mustAddr(dc.Addr())))
	echo(t, connect(t, s), 1000)
}

func TestSilentAddressTimesOut(t *testing.T) {
	o := options("127.0.0.1:1", fakeFront(t, echoFront))
	o.Connect = 50 * time.Millisecond
	s := serve(t, withDCs(o, silent(t)))
	c := connect(t, s)
	if notified, err := c.ReadEnd(); err != nil || !notified {
		t.Fatalf("close_notify %v, %v", notified, err)
	}
	c.Close()
	await(t, "the session ended", func() bool { return s.Clients() == 0 })
}

// TestFailedAddressComesLast: having failed once, an address is tried after the others.
func TestFailedAddressComesLast(t *testing.T) {
	s := serve(t, options("127.0.0.1:1", fakeFront(t, echoFront)))
	bad, good := mustAddr("127.0.0.1:2"), mustAddr("127.0.0.1:3")
	got := make(chan []netip.AddrPort)
	s.loops[0].call(func(l *loop) {
		l.shun(bad)
		got <- l.inOrder([]netip.AddrPort{bad, good})
		l.now = l.now.Add(avoidFor + 1)
		got <- l.inOrder([]netip.AddrPort{bad, good})
	})
	if list := <-got; list[0] != good {
		t.Errorf("right after the failure: %v", list)
	}
	if list := <-got; list[0] != bad {
		t.Errorf("a minute later: %v", list)
	}
}

// TestClientGoneWhileDialling: the dial is given up and its descriptors are closed.
func TestClientGoneWhileDialling(t *testing.T) {
	o := options("127.0.0.1:1", fakeFront(t, echoFront))
	o.Connect = time.Hour
	s := serve(t, withDCs(o, silent(t)))
	base := openDescriptors(t)
	fin, rst := connect(t, s), connect(t, s)
	await(t, "both are being dialled for", func() bool { return openDescriptors(t) >= base+6 })
	fin.Close()
	rst.NetConn().(*net.TCPConn).SetLinger(0)
	rst.Close()
	await(t, "both are gone", func() bool { return s.Clients() == 0 && openDescriptors(t) <= base })
}

func TestUnreachableFrontCloses(t *testing.T) {
	s := serve(t, options("127.0.0.1:1", refusing(t).String()))
	c := visit(t, s)
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}
