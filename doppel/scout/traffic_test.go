package scout

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mtrelay/doppel"
)

// watchedListener keeps what its connections send: the truth that a trace is compared with.
type watchedListener struct {
	net.Listener
	mu    sync.Mutex
	conns []*watchedConn
}

type watchedConn struct {
	net.Conn
	mu   sync.Mutex
	sent bytes.Buffer
}

func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, &watchedConn{Conn: c})
	return l.conns[len(l.conns)-1], nil
}

func (c *watchedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent.Write(p)
	return c.Conn.Write(p)
}

// sizes returns the payload lengths of the application data records that the only connection was sent.
func (l *watchedListener) sizes(t *testing.T) (sizes []int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) != 1 {
		t.Fatalf("%d connections, want one", len(l.conns))
	}
	c := l.conns[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := c.sent.Bytes(); len(b) >= 5; {
		n := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] == 23 {
			sizes = append(sizes, n)
		}
		b = b[5+n:]
	}
	return sizes
}

// serveHTTP serves a site by HTTP/2 or 1.1.
func serveHTTP(t *testing.T, h http.Handler, http2 bool, config *tls.Config) (netip.AddrPort, *watchedListener) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = http2
	s.TLS = config
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	w := &watchedListener{Listener: s.Listener}
	s.Listener = w
	s.StartTLS()
	t.Cleanup(s.Close)
	return w.Addr().(*net.TCPAddr).AddrPort(), w
}

// serveSite serves site through a listener of the test's making, and keeps idle connections that long.
func serveSite(t *testing.T, http2 bool, idle time.Duration, through func(net.Listener) net.Listener) netip.AddrPort {
	t.Helper()
	s := httptest.NewUnstartedServer(site())
	s.EnableHTTP2 = http2
	s.TLS = &tls.Config{}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	address := s.Listener.Addr().(*net.TCPAddr).AddrPort()
	s.Listener, s.Config.IdleTimeout = through(s.Listener), idle
	s.StartTLS()
	t.Cleanup(s.Close)
	return address
}

