package loadtest

import (
	"context"
	"fmt"
	"time"
)

var bulkScenario = scenario{
	help:        "downloads, or uploads, as fast as they go, at rising numbers of them",
	defaults:    Options{Connections: []int{1, 4, 16, 64}, Duration: 5 * time.Second},
	connections: mostConnections,
	run:         (*run).bulk,
}

func (r *run) bulk(ctx context.Context) error {
	r.report.Parameters["direction"] = direction(r.o.Up)
	for _, n := range r.o.Connections {
		r.progress.begin("bulk: %d x %s", n, direction(r.o.Up))
		if err := r.bulkLevel(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func direction(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func (r *run) bulkLevel(ctx context.Context, n int) error {
	s, err := r.startStreams(ctx, n, r.o.Up, 0)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := r.settle(ctx); err != nil {
		return err
	}
	t, err := s.during(ctx, r.o.Duration)
	if err == nil {
		err = t.some()
	}
	if err != nil {
		return err
	}
	u, err := r.usage()
	if err != nil {
		return err
	}
	cells := []cell{{"connections", "", float64(n)}, {"speed", "MB/s", t.mbPerS()}}
	if r.measured() {
		cells = append(cells, cell{"CPU", "s/GB", t.cpuPerGB()})
	}
	cells = append(append(cells, cell{"fairness", "min/max", t.fairness()}), r.cpuCells(t.spent)...)
	r.report.add(append(cells, r.memoryCells(u)...)...)
	r.streamMetrics(n, &t)
	return nil
}

// streamMetrics names figures by the number of streams, and without it for the last level.
func (r *run) streamMetrics(n int, t *transferred) {
	for _, suffix := range []string{"", fmt.Sprintf("_%d", n)} {
		r.report.metric("mb_per_s"+suffix, t.mbPerS())
		r.report.metric("fairness"+suffix, t.fairness())
		if r.measured() {
			r.report.metric("cpu_s_per_gb"+suffix, t.cpuPerGB())
		}
	}
}
