package loadtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mtrelay/relay/relaytest"
)

// streams are bulk transfers under way, each on a connection of its own and without an end. Every byte is verified where
// it arrives, and counted then.
type streams struct {
	run     *run
	clients []*client
	counts  []*atomic.Int64 // bytes that arrived, by stream
	closing atomic.Bool
	all     sync.WaitGroup
}

// share returns the rate, in bytes/s, that each of n downloads gets of the one asked for; 0, as fast as they go, without one.
func (o *Options) share(n int) int64 { return int64(o.Mbit * 1e6 / 8 / float64(max(1, n))) }

const endless = 1 << 60 // bytes

// startStreams begins n of them; rate is in bytes/s of each, 0 for what goes.
func (r *run) startStreams(ctx context.Context, n int, up bool, rate int64) (*streams, error) {
	s := &streams{run: r}
	for range n {
		c, err := r.open(ctx)
		if err != nil {
			s.stop()
			return nil, err
		}
		s.clients = append(s.clients, c)
	}
	for _, c := range s.clients {
		if up {
			s.counts = append(s.counts, r.dc.meter(c.number))
			s.all.Go(func() { s.fault(s.upload(c)) })
		} else {
			count := new(atomic.Int64)
			s.counts = append(s.counts, count)
			s.all.Go(func() { s.fault(s.download(c, rate, count)) })
		}
	}
	return s, nil
}

func (s *streams) fault(err error) {
	if !s.closing.Load() {
		s.run.faults.add(err)
	}
}

func (s *streams) download(c *client, rate int64, count *atomic.Int64) error {
	if err := c.ask(command{op: opSource, length: endless, seed: c.number, rate: rate}); err != nil {
		return err
	}
	return c.receive(endless, func(n int) { count.Add(int64(n)) })
}

func (s *streams) upload(c *client) error {
	if err := c.ask(command{op: opSink, length: endless, seed: c.number}); err != nil {
		return err
	}
	return relaytest.SendPattern(c, c.number, endless)
}

// receive takes n bytes of the client's pattern and tells of each piece.
func (c *client) receive(n int64, got func(n int)) error {
	b := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(b)
	p := relaytest.NewPattern(c.number)
	for n > 0 {
		c.SetReadDeadline(time.Now().Add(patience))
		m, err := c.Read(b[:min(n, int64(len(b)))])
		if _, wrong := p.Write(b[:m]); wrong != nil {
			return c.broke("downloading", wrong)
		}
		got(m)
		n -= int64(m)
		if err != nil {
			return c.broke(fmt.Sprintf("downloading, after %d bytes", p.Offset()), err)
		}
	}
	return nil
}

// sofar returns what has arrived, by stream.
func (s *streams) sofar() []int64 {
	list := make([]int64, len(s.counts))
	for i, c := range s.counts {
		list[i] = c.Load()
	}
	return list
}

// stop ends them. The DC finds out by itself.
func (s *streams) stop() {
	s.closing.Store(true)
	for _, c := range s.clients {
		c.Close()
	}
	s.all.Wait()
}

// transferred is what streams did while a stopwatch ran.
type transferred struct {
	spent
	bytes       int64
	least, most int64 // of one stream
}

// during lets the streams run for so long and returns what they did in that time.
func (s *streams) during(ctx context.Context, d time.Duration) (t transferred, err error) {
	before := s.sofar()
	watch, err := s.run.startWatch()
	if err != nil {
		return t, err
	}
	if err := s.run.pause(ctx, d); err != nil {
		return t, err
	}
	after := s.sofar()
	if t.spent, err = s.run.read(watch); err != nil {
		return t, err
	}
	t.least = endless
	for i := range after {
		n := after[i] - before[i]
		t.bytes += n
		t.least, t.most = min(t.least, n), max(t.most, n)
	}
	return t, nil
}

// some fails if there is nothing to divide by.
func (t *transferred) some() error {
	if t.bytes == 0 {
		return fmt.Errorf("nothing came through in %s", t.elapsed)
	}
	return nil
}

// fairness is what the slowest stream got of what the fastest did.
func (t *transferred) fairness() float64 { return float64(t.least) / float64(max(1, t.most)) }

func (t *transferred) mbPerS() float64 { return float64(t.bytes) / 1e6 / t.elapsed.Seconds() }

// cpuPerGB is in seconds of the target's CPU time; 0 when nothing came through.
func (t *transferred) cpuPerGB() float64 {
	if t.bytes == 0 {
		return 0
	}
	return t.target.Seconds() / (float64(t.bytes) / gb)
}
