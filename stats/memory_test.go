package stats

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func fixture(name string) memory {
	return memory{root: os.DirFS(filepath.Join("testdata", name)), pageSize: 4096}
}

func TestMemory(t *testing.T) {
	const rss = 2200 * 4096
	for _, c := range []struct {
		fixture string
		want    usage
	}{
		{"v2", usage{rss, 30_000_000, 8_000_000}},
		{"v1", usage{rss, 25_000_000, 5_000_000}},
		{"container", usage{rss, 40_000_000, 0}},
		{"none", usage{rss: rss}},
		{"broken", usage{}},
		{"absent", usage{}},
	} {
		if got := fixture(c.fixture).read(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.fixture, got, c.want)
		}
	}
}

func TestMemoryHere(t *testing.T) {
	const least = 1 << 20 // a Go program has more
	if u := New("test", labels).memory.read(); u.rss < least {
		t.Errorf("this process is said to have %d resident bytes", u.rss)
	}
}

func TestDivide(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		name                  string
		relayed, now, base    int64
		bytes, perGB, byGrown int64 // -1: null
	}{
		{"none", 0, 10 * mib, 9 * mib, -1, -1, -1},
		{"too few", 99, 10 * mib, 9 * mib, -1, -1, -1},
		{"just enough", 100, 10 * mib, 9 * mib, 10486, 10240, 102400},
		{"many", 500_000, gib + 8*mib, 8 * mib, 2147, 496_124, 500_000},
		{"shrunk", 100, 8 * mib, 9 * mib, -1, 12800, -1},
		{"no growth", 100, 8 * mib, 8 * mib, -1, 12800, -1},
		{"no reading", 100, 0, 8 * mib, -1, -1, -1},
		{"no baseline", 100, 8 * mib, 0, -1, 12800, -1},
	} {
		p := divide(c.relayed, c.now, c.base)
		for _, f := range []struct {
			name string
			got  *int64
			want int64
		}{
			{"bytes per connection", p.BytesPerConnection, c.bytes},
			{"connections per GB", p.ConnectionsPerGB, c.perGB},
			{"marginal connections per GB", p.MarginalConnectionsPerGB, c.byGrown},
		} {
			got := int64(-1)
			if f.got != nil {
				got = *f.got
			}
			if got != f.want {
				t.Errorf("%s: %d %s, want %d", c.name, got, f.name, f.want)
			}
		}
	}
}

func TestBaseline(t *testing.T) {
	root := fstest.MapFS{"proc/self/statm": {Data: []byte("1 100")}}
	s := newStats("test", labels, memory{root: root, pageSize: 4096}, fixedClock())
	root["proc/self/statm"].Data = []byte("1 300")
	s.Baseline()
	root["proc/self/statm"].Data = []byte("1 400")
	s.Connections[stateRelay].Add(100)
	if got := s.snapshot().BytesPerConnection; got == nil || *got != 4096 {
		t.Errorf("bytes per connection: %v, want 4096", got)
	}
}
