package loadtest

import (
	"context"
	"slices"
	"time"

	"mtrelay/relay/relaytest"
)

var slowScenario = scenario{
	help:        "clients that ask for a download and do not read it: what each leaves in memory",
	defaults:    Options{Stalled: []int{50, 150, 300}, Quiet: 3 * time.Second},
	connections: func(o *Options) int { return slices.Max(o.Stalled) },
	run:         (*run).slow,
}

const (
	// stuckBytes is what each is sent: more than the relay and its sockets take (2 MiB wait in the one to the DC), so that
	// some waits at the DC. All TCP sockets of a machine share tcp_mem, 1.5 GiB on one of 24: no more than 300 at a time.
	stuckBytes = 3 << 20
	// stuckWindow is the receive buffer of a client that is stuck.
	stuckWindow = 64 << 10
)

func (r *run) slow(ctx context.Context) error {
	f := &fleet{run: r}
	defer f.close()
	err := r.memoryAt(ctx, "stuck", "stalled", r.o.Stalled, func(n int) error { return f.stall(ctx, n) })
	if err != nil {
		return err
	}
	r.progress.begin("slow: reading it all")
	return f.thaw(ctx)
}

// memoryAt measures what the target takes at rising numbers of something, none first, each reached by grow, and what one more
// of it takes: metrics that end in each.
func (r *run) memoryAt(ctx context.Context, column, each string, levels []int, grow func(n int) error) error {
	var x, rss, sockets []float64
	for _, n := range append([]int{0}, levels...) {
		r.progress.begin("%s: %d %s", r.o.Scenario, n, column)
		if err := grow(n); err != nil {
			return err
		}
		if err := r.pause(ctx, r.o.Quiet); err != nil {
			return err
		}
		u, err := r.usage()
		if err != nil {
			return err
		}
		r.report.add(append([]cell{{column, "", float64(n)}}, r.memoryCells(u)...)...)
		x, rss, sockets = append(x, float64(n)), append(rss, float64(u.RSS)), append(sockets, float64(u.sockets.Memory))
	}
	if r.measured() {
		r.slopeMetric("bytes_per_"+each, x, rss)
		r.slopeMetric("socket_bytes_per_"+each, x, sockets)
	}
	return nil
}

func (r *run) slopeMetric(name string, x, y []float64) {
	_, slope, err := line(x, y)
	if err != nil {
		r.report.note("no %s: %v", name, err)
		return
	}
	r.report.metric(name, slope)
}

// stall has clients ask for a download, of which they read nothing, until there are total of them.
func (f *fleet) stall(ctx context.Context, total int) error {
	return f.grow(ctx, total, func(c *client, s *scratch) error {
		if err := c.echo(s, chatSize); err != nil {
			return err
		}
		return c.ask(command{op: opSource, length: stuckBytes, seed: c.number})
	}, relaytest.ReceiveBuffer(stuckWindow))
}

// thaw has all of them read what was held up, and fails unless it is whole.
func (f *fleet) thaw(ctx context.Context) error {
	return f.run.inParallel(ctx, openers, len(f.clients), func(_ *scratch, i int) error {
		return f.clients[i].receive(stuckBytes, func(int) {})
	})
}
