package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Bounds on what a visitor can take. The operator may bind the server to a public address.
const (
	readTimeout  = 5 * time.Second  // for a request, header and body
	writeTimeout = 30 * time.Second // for a request and its whole answer
	idleTimeout  = 2 * time.Minute  // between requests; Prometheus asks every 15 to 60 s
	maxHeader    = 8 << 10          // bytes of a request's header
	maxVisitors  = 32               // connections; one more is closed at once
	closeGrace   = 3 * time.Second  // how long Close waits for answers under way
)

// Handler answers GET and HEAD for
//
//	/metrics   all counters in the Prometheus text format, those of the process and the Go runtime included
//	/stats     the JSON described at snapshot
//	/healthz   200 "ok" while healthy returns nil, else 503 with its error, which must hold no secret
//
// and for metricsPath, which mtg's configuration lets an operator choose, what it does for /metrics. An answer
// is complete in memory before its first byte is written, so a visitor who reads slowly holds no lock.
func (s *Stats) Handler(metricsPath string, healthy func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /stats", s.serveStats)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { serveHealth(w, healthy()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == metricsPath {
			r.URL.Path = "/metrics"
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Stats) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	s.set.WritePrometheus(&b)
	s.writeLooks(&b)
	s.writeMemory(&b)
	metrics.WriteProcessMetrics(&b)
	writeDescriptors(&b)
	respond(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", b.Bytes())
}

func (s *Stats) serveStats(w http.ResponseWriter, _ *http.Request) {
	b, err := json.MarshalIndent(s.snapshot(), "", "  ")
	if err != nil {
		panic("stats: internal error: " + err.Error())
	}
	respond(w, http.StatusOK, "application/json", append(b, '\n'))
}

func serveHealth(w http.ResponseWriter, err error) {
	const plain = "text/plain; charset=utf-8"
	if err != nil {
		respond(w, http.StatusServiceUnavailable, plain, fmt.Appendln(nil, err))
		return
	}
	respond(w, http.StatusOK, plain, []byte("ok\n"))
}

func respond(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a visitor who left is no concern of ours
}

func newServer() *http.Server {
	return &http.Server{
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		ConnState:      limitVisitors(maxVisitors),
	}
}

// limitVisitors returns a hook that closes a new connection while limit others are open. To leave them in
// the listener's queue instead would make a supervisor wait whenever someone sits on idle connections.
func limitVisitors(limit int64) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > limit {
				_ = c.Close()
			}
		case http.StateClosed:
			open.Add(-1)
		}
	}
}

// Serve answers visitors of ln until Close, and then returns nil. It closes ln. To be called at most once.
func (s *Stats) Serve(ln net.Listener, metricsPath string, healthy func() error) error {
	s.server.Handler = s.Handler(metricsPath, healthy)
	if err := s.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve statistics: %w", err)
	}
	return nil
}

// Close ends Serve: no new visitors, then up to 3 s for the answers under way, after which they are cut.
func (s *Stats) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		return s.server.Close()
	}
	return nil
}
