package stats

import (
	"bufio"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func wellness() error { return nil }

// get asks a handler of s and returns the body of a 200.
func get(t *testing.T, s *Stats, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler("/metrics", wellness).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != http.StatusOK {
		t.Errorf("GET %s: status %d", path, w.Code)
	}
	return w.Body.String()
}

// fixedStats has seen 120 relay sessions, which are still open, and 3 strangers, who have left.
func fixedStats() *Stats {
	s := newStats("v1.2.3", labels, fixture("v2"), fixedClock())
	s.base = usage{rss: 8_000_000, cgroup: 25_000_000}
	for range 120 {
		relaySession(s)
		s.Connections[stateRelay].Inc()
	}
	for range 3 {
		strangerSession(s)
	}
	s.WatchReplay(func() int { return 120 }, func() int { return 9600 })
	s.SetLook(0, Look{
		At: time.Unix(1_800_000_000, 0), Source: LookState, TLS13: true, Shaped: true,
		Connections: 20, Bursts: 40, Records: 1280, Problems: 2,
	})
	return s
}

func TestStatsGolden(t *testing.T) {
	const golden = "testdata/stats.golden.json"
	got := get(t, fixedStats(), "/stats")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("/stats is\n%swant\n%s", got, want)
	}
}

// TestStatsWithoutMemory shows what a small crowd on a system without figures looks like.
func TestStatsWithoutMemory(t *testing.T) {
	body := get(t, newStats("v1.2.3", labels, fixture("absent"), fixedClock()), "/stats")
	for _, want := range []string{
		`"rss_bytes": 0,`, `"bytes_per_connection": null,`, `"connections_per_gb": null,`,
		`"marginal_connections_per_gb": null,`, `"cgroup": null`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/stats lacks %s:\n%s", want, body)
		}
	}
}

// sample allows the blank after a comma that go_info_ext has.
var sample = regexp.MustCompile(`^([a-z_][a-z0-9_]*)(\{([a-zA-Z_]+="[^"\\]*"(, ?[a-zA-Z_]+="[^"\\]*")*)?\})? (\S+)$`)

// parse reads the Prometheus text format strictly and returns the value of each series.
func parse(t *testing.T, text string) map[string]float64 {
	t.Helper()
	series := make(map[string]float64)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		m := sample.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Errorf("not a sample: %q", lines.Text())
			continue
		}
		value, err := strconv.ParseFloat(m[5], 64)
		if err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
		if _, twice := series[m[1]+m[2]]; twice {
			t.Errorf("%s%s comes twice", m[1], m[2])
		}
		series[m[1]+m[2]] = value
	}
	return series
}

