package loop

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// ownAddresses knows what leads back to our own listeners. A listener on an unspecified address is
// reached by every address of this machine. Safe for concurrent use.
type ownAddresses struct {
	listeners  []netip.AddrPort
	public     []netip.Addr // under which the operator says we are reached, through a NAT for instance
	interfaces atomic.Pointer[[]netip.Addr]
}

func newOwnAddresses(listeners []netip.AddrPort, public []netip.Addr) *ownAddresses {
	o := &ownAddresses{listeners: listeners, public: public}
	o.refresh()
	return o
}

// refresh reads the machine's addresses anew. When that fails, the old ones stay.
func (o *ownAddresses) refresh() {
	found, err := net.InterfaceAddrs()
	if err != nil && o.interfaces.Load() != nil {
		return
	}
	var own []netip.Addr
	for _, a := range found {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	o.interfaces.Store(&own)
}

// contains tells whether a connection to target would arrive at one of our listeners.
func (o *ownAddresses) contains(target netip.AddrPort) bool {
	addr := target.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(o.listeners, func(l netip.AddrPort) bool {
		if l.Port() != target.Port() {
			return false
		}
		return l.Addr().Unmap().WithZone("") == addr || slices.Contains(o.public, addr) ||
			l.Addr().IsUnspecified() && o.local(addr)
	})
}

// local tells whether addr is this machine. Connecting to an unspecified address means loopback.
func (o *ownAddresses) local(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsUnspecified() || slices.Contains(*o.interfaces.Load(), addr)
}
