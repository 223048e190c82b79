package loadtest

import (
	"os"
	"time"

	"mtrelay/loadtest/measure"
)

// Units of columns.
const (
	mib = 1 << 20
	kib = 1 << 10
	gb  = 1e9 // as network speeds have it
	gib = 1 << 30
)

// usage is what the target takes at one instant, all its processes together.
type usage struct {
	measure.Process
	sockets measure.Sockets
}

// usage reads it. Without a pid it is all zeros.
func (r *run) usage() (sum usage, err error) {
	for _, pid := range r.target.pids {
		p, err := measure.Read(pid)
		if err != nil {
			return sum, r.lost(err)
		}
		s, err := measure.ReadSockets(pid)
		if err != nil {
			return sum, r.lost(err)
		}
		sum.RSS, sum.PSS, sum.USS = sum.RSS+p.RSS, sum.PSS+p.PSS, sum.USS+p.USS
		sum.Anonymous += p.Anonymous
		sum.CPU += p.CPU
		sum.Descriptors += p.Descriptors
		sum.Cgroup += p.Cgroup
		sum.sockets.Count, sum.sockets.Memory = sum.sockets.Count+s.Count, sum.sockets.Memory+s.Memory
	}
	return sum, nil
}

// lost prefers the way the target ended to that of the look at it.
func (r *run) lost(err error) error {
	if ended := r.target.lost(); ended != nil {
		return ended
	}
	return err
}

// measured tells whether the target's processes are known.
func (r *run) measured() bool { return len(r.target.pids) > 0 }

// memoryCells are columns for the target's memory, none when its processes are not known.
func (r *run) memoryCells(u usage) (cells []cell) {
	if !r.measured() {
		return nil
	}
	cells = []cell{
		{"RSS", "MiB", float64(u.RSS) / mib},
		{"PSS", "MiB", float64(u.PSS) / mib},
		{"USS", "MiB", float64(u.USS) / mib},
		{"anonymous", "MiB", float64(u.Anonymous) / mib},
		{"sockets", "MiB", float64(u.sockets.Memory) / mib},
	}
	if r.hasCgroup {
		cells = append(cells, cell{"cgroup", "MiB", float64(u.Cgroup) / mib})
	}
	return cells
}

// stopwatch measures time and CPU time from its start on.
type stopwatch struct {
	began time.Time
	spent
}

// spent is what a stopwatch shows. The CPU time is that of all cores.
type spent struct {
	elapsed time.Duration
	target  time.Duration // CPU time of the target
	waiting time.Duration // in which threads of the target were ready to run and had no core
	own     time.Duration // CPU time of the generator: clients, DC and front
	machine time.Duration // CPU time of everybody
}

func (r *run) startWatch() (w stopwatch, err error) {
	w.target, err = r.targetCPU()
	for _, pid := range r.target.pids {
		w.waiting += waited(pid)
	}
	w.own, _ = measure.CPU(os.Getpid())
	w.machine = machineCPU()
	w.began = time.Now()
	return w, err
}

func (r *run) read(w stopwatch) (s spent, err error) {
	now, err := r.startWatch()
	return spent{
		elapsed: now.began.Sub(w.began), target: now.target - w.target, waiting: max(0, now.waiting-w.waiting),
		own: now.own - w.own, machine: now.machine - w.machine,
	}, err
}

// cores says a CPU time in parts of a core.
func (s spent) cores(t time.Duration) float64 { return t.Seconds() / s.elapsed.Seconds() }

// others is what processes took that are no part of the run, as far as the ticks of the kernel's account show it.
func (s spent) others() time.Duration { return max(0, s.machine-s.target-s.own) }

func (r *run) targetCPU() (sum time.Duration, err error) {
	for _, pid := range r.target.pids {
		t, err := measure.CPU(pid)
		if err != nil {
			return 0, r.lost(err)
		}
		sum += t
	}
	return sum, nil
}

// calm is the part of a core that others may take before a report says that they did.
const calm = 0.1

// cpuCells are columns for the CPU time of all sides, in parts of a core. They tell what limits the figures beside them: a
// generator that takes what the machine has left, or others who do. A relay that waits for a core is not slow.
func (r *run) cpuCells(s spent) (cells []cell) {
	if s.cores(s.others()) > calm {
		r.report.note("other processes ran too (column others, in cores): latencies and speeds are worse for it")
	}
	if r.measured() {
		cells = append(cells, cell{"relay", "cores", s.cores(s.target)}, cell{"waiting", "cores", s.cores(s.waiting)})
	}
	return append(cells, cell{"generator", "cores", s.cores(s.own)}, cell{"others", "cores", s.cores(s.others())})
}
