package relay

import (
	"net/netip"
	"slices"
	"testing"
)

func addrs(texts ...string) (list []netip.AddrPort) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddrPort(text))
	}
	return list
}

func TestDCTableLookup(t *testing.T) {
	const own, star = "10.0.0.1:443", "127.0.0.1:17001"
	lines := func(ids ...int) map[int][]netip.AddrPort {
		m := map[int][]netip.AddrPort{}
		for _, id := range ids {
			m[id] = addrs(own)
		}
		return m
	}
	builtin := NewDCTable(nil, nil, PreferIPv4, false)
	withFallback := NewDCTable(nil, nil, PreferIPv4, true)
	starred := NewDCTable(lines(2, -4), addrs(star), PreferIPv4, true)
	positive := NewDCTable(lines(-4), nil, PreferIPv4, false)
	for _, c := range []struct {
		name  string
		table *DCTable
		dc    int
		first string // "" for unknown
		id    int
	}{
		{"built-in", builtin, 1, "149.154.175.50:443", 1},
		{"built-in", builtin, 5, "149.154.171.5:443", 5},
		{"media", builtin, -4, "149.154.167.91:443", -4},
		{"CDN", builtin, 203, "91.105.192.100:443", 203},
		{"CDN media", builtin, -203, "91.105.192.100:443", -203},
		{"test", builtin, 10002, "149.154.167.40:443", 10002},
		{"test media", builtin, -10003, "149.154.175.117:443", -10003},
		{"unknown", builtin, 6, "", 6},
		{"unknown test", builtin, 10004, "", 10004},
		{"zero", builtin, 0, "", 0},
		{"no counterpart in int16", builtin, -32768, "", -32768},
		{"fallback", withFallback, 6, "149.154.167.51:443", 2},
		{"fallback of a media id", withFallback, -32768, "149.154.167.51:443", 2},
		{"fallback not taken", withFallback, -3, "149.154.175.100:443", -3},
		{"own line", starred, 2, own, 2},
		{"line of |id|", starred, -2, own, -2},
		{"own negative line", starred, -4, own, -4},
		{"negative line is not |id|'s", starred, 4, star, 4},
		{"negative line, no star", positive, 4, "149.154.167.91:443", 4},
		{"star before built-in", starred, 1, star, 1},
		{"star before fallback", starred, 77, star, 77},
	} {
		list, id := c.table.Lookup(c.dc)
		first := ""
		if len(list) > 0 {
			first = list[0].String()
		}
		if first != c.first || id != c.id {
			t.Errorf("%s: Lookup(%d) = %q…, %d, want %q…, %d", c.name, c.dc, first, id, c.first, c.id)
		}
	}
}

func TestDCTablePrefer(t *testing.T) {
	v4a, v4b, v6 := "149.154.167.51:443", "95.161.76.100:443", "[2001:67c:4e8:f002::a]:443"
	for _, c := range []struct {
		prefer Prefer
		want   []netip.AddrPort
	}{
		{PreferIPv4, addrs(v4a, v4b, v6)},
		{PreferIPv6, addrs(v6, v4a, v4b)},
		{OnlyIPv4, addrs(v4a, v4b)},
		{OnlyIPv6, addrs(v6)},
	} {
		if got, _ := NewDCTable(nil, nil, c.prefer, false).Lookup(2); !slices.Equal(got, c.want) {
			t.Errorf("prefer %d: %v, want %v", c.prefer, got, c.want)
		}
		mine := map[int][]netip.AddrPort{3: addrs(v6, v4a, v4b)}
		if got, _ := NewDCTable(mine, nil, c.prefer, false).Lookup(3); !slices.Equal(got, c.want) {
			t.Errorf("prefer %d, own line: %v, want %v", c.prefer, got, c.want)
		}
	}
	onlyV6 := map[int][]netip.AddrPort{3: addrs(v6)}
	if got, _ := NewDCTable(onlyV6, nil, OnlyIPv4, false).Lookup(3); got[0].String() != "149.154.175.100:443" {
		t.Errorf("a line without a wanted address: %v, want the built-in one", got)
	}
}

func TestDCTableLookupAllocatesNothing(t *testing.T) {
	skipUnderRace(t)
	table := NewDCTable(nil, nil, PreferIPv4, true)
	if n := testing.AllocsPerRun(100, func() { table.Lookup(-2); table.Lookup(99) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDCLabels(t *testing.T) {
	var table *DCTable
	for dc, want := range map[int]string{
		1: "1", -5: "5", 203: "203", -203: "203", 10001: "test", -10003: "test",
		0: "other", 6: "other", 10000: "other", 10004: "other", -32768: "other", 32767: "other",
	} {
		if got := DCLabels()[table.Label(dc)]; got != want {
			t.Errorf("DC %d: label %q, want %q", dc, got, want)
		}
	}
}

func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("allocation counts mean nothing under the race detector")
	}
}
