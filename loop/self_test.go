package loop

import (
	"errors"
	"net/netip"
	"testing"
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
	if after := openDescriptors(t); after != before {
		t.Fatalf("%d descriptors open, %d before", after, before)
	}
}
