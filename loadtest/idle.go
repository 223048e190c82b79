package loadtest

import (
	"context"
	"slices"
	"time"
)

var idleScenario = scenario{
	help:        "memory of connections that said a little and are quiet now, at rising numbers of them",
	defaults:    Options{Connections: []int{1000, 5000, 9900}, Quiet: 3 * time.Second},
	connections: mostConnections,
	run:         (*run).idle,
}

func mostConnections(o *Options) int { return slices.Max(o.Connections) }

func (r *run) idle(ctx context.Context) error {
	f := &fleet{run: r}
	defer f.close()
	var levels []level
	for _, n := range append([]int{0}, r.o.Connections...) {
		l, err := r.idleLevel(ctx, f, n)
		if err != nil {
			return err
		}
		levels = append(levels, l)
		r.report.add(r.idleCells(l)...)
	}
	r.idleMetrics(levels)
	r.progress.begin("idle: every connection once more")
	return f.check(ctx)
}

// level is what was measured with so many connections.
type level struct {
	connections int
	usage       usage
	opened      int
	opening     spent // while the connections of this level were opened
	resting     spent // from then to the sample
}

func (r *run) idleLevel(ctx context.Context, f *fleet, n int) (l level, err error) {
	r.progress.begin("idle: %d connections", n)
	l = level{connections: n, opened: n - len(f.clients)}
	watch, err := r.startWatch()
	if err != nil {
		return l, err
	}
	if err := f.grow(ctx, n, greet); err != nil {
		return l, err
	}
	if l.opening, err = r.read(watch); err != nil {
		return l, err
	}
	if watch, err = r.startWatch(); err != nil {
		return l, err
	}
	if err := r.pause(ctx, r.o.Quiet); err != nil {
		return l, err
	}
	if l.resting, err = r.read(watch); err != nil {
		return l, err
	}
	l.usage, err = r.usage()
	return l, err
}

func (r *run) idleCells(l level) []cell {
	cells := append([]cell{{"connections", "", float64(l.connections)}}, r.memoryCells(l.usage)...)
	if !r.measured() {
		return cells
	}
	perConnection, opening := 0.0, 0.0
	if l.connections > 0 {
		perConnection = float64(l.usage.sockets.Memory) / kib / float64(l.connections)
		opening = 1000 * l.opening.target.Seconds() / float64(l.opened)
	}
	return append(cells,
		cell{"sockets each", "KiB", perConnection},
		cell{"to open one", "ms CPU", opening},
		cell{"resting", "% core", 100 * l.resting.target.Seconds() / l.resting.elapsed.Seconds()})
}

// idleMetrics are slopes over the levels: what the first thousand cost beside their own memory is in none of them. With a
// single level, the empty proxy is the other end of the line.
func (r *run) idleMetrics(levels []level) {
	if !r.measured() {
		return
	}
	last := levels[len(levels)-1]
	if len(levels) > 2 {
		levels = levels[1:]
	}
	slope := func(of func(usage) int64) (base, each float64) {
		var x, y []float64
		for _, l := range levels {
			x, y = append(x, float64(l.connections)), append(y, float64(of(l.usage)))
		}
		base, each, err := line(x, y)
		if err != nil {
			r.report.note("no slope: %v", err)
		}
		return base, each
	}
	base, each := slope(func(u usage) int64 { return u.RSS })
	r.report.metric("bytes_per_connection", each)
	r.report.metric("base_bytes", base)
	r.report.metric("connections_per_gb", connectionsIn(gib, base, each))
	_, each = slope(func(u usage) int64 { return u.USS })
	r.report.metric("uss_bytes_per_connection", each)
	_, each = slope(func(u usage) int64 { return u.Anonymous })
	r.report.metric("anonymous_bytes_per_connection", each)
	_, each = slope(func(u usage) int64 { return u.sockets.Memory })
	r.report.metric("socket_bytes_per_connection", each)
	if r.hasCgroup {
		_, each = slope(func(u usage) int64 { return u.Cgroup })
		r.report.metric("cgroup_bytes_per_connection", each)
	}
	r.report.metric("rss_bytes", float64(last.usage.RSS))
	r.report.metric("rss_bytes_per_connection", float64(last.usage.RSS)/float64(last.connections))
	r.report.metric("idle_cpu_percent", 100*last.resting.target.Seconds()/last.resting.elapsed.Seconds())
	r.report.metric("open_cpu_ms", 1000*last.opening.target.Seconds()/float64(last.opened))
}

// connectionsIn returns how many connections fit in so many bytes, if they go on to cost what they do.
func connectionsIn(room, base, each float64) float64 { return (room - base) / each }

// check has every client echo once more: none was lost while nobody looked.
func (f *fleet) check(ctx context.Context) error {
	return f.run.inParallel(ctx, openers, len(f.clients), func(s *scratch, i int) error {
		return f.clients[i].echo(s, chatSize)
	})
}
