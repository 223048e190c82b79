package scout

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mtrelay/tlsfront"
)

// forever writes b until the other side has gone.
func forever(c net.Conn, b []byte) {
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// readHello takes a ClientHello, and returns its session id.
func readHello(c net.Conn) (id [32]byte) {
	b := make([]byte, 4<<10)
	n, _ := c.Read(b)
	if n > 76 {
		copy(id[:], b[44:76])
	}
	return id
}

// hostile are fronts that no honest server is like. Each returns when the scout has gone.
var hostile = map[string]func(c net.Conn){
	"never answers":  func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"hangs up":       func(c net.Conn) {},
	"hangs up later": func(c net.Conn) { readHello(c) },
	"resets":         func(c net.Conn) { readHello(c); _ = c.(*net.TCPConn).SetLinger(0) },
	"garbage": func(c net.Conn) {
		readHello(c)
		b := make([]byte, 1<<10)
		r := rand.NewChaCha8([32]byte{})
		for {
			_, _ = r.Read(b)
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	},
	"zeros":   func(c net.Conn) { forever(c, make([]byte, 1<<10)) },
	"records": func(c net.Conn) { readHello(c); forever(c, record(23, 16401)) },
	"flight": func(c net.Conn) {
		_, _ = c.Write(goldenAnswer(readHello(c)))
		forever(c, record(23, 16401))
	},
	"small flight": func(c net.Conn) {
		_, _ = c.Write(goldenAnswer(readHello(c)))
		forever(c, record(23, 18))
	},
	"ChangeCipherSpecs": func(c net.Conn) {
		_, _ = c.Write(goldenAnswer(readHello(c)))
		forever(c, wrap(20, []byte{1}))
	},
	"endless ServerHello": func(c net.Conn) {
		readHello(c)
		_, _ = c.Write(wrap(22, []byte{2, 0xff, 0xff, 0xff}))
		forever(c, record(22, 16384))
	},
	"drip": func(c net.Conn) {
		b := append(goldenAnswer(readHello(c)), record(23, 16000)...)
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
			if i > 100 {
				time.Sleep(10 * time.Millisecond)
			}
		}
	},
	"half a record": func(c net.Conn) {
		_, _ = c.Write(append(goldenAnswer(readHello(c)), record(23, 16000)[:8000]...))
		_, _ = io.Copy(io.Discard, c)
	},
	"alerts": func(c net.Conn) { readHello(c); forever(c, wrap(21, []byte{1, 0})) },
	"HTTP":   func(c net.Conn) { readHello(c); _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") },
}

// TestHostileFlights: each ends within its time, in an error or in a flight that is not OK.
func TestHostileFlights(t *testing.T) {
	for name, talk := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := probeFlight(t.Context(), serve(t, talk), testHost, tlsfront.HelloHybrid, quick)
			if err == nil && (f.OK || f.Records != nil) {
				t.Errorf("%+v, want an error or no flight", f)
			}
		})
	}
}

// TestHostileHandshakes: the same in the traffic probe.
func TestHostileHandshakes(t *testing.T) {
	for name, talk := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f, err := fetch(t.Context(), serve(t, talk), testHost, testPlan(root()...), quick); err == nil {
				t.Errorf("%+v, want an error", f)
			}
		})
	}
}

// TestFlightCutEverywhere: a server that hangs up inside its flight is not taken for one that ended it.
func TestFlightCutEverywhere(t *testing.T) {
	id := [32]byte{1}
	whole := append(goldenAnswer(id), slices.Concat(record(23, 42), record(23, 30))...)
	for n := range len(whole) + 1 {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(whole[:n])
			theirs.Close()
		}()
		if f, err := readFlight(ours, id, time.Minute); err == nil {
			t.Errorf("cut after %d of %d bytes: %+v, want an error", n, len(whole), f)
		}
		ours.Close()
	}
}

// cutConn sends so many bytes, and then hangs up.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 && err == nil {
		c.Conn.Close()
		err = errors.New("cut")
	}
	return n, err
}

