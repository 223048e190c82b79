// Package rehearse shows a front's traffic and our imitation of it to the same observer. The imitation is the real one:
// a proxy in this process, between a client and a DC of the tests, follows a look that was learned from the front.
package rehearse

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"mtrelay/doppel"
	"mtrelay/doppel/scout"
	"mtrelay/loop"
	"mtrelay/relay"
	"mtrelay/relay/relaytest"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

// Stage is a proxy with a DC behind it, reachable on loopback only.
type Stage struct {
	server *loop.Server
	dc     *relaytest.DC
	fronts []loop.Front
	keys   [][16]byte // of the secrets, by front
}

// Open starts a proxy as the options describe it, but on a port of its own and with secrets of its own: one for each front.
func Open(o loop.Options, fronts []loop.Front) (*Stage, error) {
	dc, err := relaytest.ListenDC("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dc.Serve(answer)
	s := &Stage{dc: dc, fronts: fronts, keys: make([][16]byte, len(fronts))}
	o.Secrets = nil
	for i, f := range fronts {
		rand.Read(s.keys[i][:])
		o.Secrets = append(o.Secrets, tlsfront.Secret{Name: f.ServerName, Host: f.ServerName, Key: s.keys[i]})
	}
	o.Listen, o.Public, o.ReusePort = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, nil, false
	o.Fronts, o.DefaultFront, o.Replay = fronts, 0, nil
	o.Stats = stats.New("", loop.StatsLabels(o.Secrets))
	o.DCs = relay.NewDCTable(nil, []netip.AddrPort{netip.MustParseAddrPort(dc.Addr())}, relay.PreferIPv4, true)
	if s.server, err = loop.Start(o); err != nil {
		return nil, errors.Join(err, dc.Close())
	}
	return s, nil
}

// Close ends all of it.
func (s *Stage) Close() error {
	s.server.Close()
	return s.dc.Close()
}

func (s *Stage) address() netip.AddrPort { return s.server.Addresses()[0] }

// orderLen is a request to the DC: how many bytes it is to send.
const orderLen = 8

// answer serves a connection to the DC.
func answer(c *relaytest.DCConn) {
	var order [orderLen]byte
	block := make([]byte, 64<<10)
	for {
		if _, err := io.ReadFull(c, order[:]); err != nil {
			return
		}
		for left := binary.BigEndian.Uint64(order[:]); left > 0; {
			n, err := c.Write(block[:min(left, uint64(len(block)))])
			if err != nil {
				return
			}
			left -= uint64(n)
		}
	}
}

// dial connects to the proxy. The connection dies with ctx.
func (s *Stage) dial(ctx context.Context) (conn net.Conn, rtt time.Duration, err error) {
	began := time.Now()
	conn, err = new(net.Dialer).DialContext(ctx, "tcp", s.address().String())
	if err != nil {
		return nil, 0, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn, time.Since(began), nil
}

// greet makes a Telegram client of a connection. It closes that when it fails.
func (s *Stage) greet(ctx context.Context, front int, conn net.Conn) (*relaytest.Client, error) {
	c, err := relaytest.Dial(ctx, "", s.keys[front], s.fronts[front].ServerName, 2, relaytest.OverConn(conn))
	if err != nil {
		return nil, fmt.Errorf("our own proxy: %w", err)
	}
	return c, nil
}

// order asks for n bytes.
func order(w io.Writer, n int) error {
	_, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return err
}

// flight observes our answer to a hello.
func (s *Stage) flight(ctx context.Context, front int, kind tlsfront.HelloKind) (tlsfront.Flight, error) {
	return scout.Flight(ctx, s.address(), s.fronts[front].ServerName, kind, &s.keys[front])
}

// imitate has the proxy send responses of the same sizes, at the same times after each other, as a connection to the
// front showed. What is cut like tickets comes before them, and is told apart.
func (s *Stage) imitate(ctx context.Context, front int, model doppel.Trace, tickets []int) (t doppel.Trace, cut []int, err error) {
	conn, rtt, err := s.dial(ctx)
	if err != nil {
		return t, nil, err
	}
	wire := scout.Watch(conn, watchedBytes)
	c, err := s.greet(ctx, front, wire)
	if err != nil {
		return t, nil, err
	}
	defer c.Close()
	wire.Begin()
	extra := sum(tickets)
	last := time.Duration(0)
	for i, b := range model.Bursts {
		if i > 0 && !rest(ctx, b.Asked-last) {
			break
		}
		last = b.Records[len(b.Records)-1].At
		n := extra + payload(b.Records)
		extra = 0
		wire.Ask()
		if err = order(c, n); err == nil {
			_, err = io.CopyN(io.Discard, c, int64(n))
		}
		if err != nil {
			break
		}
	}
	t = doppel.Trace{Bursts: wire.Bursts(), RTT: rtt}
	cut = withoutTickets(t.Bursts, tickets)
	return t, cut, err
}

// withoutTickets takes the records that are cut like tickets off the first burst, and returns them.
func withoutTickets(bursts []doppel.Burst, tickets []int) (cut []int) {
	if len(bursts) == 0 {
		return nil
	}
	for _, size := range tickets {
		first := &bursts[0].Records
		if len(*first) < 2 || (*first)[0].Size != size {
			break
		}
		cut = append(cut, size)
		*first = (*first)[1:]
	}
	return cut
}

// download measures how fast the proxy delivers, in bytes/s, over at most that time.
func (s *Stage) download(ctx context.Context, front int, limit time.Duration) (rate float64, err error) {
	conn, _, err := s.dial(ctx)
	if err != nil {
		return 0, err
	}
	c, err := s.greet(ctx, front, conn)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := order(c, downloadBytes); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := c.SetReadDeadline(began.Add(limit)); err != nil {
		return 0, err
	}
	n, err := io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(c, downloadBytes), make([]byte, 256<<10))
	var late net.Error
	if err != nil && !(errors.As(err, &late) && late.Timeout()) {
		return 0, err
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// onlyWriter hides that a writer would read by itself, in small pieces.
type onlyWriter struct{ io.Writer }

func payload(records []doppel.Record) (n int) {
	for _, r := range records {
		n += r.Size
	}
	return n
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

// rest waits, and reports whether ctx goes on.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
