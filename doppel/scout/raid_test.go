package scout

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/tlsfront"
)

// scouting runs a scout of one front until the test ends. Its looks come out of the channel.
func scouting(t *testing.T, o Options, lim limits) (looks <-chan *Look, stop func()) {
	t.Helper()
	out := make(chan *Look, 100)
	o.Log = zerolog.Nop()
	o.Publish = func(front int, l *Look) {
		if front != 0 {
			t.Errorf("front %d", front)
		}
		select {
		case out <- l:
		default: // the test looks at the first ones
		}
	}
	if o.Repeats == 0 {
		o.Repeats = 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		run(ctx, o, lim)
		close(done)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return out, stop
}

func at(addresses ...netip.AddrPort) []Front {
	return []Front{{ServerName: testHost, Addresses: func() []netip.AddrPort { return addresses }}}
}

func TestRaid(t *testing.T) {
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	before := runtime.NumGoroutine()
	looks, stop := scouting(t, Options{Fronts: at(address), Repeats: 2, Each: time.Hour}, patient)
	first, l := <-looks, <-looks // an early one, and the whole
	if first.TLS == nil || first.Shape == nil {
		t.Errorf("early look %+v", first)
	}
	if l.Source != SourceRaid || l.Shape == nil || time.Since(l.At) > time.Minute {
		t.Errorf("look %+v", l)
	}
	for k, f := range l.TLS.Flights {
		if !f.OK || len(f.Records) != 2 || len(f.Records[0]) != 5 {
			t.Errorf("%v: %+v, want two observations of five records", tlsfront.HelloKind(k), f)
		}
	}
	if err := l.TLS.Validate(); err != nil {
		t.Error(err)
	}
	if len(l.Problems) != 1 || !strings.Contains(l.Problems[0], "certificate") {
		t.Errorf("problems %q", l.Problems)
	}
	stop()
	waitForGoroutines(t, before+3) // the last connection at the server
}

// TestOneConnectionAtATime also to a front with much to fetch.
func TestOneConnectionAtATime(t *testing.T) {
	var open, most, all atomic.Int32
	address := serve(t, func(c net.Conn) {
		now := open.Add(1)
		defer open.Add(-1)
		all.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{testCertificate()}})
		if s.Handshake() == nil {
			_, _ = s.Read(make([]byte, 4<<10))
			_, _ = s.Write([]byte("HTTP/1.0 200 OK\r\n\r\n"))
			s.Close()
		}
	})
	front := at(address)
	front[0].URLs = []string{"/a", "/b", "/c"}
	lim := patient
	lim.between = 50 * time.Millisecond // a server may notice late that one is over
	looks, _ := scouting(t, Options{Fronts: front, Each: time.Hour}, lim)
	<-looks
	<-looks
	if most.Load() != 1 || all.Load() < int32(tlsfront.NumHelloKinds)+1 {
		t.Errorf("%d connections at once, %d in all", most.Load(), all.Load())
	}
}

// TestAddresses: one that is dead does not hide the others.
func TestAddresses(t *testing.T) {
	dead := netip.MustParseAddrPort("127.0.0.1:1")
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	looks, _ := scouting(t, Options{Fronts: at(dead, address)}, patient)
	if l := <-looks; !l.TLS.Flights[0].OK || l.Shape == nil {
		t.Errorf("%+v", l)
	}
}

// changing is a front whose server can be exchanged.
type changing struct {
	now atomic.Pointer[netip.AddrPort]
}

func (c *changing) fronts() []Front {
	return []Front{{ServerName: testHost, Addresses: func() []netip.AddrPort {
		if a := c.now.Load(); a != nil {
			return []netip.AddrPort{*a}
		}
		return nil
	}}}
}

// TestFrontChanges: the flight follows it without a restart.
func TestFrontChanges(t *testing.T) {
	var c changing
	first, _ := serveHTTP(t, site(), true, &tls.Config{})
	second, _ := serveHTTP(t, site(), true, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}, SessionTicketsDisabled: true})
	tried := make(chan struct{}, 1)
	down := serve(t, func(net.Conn) {
		select {
		case tried <- struct{}{}:
		default:
		}
	})
	c.now.Store(&first)
	looks, _ := scouting(t, Options{Fronts: c.fronts(), Each: 10 * time.Millisecond}, patient)
	if l := <-looks; l.TLS.Flights[0].Group != uint16(tls.X25519MLKEM768) {
		t.Errorf("%+v", l.TLS.Flights[0])
	}
	c.now.Store(&down)
	<-tried
	c.now.Store(nil)
	c.now.Store(&second)
	for l := range looks {
		if f := l.TLS.Flights[0]; f.Group == uint16(tls.X25519) && len(f.Records[0]) == 4 {
			break
		}
	}
}

