package loadtest

import (
	"context"
	"time"
)

var activeScenario = scenario{
	help:        "connections that all say a little, one small message a second each",
	defaults:    Options{Connections: []int{1000, 5000}, Duration: 10 * time.Second, Rate: 1},
	connections: mostConnections,
	run:         (*run).active,
}

func (r *run) active(ctx context.Context) error {
	f := &fleet{run: r}
	defer f.close()
	for _, n := range r.o.Connections {
		r.progress.begin("active: %d connections", n)
		if err := f.grow(ctx, n, greet); err != nil {
			return err
		}
		if err := r.activeLevel(ctx, f.clients); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) activeLevel(ctx context.Context, clients []*client) error {
	c := r.newChat(clients, r.o.Rate*float64(len(clients)))
	stop := background(ctx, c.talk)
	defer stop()
	messages, s, err := r.timed(ctx, func() float64 { return float64(c.latency.count()) })
	if err != nil {
		return err
	}
	u, err := r.usage()
	if err != nil {
		return err
	}
	stop()
	r.activeCells(c, messages, s, u)
	return nil
}

func (r *run) activeCells(c *chat, messages float64, s spent, u usage) {
	n := float64(len(c.clients))
	cells := []cell{{"connections", "", n}, {"messages", "/s", messages / s.elapsed.Seconds()}}
	if r.measured() {
		perMessage := 1e6 * s.target.Seconds() / messages
		cells = append(cells, cell{"CPU each", "µs", perMessage})
		r.report.metric("cpu_us_per_message", perMessage)
		r.report.metric("rss_bytes_per_connection", float64(u.RSS)/n)
	}
	cells = append(cells, r.cpuCells(s)...)
	cells = append(cells, cell{"p50", "ms", c.latency.ms(50)}, cell{"p99", "ms", c.latency.ms(99)})
	r.report.add(append(cells, r.memoryCells(u)...)...)
	r.report.metric("messages_per_s", messages/s.elapsed.Seconds())
	r.report.metric("p50_ms", c.latency.ms(50))
	r.report.metric("p99_ms", c.latency.ms(99))
	r.latency("echo", c.latency)
}

// latency adds a distribution to the report, in place of an earlier one of that name.
func (r *run) latency(name string, l *latency) {
	if r.report.Latency == nil {
		r.report.Latency = make(map[string][]Percentile)
	}
	r.report.Latency[name] = l.percentiles()
}
