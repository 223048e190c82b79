package loadtest

import (
	"context"
	"crypto/rand"
	"time"
)

var mixedScenario = scenario{
	help:     "a day (many idle, some chatting, a few downloading, scanners knocking), then a rush: 64 downloads and 20 stuck readers",
	defaults: Options{Connections: []int{5000}, Duration: 10 * time.Second, Active: []float64{0.05}, Rate: 1, Mbit: besideMbit},
	connections: func(o *Options) int {
		return mostConnections(o) + rush.downloads + rush.stalled + directTalkers + 2*scannersPerS
	},
	run: (*run).mixed,
}

// hour is what goes on beside those that are idle or chatting.
type hour struct {
	name      string
	downloads int
	mbit      float64 // of each; 0: as fast as they go
	stalled   int
}

var (
	day  = hour{name: "day", downloads: 8, mbit: 20}
	rush = hour{name: "rush", downloads: 64, stalled: 20}
)

// scannersPerS is how many strangers come in a second.
const scannersPerS = 10

// directTalkers is how many connections past the target chat too, so that what the busy machine adds to a latency shows.
// They say as much a second as a worker of the others does.
const (
	directTalkers = 16
	directRate    = 4 // messages per second of each
)

func (r *run) mixed(ctx context.Context) error {
	f, stuck, direct := &fleet{run: r}, &fleet{run: r}, &fleet{run: r}
	defer f.close()
	defer stuck.close()
	defer direct.close()
	if err := direct.growDirect(ctx, directTalkers); err != nil {
		return err
	}
	r.progress.begin("mixed: %d connections", mostConnections(r.o))
	if err := f.grow(ctx, mostConnections(r.o), greet); err != nil {
		return err
	}
	for _, h := range []hour{day, rush} {
		if err := stuck.stall(ctx, h.stalled); err != nil {
			return err
		}
		if err := r.hour(ctx, h, f.clients, direct.clients); err != nil {
			return err
		}
	}
	if err := stuck.thaw(ctx); err != nil {
		return err
	}
	return f.check(ctx)
}

func (r *run) hour(ctx context.Context, h hour, clients, direct []*client) error {
	r.progress.begin("mixed: %s", h.name)
	rate := int64(h.mbit * 1e6 / 8)
	if rate == 0 {
		rate = r.o.share(h.downloads)
	}
	s, err := r.startStreams(ctx, h.downloads, false, rate)
	if err != nil {
		return err
	}
	defer s.stop()
	if r.o.Addr == "" || r.o.FrontBind != "" {
		defer background(ctx, r.scan)()
	}
	chatting := max(1, int(r.o.Active[0]*float64(len(clients))))
	c := r.newChat(clients[:chatting], r.o.Rate*float64(chatting))
	past := r.newChat(direct, directRate*float64(len(direct)))
	stop, stopPast := background(ctx, c.talk), background(ctx, past.talk)
	defer stop()
	defer stopPast()
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
	stop()
	stopPast()
	r.hourRow(h, len(clients), c, past, &t, u)
	return nil
}

func (r *run) hourRow(h hour, idle int, c, past *chat, t *transferred, u usage) {
	cells := []cell{
		{"idle", "", float64(idle - len(c.clients))}, {"chatting", "", float64(len(c.clients))},
		{"downloads", "", float64(h.downloads)}, {"stuck", "", float64(h.stalled)},
		{"speed", "MB/s", t.mbPerS()}, {"p50", "ms", c.latency.ms(50)}, {"p99", "ms", c.latency.ms(99)}, {"direct p50", "ms", past.latency.ms(50)}, {"p99", "ms", past.latency.ms(99)},
	}
	r.report.add(append(append(cells, r.cpuCells(t.spent)...), r.memoryCells(u)...)...)
	r.latency(h.name, c.latency)
	r.latency(h.name+" direct", past.latency)
	r.report.metric("added_p99_ms_"+h.name, c.latency.ms(99)-past.latency.ms(99))
	r.report.metric("p50_ms_"+h.name, c.latency.ms(50))
	r.report.metric("p99_ms_"+h.name, c.latency.ms(99))
	r.report.metric("mb_per_s_"+h.name, t.mbPerS())
	if r.measured() {
		r.report.metric("cpu_cores_"+h.name, t.target.Seconds()/t.elapsed.Seconds())
		r.report.metric("rss_bytes_"+h.name, float64(u.RSS))
	}
}

// scan has strangers knock until ctx ends, in turn: a visitor of the front, one that sends noise, one that says nothing.
func (r *run) scan(ctx context.Context) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second / scannersPerS):
		}
		if i%3 == 0 {
			if err := r.visit(ctx); ctx.Err() == nil {
				r.faults.add(err)
			}
			continue
		}
		r.knock(ctx, i%3 == 1)
	}
}

// knock is a stranger who gets whatever a stranger gets.
func (r *run) knock(ctx context.Context, noise bool) {
	conn, err := r.target.connect(ctx, r.numbers.Add(1))
	if err != nil {
		if ctx.Err() == nil {
			r.faults.add(r.lost(err))
		}
		return
	}
	defer conn.Close()
	b := make([]byte, 512)
	if noise {
		rand.Read(b)
		conn.Write(b)
	}
	conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	conn.Read(b)
}
