package loadtest

import (
	"context"
	"slices"
	"time"
)

var curveScenario = scenario{
	help: "memory over connections, active ones among them and stuck ones, and the formula that fits it",
	defaults: Options{
		Connections: []int{1000, 3000, 6000, 9000}, Active: []float64{0, 0.1, 0.5}, Stalled: []int{50, 100, 200},
		Duration: 4 * time.Second, Rate: 1, Quiet: 31 * time.Second,
	},
	connections: func(o *Options) int { return mostConnections(o) + slices.Max(o.Stalled) },
	run:         (*run).curve,
}

// point is one measurement: so many connections, so many of them active, so many stuck.
type point struct {
	connections, active, stalled int
	usage                        usage
}

func (r *run) curve(ctx context.Context) error {
	f, stuck := &fleet{run: r}, &fleet{run: r}
	defer f.close()
	defer stuck.close()
	var points []point
	measure := func(share float64) error {
		r.progress.begin("curve: %d connections, %g of them active, %d stuck", len(f.clients), share, len(stuck.clients))
		p, err := r.point(ctx, f, share, len(stuck.clients))
		if err == nil {
			points = append(points, p)
			r.report.add(p.cells(r)...)
		}
		return err
	}
	for _, n := range r.o.Connections {
		if err := f.grow(ctx, n, greet); err != nil {
			return err
		}
		if err := r.rest(ctx); err != nil {
			return err
		}
		for _, share := range r.o.Active {
			if err := measure(share); err != nil {
				return err
			}
		}
	}
	for _, n := range r.o.Stalled {
		if err := stuck.stall(ctx, n); err != nil {
			return err
		}
		if err := r.rest(ctx); err != nil {
			return err
		}
		if err := measure(slices.Min(r.o.Active)); err != nil {
			return err
		}
	}
	r.formula("", points, func(u usage) int64 { return u.RSS })
	r.formula("socket_", points, func(u usage) int64 { return u.sockets.Memory })
	return stuck.thaw(ctx)
}

// rest waits until memory is what it stays: the proxy gives back twice a minute what opening connections left behind, and
// points before and after that lie on no line.
func (r *run) rest(ctx context.Context) error {
	r.progress.begin("curve: quiet for %s", r.o.Quiet)
	return r.pause(ctx, r.o.Quiet)
}

// point has a share of the clients talk for a while and measures in the midst of it.
func (r *run) point(ctx context.Context, f *fleet, share float64, stalled int) (p point, err error) {
	p = point{connections: len(f.clients) + stalled, active: int(share * float64(len(f.clients))), stalled: stalled}
	if p.active > 0 {
		c := r.newChat(f.clients[:p.active], r.o.Rate*float64(p.active))
		defer background(ctx, c.talk)()
	}
	if err := r.pause(ctx, r.o.Duration); err != nil {
		return p, err
	}
	p.usage, err = r.usage()
	return p, err
}

func (p point) cells(r *run) []cell {
	return append([]cell{
		{"connections", "", float64(p.connections)}, {"active", "", float64(p.active)}, {"stuck", "", float64(p.stalled)},
	}, r.memoryCells(p.usage)...)
}

// formula fits bytes = base + c1·connections + c2·active + c3·stalled. Active and stuck ones are connections too: c2 and c3
// are what comes on top.
func (r *run) formula(prefix string, points []point, of func(usage) int64) {
	if !r.measured() {
		return
	}
	var x [][]float64
	var y []float64
	for _, p := range points {
		x = append(x, []float64{1, float64(p.connections), float64(p.active), float64(p.stalled)})
		y = append(y, float64(of(p.usage)))
	}
	c, err := leastSquares(x, y)
	if err != nil {
		r.report.note("no formula: %v", err)
		return
	}
	for i, name := range []string{"base_bytes", "bytes_per_connection", "bytes_per_active", "bytes_per_stalled"} {
		r.report.metric(prefix+name, c[i])
	}
	r.report.metric(prefix+"worst_percent", 100*worst(c, x, y))
}
