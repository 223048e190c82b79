package loop

import "net/netip"

// maxRecent bounds the addresses that are remembered in one generation.
const maxRecent = 4096

// recent remembers which secret was last used from an address, so that a client among a thousand secrets
// costs one HMAC rather than a thousand. It forgets by generations: when the young one is full, the old one
// goes. Owned by one loop.
type recent struct {
	young, old map[netip.Addr]int32
}

// secret returns the index of the secret last used from addr, 0 if none is remembered.
func (r *recent) secret(addr netip.Addr) int {
	if i, ok := r.young[addr]; ok {
		return int(i)
	}
	return int(r.old[addr])
}

// note remembers that a client at addr proved to hold this secret.
func (r *recent) note(addr netip.Addr, secret int) {
	if r.young == nil || len(r.young) == maxRecent {
		r.young, r.old = make(map[netip.Addr]int32), r.young
	}
	r.young[addr] = int32(secret)
}
