package loadtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// scenario is one kind of load.
type scenario struct {
	help     string
	defaults Options
	// connections returns how many it holds at a time, all levels considered, each of which has two ends here.
	connections func(*Options) int
	run         func(*run, context.Context) error
}

// scenarios are by name; each stands in the file of that name.
var scenarios = map[string]scenario{
	"idle":   idleScenario,
	"active": activeScenario,
	"bulk":   bulkScenario,
	"rate":   rateScenario,
	"sizes":  sizesScenario,
	"ping":   pingScenario,
	"churn":  churnScenario,
	"slow":   slowScenario,
	"front":  frontScenario,
	"curve":  curveScenario,
	"mixed":  mixedScenario,
}

// Scenarios returns a line about each, in the order of their names.
func Scenarios() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		lines = append(lines, fmt.Sprintf("%-7s %s", name, scenarios[name].help))
	}
	return lines
}

// threads is how many of the generator's goroutines the kernel schedules, at least. With one for each core, an answer waits
// until downloads' goroutines have had ten milliseconds each: beside 16 downloads on two cores, half of the pings that never
// saw a proxy took 500 ms. With 16, the kernel prefers the threads that have rested, and it is 30 ms, on a machine without
// an idle core.
const threads = 16

// run is one under way.
type run struct {
	o         *Options
	report    *Report
	target    *target
	hosts     hosts
	dc        *dc
	front     *frontServer
	faults    *faults
	progress  *progress
	numbers   atomic.Uint64 // of clients
	hasCgroup bool
}

// Run measures. The report is there even with an error if anything was measured; with one its figures mean little.
func Run(ctx context.Context, o Options) (*Report, error) {
	s, ok := scenarios[o.Scenario]
	if !ok {
		return nil, fmt.Errorf("there is no scenario %q; there are\n  %s", o.Scenario, strings.Join(Scenarios(), "\n  "))
	}
	o.fill(s.defaults)
	if err := o.check(); err != nil {
		return nil, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(threads, runtime.NumCPU())))
	connections := s.connections(&o)
	if err := fitDescriptors(connections); err != nil {
		return nil, err
	}
	r := &run{o: &o, faults: &faults{}, progress: &progress{w: o.Progress}}
	r.report = &Report{
		Scenario: o.Scenario, Label: o.Label, Version: o.Version, Started: time.Now(), Machine: thisMachine(), Parameters: o.parameters(),
	}
	if err := r.setUp(ctx, connections); err != nil {
		return nil, err
	}
	err := r.warm(ctx)
	if err == nil {
		err = s.run(r, ctx)
	}
	r.close()
	r.report.Seconds = time.Since(r.report.Started).Seconds()
	if err != nil {
		r.faults.add(err)
	}
	if r.report.Failures = r.faults.list(); len(r.report.Failures) > 0 {
		return r.report, fmt.Errorf("%s of %s failed: %s", o.Scenario, r.target.name, strings.Join(r.report.Failures, "; "))
	}
	return r.report, nil
}

// setUp starts the DC, the front and, unless it runs already, the target, with room for so many connections.
func (r *run) setUp(ctx context.Context, connections int) (err error) {
	if r.hosts, err = makeHosts(ctx, r.o); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.hosts.close()
		}
	}()
	if r.dc, err = startDC(r.hosts, r.o.DCBind, connections, r.faults); err != nil {
		return err
	}
	if r.front, err = startFront(r.hosts, r.o.FrontBind); err != nil {
		r.dc.close()
		return err
	}
	r.progress.begin("waiting for the target")
	if r.o.Addr == "" {
		r.target, err = startSelf(ctx, r.o, r.hosts, r.dc, r.front.addr(), max(leastRoom, connections+spareConnections))
	} else {
		r.target = foreign(r.o)
		err = r.target.awaitReady(ctx)
	}
	if err != nil {
		r.dc.close()
		r.front.close()
		return err
	}
	r.report.Target = r.target.name
	return nil
}

func (r *run) close() {
	if problem := r.target.stop(); problem != "" {
		r.report.note("the proxy said: %s", problem)
	}
	r.faults.add(r.dc.close())
	r.front.close()
	r.faults.add(r.hosts.close())
}

// warmUp is how many connections come and go before anything is measured, so that the target's code is in memory and its
// tables have their first size.
const warmUp = 32

func (r *run) warm(ctx context.Context) error {
	f := &fleet{run: r}
	defer f.close()
	if err := f.grow(ctx, warmUp, greet); err != nil {
		return err
	}
	u, err := r.usage()
	r.hasCgroup = u.Cgroup > 0
	if !r.measured() {
		r.report.note("no --pid: the target's CPU time and memory are not measured")
	}
	return err
}

const (
	// spareConnections are those that a target is to have room for beyond the load: warm-up, streams, visitors.
	spareConnections = 64
	// leastRoom is what it has room for even if the load is small: a burst of hellos must not meet the limit of clients that
	// have not shown yet what they are, which is a part of it.
	leastRoom = 4096
	// spareDescriptors are those that the generator needs for other things than the two ends of each connection.
	spareDescriptors = 128
)

// fitDescriptors raises the limit of open files as far as it goes, and fails if that is too little.
func fitDescriptors(connections int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	open, _ := os.ReadDir("/proc/self/fd")
	needed := uint64(2*connections + len(open) + spareDescriptors)
	if needed > limit.Max {
		return fmt.Errorf("%d connections need %d file descriptors here, since both ends of each are the generator's, and the limit (ulimit -Hn) is %d: "+
			"raise it or ask for at most %d", connections, needed, limit.Max, (int(limit.Max)-len(open)-spareDescriptors)/2)
	}
	return nil
}

// greet has a client say as much as one that has just connected does.
func greet(c *client, s *scratch) error {
	for range 3 {
		if err := c.echo(s, 1<<10); err != nil {
			return err
		}
	}
	return nil
}
