package loop

import (
	"net/netip"
	"testing"
)

func TestRecentForgetsTheOldest(t *testing.T) {
	var r recent
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	if got := r.secret(addr(1)); got != 0 {
		t.Fatalf("%d for an address never seen", got)
	}
	for i := range 3 * maxRecent {
		r.note(addr(i), i)
		if got := r.secret(addr(i)); got != i {
			t.Fatalf("address %d: %d", i, got)
		}
		if n := len(r.young) + len(r.old); n > 2*maxRecent {
			t.Fatalf("%d addresses are remembered", n)
		}
	}
	if got := r.secret(addr(0)); got != 0 {
		t.Fatalf("the oldest address is still remembered: %d", got)
	}
	r.note(addr(3*maxRecent-1), 7)
	if got := r.secret(addr(3*maxRecent - 1)); got != 7 {
		t.Fatalf("the newest use does not count: %d", got)
	}
}