// site has a small page that shows two things, one of them 300 KB long.
func site() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<img src="/big.png"><script src="small.js"></script><a href="/never">`)
	})
	m.HandleFunc("GET /big.png", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 300_000)) })
	m.HandleFunc("GET /small.js", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "1") })
	return m
}

func root() []*url.URL { return []*url.URL{{Scheme: "https", Host: testHost, Path: "/"}} }

func testPlan(urls ...*url.URL) plan {
	return plan{urls: urls, follow: true, limit: fetchBytes, pause: patient.pauses[0]}
}

func TestFetch(t *testing.T) {
	for _, c := range []struct {
		name    string
		http2   bool
		config  *tls.Config
		tickets int
		flight  int // records of the handshake
	}{
		// Go sends its ticket with its flight, and OpenSSL its two behind the client's Finished, as Go does when it asked
		// for a certificate, which makes a CertificateRequest.
		{"HTTP/2", true, &tls.Config{}, 0, 5},
		{"HTTP/1.1", false, &tls.Config{}, 0, 5},
		{"HTTP/2, ticket behind Finished", true, &tls.Config{ClientAuth: tls.RequestClientCert}, 1, 5},
		{"HTTP/1.1, ticket behind Finished", false, &tls.Config{ClientAuth: tls.RequestClientCert}, 1, 5},
		{"no tickets", true, &tls.Config{SessionTicketsDisabled: true}, 0, 4},
		{"TLS 1.2", true, &tls.Config{MaxVersion: tls.VersionTLS12}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, sent := serveHTTP(t, site(), c.http2, c.config)
			f, err := fetch(t.Context(), address, testHost, testPlan(root()...), patient)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.tickets) != c.tickets || f.urls != 1 || f.trace.RTT <= 0 {
				t.Errorf("tickets %v, urls %d, RTT %v", f.tickets, f.urls, f.trace.RTT)
			}
			if len(f.problems) != 1 || !strings.Contains(f.problems[0], "certificate") {
				t.Errorf("problems %q, want one about the certificate", f.problems)
			}
			checkBursts(t, f.trace.Bursts)
			ours := slices.Clone(f.tickets)
			for _, b := range f.trace.Bursts {
				for _, r := range b.Records {
					ours = append(ours, r.Size)
				}
			}
			truth := sent.sizes(t)[c.flight:]
			if n := len(ours); n > len(truth) || !slices.Equal(ours, truth[:n]) || len(truth) > n+2 { // what came behind the last response
				t.Errorf("records %v\nwant %v", ours, truth)
			}
		})
	}
}

// checkBursts expects the page, its two things, and the larger one again.
func checkBursts(t *testing.T, bursts []doppel.Burst) {
	t.Helper()
	if len(bursts) != 4 {
		t.Fatalf("%d bursts, want 4", len(bursts))
	}
	for i, b := range bursts {
		size := 0
		for j, r := range b.Records {
			size += r.Size
			if j > 0 && r.At < b.Records[j-1].At {
				t.Error("time runs backwards")
			}
		}
		if large := i == 1 || i == 3; large != (size > 300_000) || size > 310_000 {
			t.Errorf("burst %d: %d bytes", i, size)
		}
		if last := b.Records[len(b.Records)-1].At; last < b.Asked {
			t.Errorf("burst %d answers %v before it was asked for", i, b.Asked-last)
		}
	}
	if pause := bursts[3].Asked - bursts[2].Records[0].At; pause < patient.pauses[0] {
		t.Errorf("a pause of %v, want at least %v", pause, patient.pauses[0])
	}
}

// TestFetchSeesTheRamp: Go's records begin small, once per connection.
func TestFetchSeesTheRamp(t *testing.T) {
	address, _ := serveHTTP(t, site(), false, &tls.Config{})
	big := root()[0].JoinPath("big.png")
	f, err := fetch(t.Context(), address, testHost, testPlan(big), patient)
	if err != nil {
		t.Fatal(err)
	}
	first, again := f.trace.Bursts[0].Records, f.trace.Bursts[1].Records
	if first[0].Size > 1500 || again[1].Size != 16401 {
		t.Errorf("%v\n%v, want small records at first and full ones after the pause", first[:5], again[:5])
	}
}

func TestRedirects(t *testing.T) {
	for _, c := range []struct {
		to      string
		bursts  int
		problem string
	}{
		{"/small.js", 3, ""},
		{"https://FRONT.test:443/small.js", 3, ""},
		{"https://elsewhere.test/", 2, "elsewhere.test"},
		{"http://front.test/", 2, "another site"},
		{"/loop", maxRedirects + 1, "more than"},
	} {
		m := site()
		m.HandleFunc("/from", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, c.to, http.StatusFound) })
		m.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, c.to, http.StatusFound) })
		address, _ := serveHTTP(t, m, true, &tls.Config{})
		f, err := fetch(t.Context(), address, testHost, testPlan(root()[0].JoinPath("from")), patient)
		if err != nil || len(f.trace.Bursts) != c.bursts {
			t.Errorf("%s: %d bursts, %v, want %d", c.to, len(f.trace.Bursts), err, c.bursts)
		}
		if told := strings.Join(f.problems[1:], " "); c.problem == "" && told != "" || !strings.Contains(told, c.problem) {
			t.Errorf("%s: problems %q, want one with %q", c.to, told, c.problem)
		}
	}
}

// TestFetchEndsAtItsLimit: what came until then is good.
func TestFetchEndsAtItsLimit(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		address, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for b := make([]byte, 32<<10); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}), http2, &tls.Config{})
		p := testPlan(root()...)
		p.limit = 1 << 20
		f, err := fetch(t.Context(), address, testHost, p, patient)
		if err != nil || f.bytes > p.limit || f.bytes < p.limit*9/10 || len(f.trace.Bursts) != 1 || !f.trace.Bursts[0].Cut {
			t.Errorf("%d bytes, %d bursts, %v, want almost %d and one", f.bytes, len(f.trace.Bursts), err, p.limit)
		}
	}
}

// TestNothingIsUnpacked: a page that says it is compressed is not read for links.
func TestNothingIsUnpacked(t *testing.T) {
	m := http.NewServeMux()
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "\x1f\x8b\x08 no such thing <img src=/x>")
	})
	address, _ := serveHTTP(t, m, true, &tls.Config{})
	f, err := fetch(t.Context(), address, testHost, testPlan(root()...), patient)
	if err != nil || len(f.trace.Bursts) != 2 {
		t.Errorf("%d bursts, %v, want two", len(f.trace.Bursts), err)
	}
}
