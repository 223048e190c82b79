package loadtest

import (
	"context"
	"time"
)

var pingScenario = scenario{
	help:        "latency of small messages at a rate, alone and beside downloads, against the same without the proxy",
	defaults:    Options{Connections: []int{16}, Duration: 10 * time.Second, Rate: 500, Mbit: besideMbit},
	connections: func(o *Options) int { return mostConnections(o) + 2*pingers },
	run:         (*run).ping,
}

// besideMbit is what downloads get together beside which latencies are measured: as much as leaves the machine a core or so.
// When they take what they get, the generator has no core left for the pings, and those past the proxy take 25 ms too.
const besideMbit = 2000

// pingers is how many connections ping through the target, and as many past it.
const pingers = 16

// ping measures both ways to the DC at the same time, at half of the rate each, so that they meet the same machine.
func (r *run) ping(ctx context.Context) error {
	f := &fleet{run: r}
	defer f.close()
	if err := f.grow(ctx, pingers, greet); err != nil {
		return err
	}
	direct := &fleet{run: r}
	defer direct.close()
	if err := direct.growDirect(ctx, pingers); err != nil {
		return err
	}
	for _, n := range append([]int{0}, r.o.Connections...) {
		if err := r.pingBeside(ctx, n, f.clients, direct.clients); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) pingBeside(ctx context.Context, downloads int, proxied, direct []*client) error {
	r.progress.begin("ping: beside %d downloads", downloads)
	s, err := r.startStreams(ctx, downloads, false, r.o.share(downloads))
	if err != nil {
		return err
	}
	defer s.stop()
	if err := r.settle(ctx); err != nil {
		return err
	}
	through, past := r.newChat(proxied, r.o.Rate/2), r.newChat(direct, r.o.Rate/2)
	watch, err := r.startWatch()
	if err != nil {
		return err
	}
	stopThrough, stopPast := background(ctx, through.talk), background(ctx, past.talk)
	err = r.pause(ctx, r.o.Duration)
	stopThrough()
	stopPast()
	if err != nil {
		return err
	}
	used, err := r.read(watch)
	if err != nil {
		return err
	}
	r.pingRow(downloads, through, past, used)
	return nil
}

func (r *run) pingRow(downloads int, through, past *chat, s spent) {
	t, p := through.latency, past.latency
	cells := []cell{
		{"downloads", "", float64(downloads)}, {"pings", "", float64(t.count())},
		{"p50", "ms", t.ms(50)}, {"p99", "ms", t.ms(99)}, {"p99.9", "ms", t.ms(99.9)},
		{"direct p50", "ms", p.ms(50)}, {"p99", "ms", p.ms(99)},
		{"added p50", "ms", t.ms(50) - p.ms(50)}, {"p99", "ms", t.ms(99) - p.ms(99)},
		{"timers late p99", "ms", through.late.ms(99)},
	}
	r.report.add(append(cells, r.cpuCells(s)...)...)
	name, suffix := "alone", ""
	if downloads > 0 {
		name, suffix = "beside bulk", "_beside_bulk"
	}
	r.latency("ping "+name, t)
	r.latency("direct "+name, p)
	r.report.metric("p50_ms"+suffix, t.ms(50))
	r.report.metric("p99_ms"+suffix, t.ms(99))
	r.report.metric("added_p50_ms"+suffix, t.ms(50)-p.ms(50))
	r.report.metric("added_p99_ms"+suffix, t.ms(99)-p.ms(99))
}
