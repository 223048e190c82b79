package interop

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math"
	mrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// shapeSizes are the downloads that are compared, by the name of the file.
var shapeSizes = map[string]int{"4k": 4 << 10, "64k": 64 << 10, "1m": 1 << 20, "20m": 20 << 20}

// A shapeFront is a site and how its visitors ask it.
type shapeFront struct {
	*origin
	proto  string // ALPN
	atOnce int    // downloads that may go on side by side without disturbing each other
	slow   bool   // its pace is its own, not the machine's
	hasty  string // address where it ends connections that are idle for hastyTimer
}

// hastyTimer takes the place of a minute, after which sites end connections that nobody uses.
const hastyTimer = 60 * time.Millisecond

func shapeFiles(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	for name, size := range shapeSizes {
		writeFile(t, filepath.Join(s.dir, name), pattern(size))
	}
	return s
}

// nginxFront serves files, by HTTP/2 or, as set up by its Debian package, by HTTP/1.1.
func nginxFront(t *testing.T, s *site, proto string) shapeFront {
	t.Helper()
	conf := nginxConf
	if proto != "h2" {
		conf = strings.Replace(conf, "ssl http2", "ssl", 1)
	}
	f := runNginx(t, s, conf)
	f.name = "nginx " + proto
	hasty := runNginx(t, s, strings.Replace(conf, "keepalive_timeout %[4]ds", fmt.Sprintf("keepalive_timeout %dms", hastyTimer.Milliseconds()), 1))
	return shapeFront{f, proto, 1, false, hasty.addr}
}

// goFront is net/http.
func goFront(t *testing.T, name, proto string, h http.Handler, s *site) shapeFront {
	t.Helper()
	f := &origin{name: name + " " + proto, addr: serveHTTP(t, proto, h, s, 0)}
	return shapeFront{f, proto, 1, false, serveHTTP(t, proto, h, s, hastyTimer)}
}

// serveHTTP returns the address of a server that ends idle connections after a time, 0 for never.
func serveHTTP(t *testing.T, proto string, h http.Handler, s *site, idle time.Duration) string {
	t.Helper()
	srv := &http.Server{
		Handler:     h,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{s.cert}},
		ErrorLog:    log.New(io.Discard, "", 0),
		IdleTimeout: idle,
	}
	if proto != "h2" {
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	ln := listen(t, "127.0.0.1:0")
	go srv.ServeTLS(ln, "", "")
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

func goFilesFront(t *testing.T, s *site, proto string) shapeFront {
	return goFront(t, "go", proto, http.FileServer(http.Dir(s.dir)), s)
}

// streamFront flushes chunks of 4 to 28 KiB with log-normal pauses of 2 to 40 ms between them.
func streamFront(t *testing.T, s *site, proto string) shapeFront {
	content := pattern(28 << 10)
	f := goFront(t, "stream", proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := shapeSizes[strings.Trim(r.URL.Path, "/")]
		control := http.NewResponseController(w)
		for left > 0 {
			n := min(4<<10+mrand.IntN(24<<10), left)
			if _, err := w.Write(content[:n]); err != nil || control.Flush() != nil {
				return
			}
			if left -= n; left > 0 {
				ms := math.Exp(math.Log(9) + 0.6*mrand.NormFloat64())
				time.Sleep(time.Duration(min(max(ms, 2), 40) * 1e6))
			}
		}
	}), s)
	f.atOnce, f.slow = 8, true
	return f
}

// shapeDC is the DC that serves orders in these tests.
const shapeDC = 2

// startShaped runs a proxy that is to look like what is served at front. config is the table of the doppelganger.
func startShaped(t *testing.T, front, config string, top ...string) *scene {
	t.Helper()
	return startOrders(t, sceneConfig{front: front, top: strings.Join(top, "\n"), tables: "[defense.doppelganger]\n" + config})
}

// startLike is startShaped with a DC whose segments are of the length that a real DC's have.
func startLike(t *testing.T, front, config string) *scene {
	t.Helper()
	return startOrders(t, sceneConfig{front: front, top: manyClients, tables: "[defense.doppelganger]\n" + config, wire: ethernet})
}

// startOrders runs a proxy before a DC that serves orders.
func startOrders(t *testing.T, c sceneConfig) *scene {
	t.Helper()
	s := startScene(t, c)
	s.mu.Lock()
	s.work[shapeDC] = serveOrders
	s.mu.Unlock()
	return s
}