// TestFailingFront: nothing is published, and it is tried again, not for long each time.
func TestFailingFront(t *testing.T) {
	var hits atomic.Int32
	address := serve(t, func(net.Conn) { hits.Add(1) })
	looks, stop := scouting(t, Options{Fronts: at(address), Repeats: 1000, Each: time.Hour}, quick)
	for hits.Load() < 3*maxFailures { // at least three raids
		select {
		case l := <-looks:
			t.Fatalf("published %+v", l)
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	if len(looks) > 0 {
		t.Errorf("published %+v", <-looks)
	}
}

// TestPartOfALookStays: a front whose site fails keeps its shape, one whose TLS fails its flights.
func TestPartOfALookStays(t *testing.T) {
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	looks, stop := scouting(t, Options{Fronts: at(address)}, patient)
	whole := <-looks
	stop()
	s := newScout(&Options{Fronts: at(address)}, 0, patient, nil)
	s.look = whole

	flightsOnly := raid{scout: s}
	flightsOnly.flights[1] = []tlsfront.Flight{{Version: 0x303}}
	l := flightsOnly.sumUp(time.Now())
	if l.Shape != whole.Shape || l.TLS.Flights[1].Version != 0x303 || !reflect.DeepEqual(l.TLS.Flights[0], whole.TLS.Flights[0]) {
		t.Errorf("%+v", l)
	}
	if !whole.TLS.Flights[1].OK {
		t.Error("the look before was changed")
	}
}

// TestRaidBytes: no fetch begins that the raid's budget has no room for.
func TestRaidBytes(t *testing.T) {
	var sent atomic.Int64
	address, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for b := make([]byte, 32<<10); ; {
			n, err := w.Write(b)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}), true, &tls.Config{})
	s := newScout(&Options{Fronts: at(address)}, 0, quick, nil)
	s.lim.raidBytes = 2 << 20
	r := raid{scout: s, addresses: s.front.Addresses()}
	for range 20 {
		if err := r.visit(t.Context(), root(), true, 0, 0); err != nil {
			t.Error(err)
		}
	}
	if r.bytes > s.lim.raidBytes || r.bytes < s.lim.raidBytes*3/4 || len(r.traces) > 4 {
		t.Errorf("%d bytes, %d traces", r.bytes, len(r.traces))
	}
}

// TestHostileRaids: whatever a front does, raids on it end, and Run does.
func TestHostileRaids(t *testing.T) {
	for name, talk := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim := quick
			lim.flightTime, lim.fetchTime, lim.raidTime = 200*time.Millisecond, 200*time.Millisecond, 3*time.Second
			s := newScout(&Options{Fronts: at(serve(t, talk)), Repeats: 2, Publish: func(int, *Look) {}}, 0, lim, make(chan struct{}, 1))
			if !s.raid(t.Context()) {
				t.Error("the test is over before the raid")
			}
			if l := s.look; l != nil && (l.Shape != nil || l.TLS.Flights[0].OK || len(l.Problems) == 0) {
				t.Errorf("%+v", l)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	for _, c := range []struct {
		urls     []string
		want     string
		problems int
	}{
		{nil, "https://front.test/ +", 0},
		{[]string{"/a?b=c", "d"}, "https://front.test/a?b=c https://front.test/d", 0},
		{[]string{"https://Front.test/x"}, "https://Front.test/x", 0},
		{[]string{"http://front.test/x", "https://other.test/", "https://u:p@front.test/", ":"}, "https://front.test/ +", 4},
		{slices.Repeat([]string{"/"}, 100), strings.TrimSpace(strings.Repeat("https://front.test/ ", maxURLs)), 0},
	} {
		s := newScout(&Options{Fronts: []Front{{ServerName: testHost, URLs: c.urls}}}, 0, quick, nil)
		r := raid{scout: s}
		list, follow := r.urls()
		var got []string
		for _, u := range list {
			got = append(got, u.String())
		}
		if follow {
			got = append(got, "+")
		}
		if s := strings.Join(got, " "); s != c.want || len(r.problems) != c.problems {
			t.Errorf("%q: %s, problems %q, want %s and %d", c.urls, s, r.problems, c.want, c.problems)
		}
	}
}

func TestUntilNext(t *testing.T) {
	s := newScout(&Options{Fronts: at(), Each: 2 * time.Hour}, 0, defaultLimits, nil)
	for _, c := range []struct {
		failed int
		want   time.Duration
	}{
		{0, 2 * time.Hour}, {1, retryFirst}, {2, 2 * retryFirst}, {3, 4 * retryFirst}, {10, retryMost}, {1000, retryMost},
	} {
		s.failed = c.failed
		if got := s.untilNext(); got < c.want*9/10 || got > c.want*11/10 {
			t.Errorf("after %d failures %v, want about %v", c.failed, got, c.want)
		}
	}
	s.o.Each = time.Second
	if s.failed = 5; s.untilNext() > 2*time.Second {
		t.Error("a front that fails must be tried as often as another")
	}
}

func TestProblems(t *testing.T) {
	var f findings
	f.problem("a\x1b[31m\n\xffb")
	f.problem("a\x1b[31m\n\xffb")
	f.problem(strings.Repeat("é", maxProblem))
	for i := range 100 {
		f.problem(strings.Repeat("x", i))
	}
	if f.problems[0] != "a?[31m??b" || len(f.problems) != maxProblems || len(f.problems[1]) > maxProblem+4 {
		t.Errorf("%q", f.problems)
	}
}

// TestManyFronts: each has its turn, and its own looks.
func TestManyFronts(t *testing.T) {
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	fronts := slices.Repeat(at(address), 2*maxRaids)
	var mu sync.Mutex
	published := make(map[int]bool)
	ctx, cancel := context.WithCancel(t.Context())
	run(ctx, Options{Fronts: fronts, Repeats: 1, Each: time.Hour, Log: zerolog.Nop(), Publish: func(front int, l *Look) {
		mu.Lock()
		defer mu.Unlock()
		published[front] = true
		if len(published) == len(fronts) {
			cancel()
		}
	}}, patient)
}

// TestSameErrorSameProblem: an error is told once, although each connection has another port of ours.
func TestSameErrorSameProblem(t *testing.T) {
	address := serve(t, hostile["resets"])
	var f findings
	for range 5 {
		_, err := probeFlight(t.Context(), address, testHost, tlsfront.HelloHybrid, quick)
		f.problem(withoutPort(err))
	}
	if len(f.problems) > 2 { // writing to it may fail, or reading
		t.Errorf("%q", f.problems)
	}
}
