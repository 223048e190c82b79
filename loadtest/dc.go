package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"mtrelay/loadtest/netns"
	"mtrelay/relay/relaytest"
)

// dc is the fake DC: listeners whose connections do what their clients' commands say.
type dc struct {
	servers []*relaytest.DC
	faults  *faults
	meters  sync.Map // of opSink by seed: *atomic.Int64, verified bytes
}

// perListener is how many connections one listener gets. A relay has one port of its own for each connection to the same
// address, and the system gives out some 28,000.
const perListener = 20_000

// startDC listens on addr alone, or, if that is empty, on so many loopback ports that a relay can hold this many
// connections.
func startDC(h hosts, addr string, connections int, f *faults) (*dc, error) {
	d := &dc{faults: f}
	count := 1
	if addr == "" {
		addr = h.anyPort(netns.DC)
		count += connections / perListener
	}
	for range count {
		var server *relaytest.DC
		err := h.do(netns.DC, func() (err error) {
			server, err = relaytest.ListenDC(addr)
			return err
		})
		if err != nil {
			d.close()
			return nil, fmt.Errorf("the fake DC: %w", err)
		}
		server.Serve(d.serve)
		d.servers = append(d.servers, server)
	}
	return d, nil
}

// addrs are those of the listeners; a client reaches listener i as the DC i+1.
func (d *dc) addrs() (list []string) {
	for _, s := range d.servers {
		list = append(list, s.Addr())
	}
	return list
}

// close ends all connections. It returns what was wrong with the inits that came.
func (d *dc) close() error {
	var errs []error
	for _, s := range d.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// meter returns the count of the bytes that the sink of this seed has taken and verified.
func (d *dc) meter(seed uint64) *atomic.Int64 {
	m, _ := d.meters.LoadOrStore(seed, new(atomic.Int64))
	return m.(*atomic.Int64)
}

// serve obeys commands until the client leaves. That a connection breaks is the client's to notice: it may be its own will.
func (d *dc) serve(c *relaytest.DCConn) {
	for {
		var b [commandLen]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return
		}
		cmd, err := parseCommand(b[:])
		if err != nil {
			d.faults.add(err)
			return
		}
		if d.obey(c, cmd) != nil {
			return
		}
	}
}

func (d *dc) obey(c *relaytest.DCConn, cmd command) error {
	switch cmd.op {
	case opEcho:
		return echo(c, cmd.length)
	case opMessages:
		return echoMessages(c, newLengths(cmd))
	case opSource:
		return source(c, cmd)
	case opSink:
		return d.sink(c, cmd)
	}
	return fmt.Errorf("operation %d", cmd.op)
}

// pieces are what the DC reads and writes at a time. They belong to a connection only while it is busy.
var pieces = sync.Pool{New: func() any { return new([64 << 10]byte) }}

func echo(c *relaytest.DCConn, n int64) error {
	b := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(b)
	for n > 0 {
		m, err := c.Read(b[:min(n, int64(len(b)))])
		if err == nil {
			_, err = c.Write(b[:m])
		}
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

// echoMessages sends each message back in one write, as a server answers requests one by one.
func echoMessages(c *relaytest.DCConn, next *lengths) error {
	b := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(b)
	from, to := 0, 0 // what was read and not sent back
	for {
		n := next.next()
		for to-from < n {
			if from+n > len(b) {
				to = copy(b[:], b[from:to])
				from = 0
			}
			m, err := c.Read(b[to:])
			if err != nil {
				return err
			}
			to += m
		}
		if _, err := c.Write(b[from : from+n]); err != nil {
			return err
		}
		if from += n; from == to {
			from, to = 0, 0
		}
	}
}

// source sends what the command says. At a rate, it sends every millisecond what has become due.
func source(c io.Writer, cmd command) error {
	b := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(b)
	p, began := relaytest.NewPattern(cmd.seed), time.Now()
	due := cmd.length
	for p.Offset() < cmd.length {
		if cmd.rate > 0 {
			time.Sleep(time.Millisecond)
			due = min(cmd.length, int64(time.Since(began).Seconds()*float64(cmd.rate)))
		}
		for p.Offset() < due {
			n := min(due-p.Offset(), int64(len(b)))
			p.Read(b[:n])
			if _, err := c.Write(b[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dc) sink(c *relaytest.DCConn, cmd command) error {
	b := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(b)
	p, meter := relaytest.NewPattern(cmd.seed), d.meter(cmd.seed)
	for left := cmd.length; left > 0; {
		n, err := c.Read(b[:min(left, int64(len(b)))])
		if _, wrong := p.Write(b[:n]); wrong != nil {
			d.faults.add(fmt.Errorf("upload: %w", wrong))
			return wrong
		}
		meter.Add(int64(n))
		left -= int64(n)
		if err != nil {
			return err
		}
	}
	_, err := c.Write(seedBytes(cmd.seed))
	return err
}

// direct connects to a DC without a relay.
func (d *dc) direct(ctx context.Context, h hosts, n uint64) (net.Conn, error) {
	conn, err := h.dial(ctx, n, d.servers[0].Addr())
	if err != nil {
		return nil, err
	}
	c, err := relaytest.NewDirect(conn, 1)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}
