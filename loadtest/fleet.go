package loadtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"mtrelay/relay/relaytest"
)

// fleet is many clients. None has a goroutine of its own: workers speak for them.
type fleet struct {
	run     *run
	clients []*client
}

// openers is how many clients are connected at a time.
const openers = 16

// smallBuffer is what a client reads at a time that is not for bulk, in bytes.
const smallBuffer = 4 << 10

// grow connects clients until there are total, and has each greet, which may be nil. The first error ends it.
func (f *fleet) grow(ctx context.Context, total int, greet func(*client, *scratch) error, opts ...relaytest.Option) error {
	first := len(f.clients)
	fresh := make([]*client, max(0, total-first))
	opts = append([]relaytest.Option{relaytest.ReadBuffer(smallBuffer)}, opts...)
	err := f.run.inParallel(ctx, openers, len(fresh), func(s *scratch, i int) (err error) {
		if fresh[i], err = f.run.open(ctx, opts...); err != nil {
			return err
		}
		if greet != nil {
			err = greet(fresh[i], s)
		}
		return err
	})
	for _, c := range fresh {
		if c != nil {
			f.clients = append(f.clients, c)
		}
	}
	if err != nil {
		return fmt.Errorf("opening %d connections, %d are open: %w", total, len(f.clients), err)
	}
	return nil
}

// growDirect connects clients to the DC past the target until there are total.
func (f *fleet) growDirect(ctx context.Context, total int) error {
	for len(f.clients) < total {
		c, err := f.run.openDirect(ctx)
		if err != nil {
			return err
		}
		f.clients = append(f.clients, c)
	}
	return nil
}

func (f *fleet) close() {
	for _, c := range f.clients {
		c.Close()
	}
	f.clients = nil
}

// open connects one more client through the target.
func (r *run) open(ctx context.Context, opts ...relaytest.Option) (*client, error) {
	n := r.numbers.Add(1)
	conn, err := r.target.dial(ctx, n, nil, opts...)
	return r.client(n, conn, err)
}

// openDirect connects one more client to the DC, past the target.
func (r *run) openDirect(ctx context.Context) (*client, error) {
	n := r.numbers.Add(1)
	conn, err := r.dc.direct(ctx, r.hosts, n)
	return r.client(n, conn, err)
}

func (r *run) client(n uint64, conn net.Conn, err error) (*client, error) {
	if err != nil {
		return nil, fmt.Errorf("client %d: %w", n, r.lost(err))
	}
	return &client{Conn: conn, number: n}, nil
}

// inParallel calls do for 0 to n-1 from so many workers, until one fails or ctx ends.
func (r *run) inParallel(ctx context.Context, workers, n int, do func(s *scratch, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var all sync.WaitGroup
	for range min(workers, n) {
		all.Go(func() {
			var s scratch
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(&s, i); err != nil {
					cancel(err)
				}
				r.progress.step("%d of %d", done.Add(1), n)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// repeat has workers do the same again and again, and returns how often they did it in the duration of a measurement and
// what that took. A worker whose turn fails does no more.
func (r *run) repeat(ctx context.Context, workers int, do func(*scratch) error) (n float64, s spent, err error) {
	var count atomic.Int64
	stop := background(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		defer all.Wait()
		for range workers {
			all.Go(func() {
				var s scratch
				for ; ctx.Err() == nil; count.Add(1) {
					if err := do(&s); err != nil {
						r.faults.add(err)
						return
					}
				}
			})
		}
	})
	defer stop()
	return r.timed(ctx, func() float64 { return float64(count.Load()) })
}

// settle has a load run for a while before it is measured.
func (r *run) settle(ctx context.Context) error { return r.pause(ctx, min(time.Second, r.o.Duration)) }

// timed lets what runs settle, then run for the duration of a measurement, and returns by how much a count rose in that
// time and what that took. On a machine so busy that it did not rise it goes on until it has; faults end that.
func (r *run) timed(ctx context.Context, count func() float64) (rose float64, s spent, err error) {
	if err := r.settle(ctx); err != nil {
		return 0, s, err
	}
	before := count()
	watch, err := r.startWatch()
	if err != nil {
		return 0, s, err
	}
	for began := time.Now(); rose == 0; rose = count() - before {
		if err := r.pause(ctx, r.o.Duration); err != nil {
			return 0, s, err
		}
		if len(r.faults.list()) > 0 || time.Since(began) > r.o.Duration+patience {
			return 0, s, fmt.Errorf("nothing was done in %s", time.Since(began).Round(time.Millisecond))
		}
	}
	s, err = r.read(watch)
	return rose, s, err
}

// pause waits, unless ctx ends or the target does.
func (r *run) pause(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return r.target.alive()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, time.Second)):
			r.progress.step("%s left", time.Until(end).Round(time.Second))
		}
		if err := r.target.alive(); err != nil {
			return err
		}
	}
}
