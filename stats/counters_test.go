package stats

import (
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var labels = Labels{
	States:       []string{"hello", "relay", "front", "closed"},
	FrontReasons: []string{"", "digest", "clock"},
	EndReasons:   []string{"", "client-closed", "idle"},
	DCs:          []string{"1", "2", "other"},
	Fronts:       []string{"www.example.com", "unseen.example"},
}

const (
	stateHello = iota
	stateRelay
	stateFront
	stateClosed
)

// fixedClock returns a clock that moves on by a minute each time it is read.
func fixedClock() func() time.Time {
	now := time.Unix(1_800_000_000, 0)
	return func() time.Time {
		now = now.Add(time.Minute)
		return now
	}
}

// relaySession counts what a busy session does, errors included.
func relaySession(s *Stats) {
	s.Accepted.Inc()
	s.Connections[stateHello].Inc()
	s.Handshakes.Inc()
	s.DCs[1].Dialed(time.Second, false)
	s.DCs[1].Dialed(time.Second, true)
	s.Move(stateHello, stateRelay)
	s.DCs[1].Up.Add(300)
	s.DCs[1].Down.Add(4000)
	s.Connections[stateRelay].Dec()
	s.Ended[1].Inc()
}

func strangerSession(s *Stats) {
	s.AcceptError(syscall.EMFILE)
	s.AcceptError(syscall.EHOSTUNREACH)
	s.Refused[Unproven].Inc()
	s.Accepted.Inc()
	s.Connections[stateHello].Inc()
	s.ToFront[2].Inc()
	s.Front.Dialed(time.Minute, false)
	s.FrontUnreachable.Inc()
	s.Front.Dialed(time.Millisecond, true)
	s.Move(stateHello, stateFront)
	s.Front.Up.Add(50)
	s.Front.Down.Add(600)
	s.Connections[stateFront].Dec()
	s.Ended[0].Inc()
	s.Ended[2].Inc()
}

func TestCountingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := New("test", labels)
	if n := testing.AllocsPerRun(100, func() { relaySession(s); strangerSession(s) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestSeriesAreClosed shows that nothing a peer does makes a new series.
func TestSeriesAreClosed(t *testing.T) {
	s := New("test", labels)
	before := s.set.ListMetricNames()
	for errno := range syscall.Errno(200) {
		s.AcceptError(errno)
	}
	relaySession(s)
	strangerSession(s)
	if after := s.set.ListMetricNames(); !slices.Equal(before, after) {
		t.Errorf("series before: %q\nafter: %q", before, after)
	}
}

func TestAcceptError(t *testing.T) {
	s := New("test", labels)
	for errno := range acceptErrnos {
		s.AcceptError(errno)
	}
	s.AcceptError(syscall.EHOSTUNREACH)
	s.AcceptError(syscall.ENETDOWN)
	for name, n := range s.accepts().Errors {
		want := uint64(1)
		if name == "other" {
			want = 2
		}
		if n != want {
			t.Errorf("%s: counted %d times, want %d", name, n, want)
		}
	}
}

func TestNewRefusesLabels(t *testing.T) {
	for name, l := range map[string]Labels{
		"no relay state": {States: []string{"hello"}},
		"a DC twice":     {States: []string{"relay"}, DCs: []string{"1", "1"}},
		"a reason twice": {States: []string{"relay"}, EndReasons: []string{"idle", "idle"}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: New did not panic", name)
				}
			}()
			New("test", l)
		}()
	}
}

func TestNames(t *testing.T) {
	for _, name := range New("test", labels).set.ListMetricNames() {
		if !strings.HasPrefix(name, "mtrelay_") {
			t.Errorf("%s is not named after the program", name)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	s := newStats("test", labels, memory{root: os.DirFS("testdata/v2"), pageSize: 4096}, time.Now)
	const loops, sessions = 4, 200
	var all sync.WaitGroup
	for range loops {
		all.Go(func() {
			for range sessions {
				relaySession(s)
				strangerSession(s)
			}
		})
		all.Go(func() {
			for range 20 {
				get(t, s, "/metrics")
				get(t, s, "/stats")
			}
		})
	}
	all.Wait()
	snap := s.snapshot()
	if n := snap.Connections.Total; n != 0 {
		t.Errorf("%d connections are left open", n)
	}
	if n := snap.Accepts.Accepted; n != 2*loops*sessions {
		t.Errorf("%d accepted, want %d", n, 2*loops*sessions)
	}
	if n := snap.Bytes.Relay.Down; n != 4000*loops*sessions {
		t.Errorf("%d bytes down, want %d", n, 4000*loops*sessions)
	}
}

func BenchmarkMove(b *testing.B) {
	s := New("test", labels)
	b.ReportAllocs()
	for b.Loop() {
		s.Move(stateHello, stateRelay)
	}
}

func BenchmarkBytes(b *testing.B) {
	s := New("test", labels)
	b.ReportAllocs()
	for b.Loop() {
		s.DCs[1].Down.Add(16401)
	}
}
