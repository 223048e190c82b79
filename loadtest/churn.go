package loadtest

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"

	"mtrelay/conf"
	"mtrelay/relay/relaytest"
)

var churnScenario = scenario{
	help:     "connections that come, echo once and go; then a burst of hellos",
	defaults: Options{Connections: []int{8}, Duration: 10 * time.Second, Burst: 2000},
	// A connection that was closed here may take a moment to go at the DC's end.
	connections: func(o *Options) int { return o.Hold + max(1000, o.Burst) + mostConnections(o) },
	run:         (*run).churn,
}

func (r *run) churn(ctx context.Context) error {
	held := &fleet{run: r}
	defer held.close()
	if err := held.grow(ctx, r.o.Hold, greet); err != nil {
		return err
	}
	known := func(n uint64) conf.Secret { return r.secretAt(int(n % sources)) }
	if err := r.churnRow(ctx, "", known); err != nil {
		return err
	}
	if len(r.target.secrets) > 1 {
		if err := r.churnRow(ctx, "_unknown_address", r.neverTheSame()); err != nil {
			return err
		}
	}
	for _, busy := range []bool{false, true} {
		if err := r.burst(ctx, busy); err != nil {
			return err
		}
	}
	return nil
}

// secretAt returns one of the target's secrets, which are gone through in turn.
func (r *run) secretAt(i int) (s conf.Secret) {
	if n := len(r.target.secrets); n > 0 {
		s = r.target.secrets[i%n]
	}
	return s
}

// neverTheSame chooses, for each address in turn, the last secret and the last but one: never the one that the target
// remembers of that address, and always one that it finds only at the end of all.
func (r *run) neverTheSame() func(n uint64) conf.Secret {
	return func(n uint64) conf.Secret { return r.secretAt(len(r.target.secrets) - 1 - int(n/sources%2)) }
}

// churnRow has workers open and close connections for a while.
func (r *run) churnRow(ctx context.Context, suffix string, secret func(n uint64) conf.Secret) error {
	workers := mostConnections(r.o)
	r.progress.begin("churn: %d at a time, %d secrets%s", workers, len(r.target.secrets), suffix)
	hello := newLatency()
	n, used, err := r.repeat(ctx, workers, func(s *scratch) error { return r.comeAndGo(ctx, s, secret, hello) })
	if err != nil {
		return err
	}
	r.churnCells(suffix, workers, n, hello, used)
	return nil
}

// comeAndGo is one short connection: TCP, hello, reply, an echo, FIN.
func (r *run) comeAndGo(ctx context.Context, s *scratch, secret func(n uint64) conf.Secret, hello *latency) error {
	n := r.numbers.Add(1)
	var watched *stamped
	conn, err := r.target.dialWith(ctx, secret(n), n, func(c net.Conn) net.Conn {
		watched = &stamped{Conn: c}
		return watched
	}, relaytest.ReadBuffer(smallBuffer))
	c, err := r.client(n, conn, err)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.echo(s, chatSize); err != nil {
		return err
	}
	hello.record(watched.answered.Sub(watched.asked)) // now that a relay of bytes, to which there is no hello, has answered too
	return nil
}

// stamped notes when the first bytes leave and when the first come back: the hello and its answer, or through a relay of
// bytes the init and the echo. Making a hello takes a client some 0.1 ms, which is not the target's.
type stamped struct {
	net.Conn
	asked, answered time.Time
}

func (s *stamped) Write(p []byte) (int, error) {
	if s.asked.IsZero() {
		s.asked = time.Now()
	}
	return s.Conn.Write(p)
}

func (s *stamped) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.answered.IsZero() {
		s.answered = time.Now()
	}
	return n, err
}

func (r *run) churnCells(suffix string, workers int, n float64, hello *latency, s spent) {
	perSecond := n / s.elapsed.Seconds()
	r.report.metric("handshakes_per_s"+suffix, perSecond)
	r.report.metric("hello_p50_ms"+suffix, hello.ms(50))
	r.report.metric("hello_p99_ms"+suffix, hello.ms(99))
	r.latency("hello to ServerHello"+suffix, hello)
	r.churnLine(float64(workers), 0, n, hello, s)
	if r.measured() {
		r.report.metric("handshake_cpu_ms"+suffix, 1000*s.target.Seconds()/n)
	}
}

func (r *run) churnLine(workers, busy, n float64, hello *latency, s spent) {
	cells := []cell{{"at a time", "", workers}, {"busy cores", "", busy}, {"handshakes", "/s", n / s.elapsed.Seconds()}}
	if r.measured() {
		cells = append(cells, cell{"CPU each", "ms", 1000 * s.target.Seconds() / n})
	}
	cells = append(cells, cell{"hello p50", "ms", hello.ms(50)}, cell{"p99", "ms", hello.ms(99)}, cell{"most", "ms", hello.ms(100)})
	r.report.add(append(cells, r.cpuCells(s)...)...)
}

// burst spreads hellos evenly over a second, whether or not the target keeps up: busy beside a process that keeps a core to
// itself as far as the kernel lets it.
func (r *run) burst(ctx context.Context, busy bool) error {
	r.progress.begin("churn: %d hellos in a second", r.o.Burst)
	suffix, cores := "", 0.0
	if busy {
		suffix, cores = "_busy", 1
		defer background(ctx, spin)()
	}
	hello := newLatency()
	watch, err := r.startWatch()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range r.o.Burst {
		time.Sleep(time.Until(watch.began.Add(time.Duration(i) * time.Second / time.Duration(r.o.Burst))))
		all.Go(func() {
			var s scratch
			r.faults.add(r.comeAndGo(ctx, &s, func(n uint64) conf.Secret { return r.secretAt(int(n % sources)) }, hello))
		})
	}
	all.Wait()
	used, err := r.read(watch)
	if err != nil {
		return err
	}
	r.churnLine(0, cores, float64(r.o.Burst), hello, used)
	r.latency("burst"+suffix, hello)
	r.report.metric("burst_p50_ms"+suffix, hello.ms(50))
	r.report.metric("burst_p99_ms"+suffix, hello.ms(99))
	return nil
}

// spin keeps a thread running until ctx ends.
func spin(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		for range 1_000_000 {
			continue
		}
	}
}