func TestMetrics(t *testing.T) {
	series := parse(t, get(t, fixedStats(), "/metrics"))
	for name, want := range map[string]float64{
		`mtrelay_info{version="v1.2.3"}`:                                      1,
		`mtrelay_start_time_seconds`:                                          1_800_000_060,
		`mtrelay_accepted_total`:                                              123,
		`mtrelay_accept_errors_total{errno="EMFILE"}`:                         3,
		`mtrelay_accept_errors_total{errno="other"}`:                          3,
		`mtrelay_refused_total{limit="unproven"}`:                             3,
		`mtrelay_refused_total{limit="concurrency"}`:                          0,
		`mtrelay_connections{state="relay"}`:                                  120,
		`mtrelay_connections{state="hello"}`:                                  0,
		`mtrelay_handshakes_total{verdict="accepted"}`:                        120,
		`mtrelay_handshakes_total{verdict="front",reason="clock"}`:            3,
		`mtrelay_handshakes_total{verdict="front",reason="digest"}`:           0,
		`mtrelay_front_unreachable_total`:                                     3,
		`mtrelay_sessions_ended_total{reason="client-closed"}`:                120,
		`mtrelay_bytes_total{direction="up",traffic="relay",dc="2"}`:          36_000,
		`mtrelay_bytes_total{direction="down",traffic="relay",dc="2"}`:        480_000,
		`mtrelay_bytes_total{direction="down",traffic="relay",dc="other"}`:    0,
		`mtrelay_bytes_total{direction="down",traffic="front"}`:               1800,
		`mtrelay_dial_failures_total{traffic="relay",dc="2"}`:                 120,
		`mtrelay_dial_failures_total{traffic="front"}`:                        3,
		`mtrelay_dial_seconds_count{traffic="relay",dc="2"}`:                  120,
		`mtrelay_dial_seconds_sum{traffic="relay",dc="2"}`:                    120,
		`mtrelay_dial_seconds_bucket{traffic="relay",dc="2",le="0.5"}`:        0,
		`mtrelay_dial_seconds_bucket{traffic="relay",dc="2",le="1"}`:          120,
		`mtrelay_dial_seconds_bucket{traffic="front",le="0.005"}`:             3,
		`mtrelay_replay_entries`:                                              120,
		`mtrelay_replay_bytes`:                                                9600,
		`mtrelay_cgroup_memory_bytes`:                                         30_000_000,
		`mtrelay_cgroup_socket_bytes`:                                         8_000_000,
		`mtrelay_front_look{front="www.example.com",source="state"}`:          1,
		`mtrelay_front_look{front="www.example.com",source="raid"}`:           0,
		`mtrelay_front_look{front="unseen.example",source="raid"}`:            0,
		`mtrelay_front_look{front="unseen.example",source="state"}`:           0,
		`mtrelay_front_look_age_seconds{front="www.example.com"}`:             120, // as the clock of this test goes
		`mtrelay_front_tls13{front="www.example.com"}`:                        1,
		`mtrelay_front_shaped{front="www.example.com"}`:                       1,
		`mtrelay_front_look_observed{front="www.example.com",what="records"}`: 1280,
		`mtrelay_front_look_problems{front="www.example.com"}`:                2,
		`mtrelay_connection_bytes{of="process"}`:                              8427,
		`mtrelay_connections_per_gb{of="process"}`:                            14298,
		`mtrelay_marginal_connections_per_gb{of="cgroup"}`:                    25769,
	} {
		if got, ok := series[name]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", name, got, ok, want)
		}
	}
	for name := range series {
		if strings.Contains(name, "unseen.example") && !strings.HasPrefix(name, "mtrelay_front_look{") {
			t.Errorf("%s tells of a front that was not seen", name)
		}
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_open_fds", "go_goroutines"} {
		if series[name] == 0 {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestUnnamedIsNotShown demands that a reason named "" has no series and no field.
func TestUnnamedIsNotShown(t *testing.T) {
	s := fixedStats()
	for _, path := range []string{"/metrics", "/stats"} {
		if body := get(t, s, path); strings.Contains(body, `reason=""`) || strings.Contains(body, `"": `) {
			t.Errorf("%s shows a reason without a name:\n%s", path, body)
		}
	}
}

func TestServe(t *testing.T) {
	s := fixedStats()
	sick := errors.New("listener 0.0.0.0:443 no longer accepts")
	var health error
	url, stop := serve(t, s, func() error { return health })
	for _, c := range []struct {
		method, path string
		health       error
		status       int
		contentType  string
		body         string // "" for any
	}{
		{"GET", "/healthz", nil, 200, "text/plain; charset=utf-8", "ok\n"},
		{"GET", "/healthz", sick, 503, "text/plain; charset=utf-8", sick.Error() + "\n"},
		{"GET", "/metrics", sick, 200, "text/plain; version=0.0.4; charset=utf-8", ""},
		{"GET", "/stats", sick, 200, "application/json", ""},
		{"GET", "/", nil, 404, "text/plain; charset=utf-8", ""},
		{"GET", "/stats/", nil, 404, "text/plain; charset=utf-8", ""},
		{"GET", "/debug/pprof/", nil, 404, "text/plain; charset=utf-8", ""},
		{"POST", "/", nil, 404, "text/plain; charset=utf-8", ""},
		{"POST", "/stats", nil, 405, "text/plain; charset=utf-8", ""},
		{"DELETE", "/metrics", nil, 405, "text/plain; charset=utf-8", ""},
		{"PUT", "/healthz", nil, 405, "text/plain; charset=utf-8", ""},
	} {
		health = c.health
		resp, body := request(t, c.method, url+c.path)
		if resp.StatusCode != c.status {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, resp.StatusCode, c.status)
		}
		if got := resp.Header.Get("Content-Type"); got != c.contentType {
			t.Errorf("%s %s: content type %q, want %q", c.method, c.path, got, c.contentType)
		}
		if c.body != "" && body != c.body {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, body, c.body)
		}
	}
	for _, path := range []string{"/stats", "/metrics", "/healthz"} {
		resp, body := request(t, "HEAD", url+path)
		if resp.StatusCode != 200 || body != "" || resp.ContentLength <= 0 {
			t.Errorf("HEAD %s: status %d, length %d, body %q", path, resp.StatusCode, resp.ContentLength, body)
		}
	}
	stop()
	if resp, err := http.Get(url + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("answers after Close")
	}
}

// serve starts s on loopback and returns its address; stop closes it and checks that Serve returned nil.
func serve(t *testing.T, s *Stats, healthy func() error) (url string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln, "/metrics", healthy) }()
	return "http://" + ln.Addr().String(), func() {
		t.Helper()
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestServeFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := New("test", labels).Serve(ln, "/metrics", wellness); err == nil {
		t.Error("serving a closed listener is no error")
	}
}

func TestCloseBeforeServe(t *testing.T) {
	s := New("test", labels)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln, "/metrics", wellness); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestVisitorsAreBounded fills the server with silent visitors; one more is turned away at once, and room
// that is given back can be used again.
func TestVisitorsAreBounded(t *testing.T) {
	s := New("test", labels)
	url, stop := serve(t, s, wellness)
	defer stop()
	addr := strings.TrimPrefix(url, "http://")
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var crowd []net.Conn
	for range maxVisitors {
		crowd = append(crowd, dial())
	}
	extra := dial()
	defer extra.Close()
	if n, err := extra.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from a server that is full", n)
	}
	for _, c := range crowd {
		c.Close()
	}
	for { // until the server has seen that they left
		resp, err := http.Get(url + "/healthz")
		if err == nil {
			resp.Body.Close()
			return
		}
	}
}

// stuckWriter is a visitor who does not read: Write returns only after release.
type stuckWriter struct {
	*httptest.ResponseRecorder
	writing, release chan struct{}
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	close(w.writing)
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// TestSlowVisitorHoldsNoLock does all that could need a lock while a visitor is stuck in the middle.
func TestSlowVisitorHoldsNoLock(t *testing.T) {
	for _, path := range []string{"/metrics", "/stats"} {
		s := New("test", labels)
		slow := &stuckWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Handler("/metrics", wellness).ServeHTTP(slow, httptest.NewRequest("GET", path, nil))
		}()
		<-slow.writing
		relaySession(s)
		strangerSession(s)
		s.WatchReplay(func() int { return 1 }, func() int { return 1 })
		get(t, s, "/metrics")
		get(t, s, "/stats")
		close(slow.release)
		<-done
		if slow.Body.Len() == 0 {
			t.Errorf("GET %s: the slow visitor got nothing", path)
		}
	}
}
