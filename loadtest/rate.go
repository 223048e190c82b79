package loadtest

import (
	"context"
	"time"
)

var rateScenario = scenario{
	help:        "a download at a fixed rate, so that relays of different top speed compare",
	defaults:    Options{Connections: []int{1}, Duration: 8 * time.Second, Mbit: 1000},
	connections: mostConnections,
	run:         (*run).rate,
}

const (
	rateSamples = 8
	// rateReached is the part of the rate under which it counts as missed.
	rateReached = 0.98
)

func (r *run) rate(ctx context.Context) error {
	n := mostConnections(r.o)
	r.progress.begin("rate: %g Mbit/s down on %d connections", r.o.Mbit, n)
	s, err := r.startStreams(ctx, n, false, r.o.share(n))
	if err != nil {
		return err
	}
	defer s.stop()
	if err := r.settle(ctx); err != nil {
		return err
	}
	var samples []usage
	var total transferred
	for range rateSamples {
		t, err := s.during(ctx, r.o.Duration/rateSamples)
		if err != nil {
			return err
		}
		u, err := r.usage()
		if err != nil {
			return err
		}
		samples = append(samples, u)
		total.add(t)
		r.rateRow(len(samples), t, u)
	}
	r.rateMetrics(&total, samples)
	return total.some()
}

func (t *transferred) add(more transferred) {
	t.bytes += more.bytes
	t.elapsed += more.elapsed
	t.target += more.target
	t.waiting += more.waiting
	t.own += more.own
	t.machine += more.machine
}

func (r *run) rateRow(i int, t transferred, u usage) {
	cells := []cell{{"sample", "", float64(i)}, {"speed", "Mbit/s", 8 * t.mbPerS()}}
	if r.measured() {
		cells = append(cells, cell{"CPU", "s/GB", t.cpuPerGB()})
	}
	cells = append(cells, r.cpuCells(t.spent)...)
	r.report.add(append(cells, r.memoryCells(u)...)...)
}

func (r *run) rateMetrics(total *transferred, samples []usage) {
	reached := 8 * total.mbPerS()
	r.report.metric("mbit_per_s", reached)
	if reached < rateReached*r.o.Mbit {
		r.report.note("only %.0f Mbit/s of %.0f: the figures are those of that rate", reached, r.o.Mbit)
	}
	if !r.measured() {
		return
	}
	r.report.metric("cpu_s_per_gb", total.cpuPerGB())
	for name, of := range map[string]func(usage) int64{
		"rss":       func(u usage) int64 { return u.RSS },
		"pss":       func(u usage) int64 { return u.PSS },
		"uss":       func(u usage) int64 { return u.USS },
		"anonymous": func(u usage) int64 { return u.Anonymous },
		"sockets":   func(u usage) int64 { return u.sockets.Memory },
	} {
		mean, peak := meanAndPeak(samples, of)
		r.report.metric(name+"_mean_bytes", mean)
		r.report.metric(name+"_peak_bytes", peak)
	}
}

func meanAndPeak(samples []usage, of func(usage) int64) (mean, peak float64) {
	for _, s := range samples {
		v := float64(of(s))
		mean += v / float64(len(samples))
		peak = max(peak, v)
	}
	return mean, peak
}
