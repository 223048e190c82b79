package loop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"mtrelay/relay"
)

func TestOwnAddresses(t *testing.T) {
	public := []netip.Addr{netip.MustParseAddr("203.0.113.7")}
	for _, test := range []struct {
		listener, target string
		want             bool
	}{
		{"127.0.0.1:443", "127.0.0.1:443", true},
		{"127.0.0.1:443", "127.0.0.1:444", false},
		{"127.0.0.1:443", "127.0.0.2:443", false},
		{"127.0.0.1:443", "[::ffff:127.0.0.1]:443", true},
		{"0.0.0.0:443", "127.9.9.9:443", true},
		{"0.0.0.0:443", "0.0.0.0:443", true},
		{"0.0.0.0:443", "198.51.100.1:443", false},
		{"0.0.0.0:443", "203.0.113.7:443", true},
		{"0.0.0.0:443", "203.0.113.7:8443", false},
		{"[::]:443", "[::1]:443", true},
		{"[::]:443", "127.0.0.1:443", true},
		{"[fe80::1%1]:443", "[fe80::1]:443", true},
	} {
		o := newOwnAddresses([]netip.AddrPort{mustAddr(test.listener)}, public)
		if got := o.contains(mustAddr(test.target)); got != test.want {
			t.Errorf("listening on %s, %s is ours: %v, want %v", test.listener, test.target, got, test.want)
		}
	}
}

// TestFrontThatIsTheProxy: started on a wildcard address, with a front that is this very port.
func TestFrontThatIsTheProxy(t *testing.T) {
	free := refusing(t)
	o := options("127.0.0.1:1", free.String())
	o.Listen = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), free.Port())}
	before := openDescriptors(t)
	if _, err := Start(o); !errors.Is(err, errLoop) {
		t.Fatalf("started: %v", err)
	}
	if after := openDescriptors(t); after > before { // those of tests before may still be closing
		t.Fatalf("%d descriptors open, %d before", after, before)
	}
}

// TestFrontThatLeadsBack: a forwarder stands between, so no address tells.
func TestFrontThatLeadsBack(t *testing.T) {
	free := refusing(t)
	forwarder := listenTCP(t, func(c *net.TCPConn) { forward(c, free.String()) })
	o := options("127.0.0.1:1", forwarder)
	o.Listen = []netip.AddrPort{free}
	before := openDescriptors(t)
	if _, err := Start(o); !errors.Is(err, errLoop) {
		t.Fatalf("started: %v", err)
	}
	await(t, "descriptors are back", func() bool { return openDescriptors(t) <= before })
}

// TestFrontThatLeadsBackLater: at start it was a site, at the next resolution it is not.
func TestFrontThatLeadsBackLater(t *testing.T) {
	var leadsBack atomic.Pointer[string]
	front := fakeFront(t, func(c *net.TCPConn) {
		if to := leadsBack.Load(); to != nil {
			forward(c, *to)
			return
		}
		echoFront(c)
	})
	s := serve(t, options("127.0.0.1:1", front))
	if list, _ := s.fronts.addresses(0); len(list) != 1 {
		t.Fatalf("the front is at %v", list)
	}
	own := s.Addresses()[0].String()
	leadsBack.Store(&own)
	if err := s.fronts.find(0); !errors.Is(err, errLoop) {
		t.Fatalf("found: %v", err)
	}
	if list, pending := s.fronts.addresses(0); len(list) != 0 || pending {
		t.Fatalf("the front is at %v, pending %v", list, pending)
	}
	await(t, "all is quiet again", func() bool { return s.Clients() == 0 && s.fronted.taken.Load() == 0 })
}

func forward(c *net.TCPConn, to string) {
	defer c.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	go io.Copy(up, c)
	io.Copy(c, up)
}

// TestCopyOfAProbe: whoever saw the proxy probe its front and sends the same hello is shown the front.
func TestCopyOfAProbe(t *testing.T) {
	hellos := make(chan []byte, 10)
	front := listenTCP(t, func(c *net.TCPConn) {
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		hellos <- b[:n]
		c.Write([]byte("alert"))
	})
	s := serve(t, options("127.0.0.1:1", front))
	probe := <-hellos
	v := visit(t, s)
	v.Write(probe)
	if got, err := io.ReadAll(v); err != nil || string(got) != "alert" {
		t.Fatalf("the copy got %q, %v", got, err)
	}
	if again := <-hellos; !bytes.Equal(again, probe) {
		t.Fatal("the front did not get the copy")
	}
}

// TestOneOfTheFrontsAddressesLeadsBack: the others stay in use.
func TestOneOfTheFrontsAddressesLeadsBack(t *testing.T) {
	good := mustAddr(fakeFront(t, echoFront))
	s := serve(t, options("127.0.0.1:1", good.String()))
	list, err := s.fronts.usable(s.opts.Fronts[0], []netip.AddrPort{s.Addresses()[0], good})
	if err != nil || len(list) != 1 || list[0] != good {
		t.Fatalf("usable: %v, %v", list, err)
	}
}

func TestFrontWithoutAnAddressOfTheFamily(t *testing.T) {
	s := serve(t, options("127.0.0.1:1", fakeFront(t, echoFront)))
	s.opts.Prefer = relay.OnlyIPv6
	if err := s.fronts.find(0); !errors.Is(err, errFamily) {
		t.Fatalf("found: %v", err)
	}
}
