package relay

import "net/netip"

// Prefer says which address family of a DC is dialled, and which first: the prefer-ip of the configuration.
type Prefer uint8

const (
	PreferIPv6 Prefer = iota
	PreferIPv4
	OnlyIPv6
	OnlyIPv4
)

// Ids of DCs (core.telegram.org/mtproto/mtproto-transports): negative for the media servers of a DC.
const (
	cdnDC      = 203
	testDCs    = 10000 // a test DC n is testDCs+n
	fallbackDC = 2     // mtg's choice for ids that nobody knows, so that its configurations behave the same
)

// builtinDCs are the public addresses, by |id|.
var builtinDCs = map[int][]string{
	1:           {"149.154.175.50:443", "[2001:b28:f23d:f001::a]:443"},
	2:           {"149.154.167.51:443", "95.161.76.100:443", "[2001:67c:4e8:f002::a]:443"},
	3:           {"149.154.175.100:443", "[2001:b28:f23d:f003::a]:443"},
	4:           {"149.154.167.91:443", "[2001:67c:4e8:f004::a]:443"},
	5:           {"149.154.171.5:443", "[2001:b28:f23f:f005::a]:443"},
	cdnDC:       {"91.105.192.100:443", "[2a0a:f280:203:a:5000::100]:443"},
	testDCs + 1: {"149.154.175.10:443", "[2001:b28:f23d:f001::e]:443"},
	testDCs + 2: {"149.154.167.40:443", "[2001:67c:4e8:f002::e]:443"},
	testDCs + 3: {"149.154.175.117:443", "[2001:b28:f23d:f003::e]:443"},
}

// DCTable knows the addresses of every DC. It is immutable and may be shared by loops.
type DCTable struct {
	lines    map[int][]netip.AddrPort // of the configuration
	star     []netip.AddrPort
	builtin  map[int][]netip.AddrPort
	fallback bool
}

// NewDCTable makes the table. overrides holds the configuration's line for an id, star its line for ids
// without one, fallback whether an unknown id is sent to DC 2 rather than refused. prefer filters and
// orders every list, the configured ones included; an entry that it leaves empty counts as absent.
func NewDCTable(overrides map[int][]netip.AddrPort, star []netip.AddrPort, prefer Prefer, fallback bool) *DCTable {
	t := &DCTable{
		lines:    make(map[int][]netip.AddrPort, len(overrides)),
		star:     prefer.Arrange(star),
		builtin:  make(map[int][]netip.AddrPort, len(builtinDCs)),
		fallback: fallback,
	}
	for id, line := range overrides {
		t.lines[id] = prefer.Arrange(line)
	}
	for id, texts := range builtinDCs {
		list := make([]netip.AddrPort, len(texts))
		for i, text := range texts {
			list[i] = netip.MustParseAddrPort(text)
		}
		t.builtin[id] = prefer.Arrange(list)
	}
	return t
}

// Arrange returns a copy of list in which the preferred family comes first and an unwanted one is left
// out; within a family the order stays.
func (p Prefer) Arrange(list []netip.AddrPort) []netip.AddrPort {
	var v4, v6 []netip.AddrPort
	for _, a := range list {
		if a.Addr().Unmap().Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	switch p {
	case OnlyIPv4:
		return v4
	case OnlyIPv6:
		return v6
	case PreferIPv4:
		return append(v4, v6...)
	default:
		return append(v6, v4...)
	}
}

// Lookup returns the addresses of the DC that a client named, in the order to be tried, and the id to be
// passed on to it: dc itself unless the fallback was taken. No addresses: the id is unknown. The slice is
// shared and must not be changed.
//
// The first of these that is not empty: the line of dc, the line of |dc|, the "*" line, the built-in
// addresses of |dc|, those of the fallback. So one "*" line captures every id, as tests want it.
func (t *DCTable) Lookup(dc int) (addrs []netip.AddrPort, id int) {
	n := abs(dc)
	for _, list := range [...][]netip.AddrPort{t.lines[dc], t.lines[n], t.star, t.builtin[n]} {
		if len(list) > 0 {
			return list, dc
		}
	}
	if !t.fallback || n == fallbackDC {
		return nil, dc
	}
	return t.Lookup(fallbackDC)
}

// abs works on int because ids are int16, of which -32768 has no counterpart.
func abs(dc int) int {
	if dc < 0 {
		return -dc
	}
	return dc
}

var dcLabels = []string{"1", "2", "3", "4", "5", "203", "test", "other"}

// DCLabels lists the metric labels of DCs. Clients choose the id, so the set is closed.
func DCLabels() []string { return dcLabels }

// Label returns the index into DCLabels that stands for dc; media ids count with their DC.
func (*DCTable) Label(dc int) int {
	switch n := abs(dc); {
	case 1 <= n && n <= 5:
		return n - 1
	case n == cdnDC:
		return 5
	case testDCs < n && n <= testDCs+3:
		return 6
	default:
		return 7
	}
}