// raidRepeats is how often a raid of these tests looks at everything; in the long run of TestShape as often as by default.
const raidRepeats, defaultRepeats = 3, 10

// learned waits until the proxy has seen all that its first raid shows. It tells of a first part early, of at most two
// connections as long as one brings 8 MiB.
func (s *scene) learned(t *testing.T, repeats int) {
	t.Helper()
	end := time.Now().Add(time.Duration(repeats) * patience)
	for n := 0; n < repeats; n = metric(t, s.proxy, `mtrelay_front_look_observed{front="`+siteHost+`",what="connections"}`) {
		if time.Now().After(end) {
			t.Fatalf("the front was seen by %d connections", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// metric returns a value of /metrics, 0 when it is not there.
func metric(t *testing.T, p *proxy, name string) int {
	t.Helper()
	resp, err := http.Get(p.stats + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// faithful is a table for learning files, with gaps as long as the front's.
func faithful(files ...string) string { return faithfully(raidRepeats, files...) }

func faithfully(repeats int, files ...string) string {
	return fmt.Sprintf("urls = %s\nrepeats-per-raid = %d\nmin-rate = \"0b\"\n", list(files), repeats)
}

// manyClients is a proxy's limit for the test of idle sessions.
const manyClients = "concurrency = 9500"

// A shapeStage is the fronts and proxies of TestShape. They are there all at once, so that the scouts look at the same time.
type shapeStage struct {
	long    bool
	repeats int
	site    *site
	fronts  []shapeFront
	like    []*scene // the proxies that look like the fronts, faithfully
	far     *scene   // looks like the first front, and its DC is behind a path
	fast    []taught // those whose speeds are compared; the first has no shape
}

// taught is a proxy with the default min-rate.
type taught struct {
	name  string
	proxy *scene
}

func setShapeStage(t *testing.T) *shapeStage {
	t.Helper()
	files := shapeFiles(t)
	writeFile(t, filepath.Join(files.dir, "400k"), pattern(400_000))
	s := &shapeStage{long: os.Getenv(longShapes) != "", site: files, repeats: raidRepeats}
	if s.long {
		s.repeats = defaultRepeats
	}
	for _, proto := range []string{"http/1.1", "h2"} {
		if proto == "http/1.1" || s.long {
			s.fronts = append(s.fronts, nginxFront(t, files, proto), goFilesFront(t, files, proto), streamFront(t, files, proto))
		}
	}
	for _, f := range s.fronts {
		s.like = append(s.like, startLike(t, f.addr, faithfully(s.repeats, "/4k", "/64k", "/1m")))
	}
	s.far = startFar(t, s.fronts[0].addr)
	thinking := goFront(t, "thinking", "http/1.1", http.HandlerFunc(think), files)
	nobody := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	const top = "loops = 1" // two share clients by a hash, seldom evenly
	learning := func(url string) string { return fmt.Sprintf("urls = [%q]\nrepeats-per-raid = %d\n", url, raidRepeats) }
	s.fast = []taught{
		{"unshaped", startShaped(t, nobody, "enabled = false\n", top, manyClients)},
		{"by default", startShaped(t, nobody, "", top)},
		{"3 KB after 150 ms", startShaped(t, thinking.addr, learning("/"), top)},
		{"400 KB file", startShaped(t, s.fronts[0].addr, learning("/400k"), top)},
		{"chunks with pauses", startShaped(t, s.fronts[2].addr, learning("/1m"), top, manyClients)},
	}
	for _, p := range s.like {
		p.learned(t, s.repeats)
	}
	s.far.learned(t, raidRepeats)
	for _, p := range s.fast[2:] {
		p.proxy.learned(t, raidRepeats)
	}
	return s
}

// startFar runs a proxy whose DC for orders is behind a path.
func startFar(t *testing.T, front string) *scene {
	dc, err := relaytest.ListenDC("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dc.Serve(serveOrders)
	t.Cleanup(func() { dc.Close() })
	return startScene(t, sceneConfig{
		front: front, dcs: []string{lengthen(t, dc.Addr())}, tables: "[defense.doppelganger]\n" + faithful("/64k", "/1m"),
	})
}

// think answers as a site does that has a database.
func think(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(150 * time.Millisecond)
	w.Write(pattern(3 << 10))
}
