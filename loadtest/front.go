package loadtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"mtrelay/relay/relaytest"
)

var frontScenario = scenario{
	help:        "visitors of the front: what a visit takes of CPU, and one that stays of memory",
	defaults:    Options{Connections: []int{200, 1000}, Duration: 5 * time.Second, Quiet: 3 * time.Second},
	connections: mostConnections,
	run:         (*run).visitors,
}

const (
	visitWorkers = 8
	pageBytes    = 16 << 10
)

// visitor is a browser's connection to the front, through the target.
type visitor struct {
	conn *tls.Conn
	in   *bufio.Reader
	n    uint64
}

func (r *run) visitors(ctx context.Context) error {
	if r.o.Addr != "" && r.o.FrontBind == "" {
		return errors.New("front: give --front-bind too, where the fake front is to listen, and make it the target's front")
	}
	if err := r.visitorsThatStay(ctx); err != nil { // first: visits leave free memory behind that these would use
		return err
	}
	return r.visits(ctx)
}

// visits has workers come, fetch a page and go for a while.
func (r *run) visits(ctx context.Context) error {
	r.progress.begin("front: visits")
	took := newLatency()
	n, used, err := r.repeat(ctx, visitWorkers, func(*scratch) error {
		began := time.Now()
		err := r.visit(ctx)
		took.record(time.Since(began))
		return err
	})
	if err != nil {
		return err
	}
	r.report.metric("visits_per_s", n/used.elapsed.Seconds())
	if r.measured() {
		r.report.metric("visit_cpu_ms", 1000*used.target.Seconds()/n)
	}
	r.latency("visit", took)
	return nil
}

func (r *run) visit(ctx context.Context) error {
	v, err := r.enter(ctx)
	if err != nil {
		return err
	}
	defer v.conn.Close()
	return v.fetch()
}

// enter connects a visitor; the TLS handshake is the front's own, and its certificate is checked.
func (r *run) enter(ctx context.Context) (*visitor, error) {
	n := r.numbers.Add(1)
	conn, err := r.target.connect(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("visitor %d: %w", n, r.lost(err))
	}
	conn.SetDeadline(time.Now().Add(patience))
	v := &visitor{conn: tls.Client(conn, &tls.Config{ServerName: ownHost, RootCAs: r.front.roots}), n: n}
	if err := v.conn.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("visitor %d: handshake: %w", n, err)
	}
	v.in = bufio.NewReaderSize(v.conn, smallBuffer)
	return v, nil
}

// fetch gets a page and verifies it.
func (v *visitor) fetch() error {
	v.conn.SetDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintf(v.conn, "GET /?seed=%d&bytes=%d HTTP/1.1\r\nHost: %s\r\n\r\n", v.n, pageBytes, ownHost)
	if err != nil {
		return fmt.Errorf("visitor %d: %w", v.n, err)
	}
	answer, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return fmt.Errorf("visitor %d: %w", v.n, err)
	}
	defer answer.Body.Close()
	if err := relaytest.CheckPattern(answer.Body, v.n, pageBytes); err != nil {
		return fmt.Errorf("visitor %d: %w", v.n, err)
	}
	return nil
}

func (r *run) visitorsThatStay(ctx context.Context) error {
	var stay []*visitor
	defer func() {
		for _, v := range stay {
			v.conn.Close()
		}
	}()
	err := r.memoryAt(ctx, "visitors", "visitor", r.o.Connections, func(n int) error {
		fresh, err := r.enterMany(ctx, n-len(stay))
		stay = append(stay, fresh...)
		return err
	})
	if err != nil {
		return err
	}
	return r.inParallel(ctx, openers, len(stay), func(_ *scratch, i int) error { return stay[i].fetch() })
}

// enterMany connects visitors that have fetched a page each. Those that came in are returned with an error too.
func (r *run) enterMany(ctx context.Context, n int) (in []*visitor, err error) {
	list := make([]*visitor, n)
	err = r.inParallel(ctx, openers, n, func(_ *scratch, i int) (err error) {
		if list[i], err = r.enter(ctx); err != nil {
			return err
		}
		return list[i].fetch()
	})
	for _, v := range list {
		if v != nil {
			in = append(in, v)
		}
	}
	return in, err
}