// TestFetchCutEverywhere: a real server that hangs up anywhere.
func TestFetchCutEverywhere(t *testing.T) {
	answer := "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 40\r\n\r\n" + strings.Repeat("x", 40)
	fetched := 0
	for n := 1; n < 3000; n += 83 {
		address := serve(t, func(c net.Conn) {
			s := tls.Server(&cutConn{c, n}, &tls.Config{Certificates: []tls.Certificate{testCertificate()}})
			for b := make([]byte, 4<<10); ; {
				if _, err := s.Read(b); err != nil {
					return
				}
				if _, err := io.WriteString(s, answer); err != nil {
					return
				}
			}
		})
		lim := quick
		lim.pauses = []time.Duration{0}
		if f, err := fetch(t.Context(), address, testHost, plan{urls: root(), limit: 1 << 20}, lim); err == nil {
			fetched++
			if len(f.trace.Bursts) == 0 {
				t.Errorf("cut after %d bytes: neither an error nor a response", n)
			}
		}
	}
	if fetched == 0 {
		t.Error("no cut was late enough for a response")
	}
}

// TestHostileSites speak TLS and HTTP, at least at first. None makes the scout exceed its limits, or keep anything.
func TestHostileSites(t *testing.T) {
	before := runtime.NumGoroutine()
	raw := func(answer string, more []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, answer)
			if more != nil {
				forever(c, more)
			}
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"endless header":  raw("HTTP/1.1 200 OK\r\n", []byte("X-More: "+strings.Repeat("x", 1000)+"\r\n")),
		"endless line":    raw("HTTP/1.1 200 ", []byte("xxxxxxxxxxxxxxxx")),
		"endless interim": raw("", []byte("HTTP/1.1 103 Early Hints\r\n\r\n")),
		"endless body":    raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", bytes.Repeat([]byte("<img src=a>"), 1000)),
		"small records":   raw("HTTP/1.1 200 OK\r\n\r\n", []byte("x")),
		"garbage":         raw("\x00\xff", []byte("\x00\xff")),
		"absurd length":   raw("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n", []byte("xxxx")),
		"drip": func(w http.ResponseWriter, r *http.Request) {
			for c := http.NewResponseController(w); ; time.Sleep(10 * time.Millisecond) {
				if _, err := io.WriteString(w, "x"); err != nil || c.Flush() != nil {
					return
				}
			}
		},
		"silent":     func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"redirects":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) },
		"long links": func(w http.ResponseWriter, r *http.Request) { links(w, strings.Repeat("x", 7000)) },
		"links":      func(w http.ResponseWriter, r *http.Request) { links(w, "/"+r.URL.Path+"x") },
		"gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(make([]byte, 100_000))
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				address, sent := serveHTTP(t, h, http2, &tls.Config{})
				lim := quick
				lim.fetchTime = 500 * time.Millisecond
				p := testPlan(root()...)
				p.limit = 256 << 10
				f, err := fetch(t.Context(), address, testHost, p, lim)
				if f.bytes > p.limit || len(f.trace.Bursts) > 1+maxLinks+1 {
					t.Errorf("%d bytes, %d bursts, %v", f.bytes, len(f.trace.Bursts), err)
				}
				sent.sizes(t) // one connection only
			})
		}
	}
	waitForGoroutines(t, before)
}

// TestFewRecordsAreKept of a connection, however small they are.
func TestFewRecordsAreKept(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go forever(theirs, slices.Repeat(record(23, 18), 1000))
	w := newWire(ours, time.Now(), minQuiet, 1<<30)
	n, err := io.Copy(io.Discard, w)
	if !errors.Is(err, errEnough) || len(w.down) != maxSeen || n > maxSeen*(5+18)+readAhead {
		t.Errorf("%d bytes, %d records, %v", n, len(w.down), err)
	}
}

func links(w http.ResponseWriter, to string) {
	w.Header().Set("Content-Type", "text/html")
	for i := range 100 {
		_, _ = io.WriteString(w, "<img src="+to+string(rune('a'+i%26))+">")
	}
}

// waitForGoroutines fails when there stay more of them than before.
func waitForGoroutines(t *testing.T, before int) {
	t.Helper()
	for range 500 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b := make([]byte, 64<<10)
	t.Errorf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
}
