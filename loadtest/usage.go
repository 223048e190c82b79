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
	if ended := r.target.alive(); ended != nil {
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
	began       time.Time
	target, own time.Duration
}

// spent is what a stopwatch shows.
type spent struct{ elapsed, target, own time.Duration }

func (r *run) startWatch() (w stopwatch, err error) {
	w.target, err = r.targetCPU()
	w.own, _ = measure.CPU(os.Getpid())
	w.began = time.Now()
	return w, err
}

func (r *run) read(w stopwatch) (s spent, err error) {
	now, err := r.startWatch()
	return spent{now.began.Sub(w.began), now.target - w.target, now.own - w.own}, err
}

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

// cpuCells are columns for the CPU time of both sides, in parts of a core: a generator that takes what the machine has left
// is what limits the figures beside it.
func (r *run) cpuCells(s spent) (cells []cell) {
	if r.measured() {
		cells = append(cells, cell{"CPU", "cores", s.target.Seconds() / s.elapsed.Seconds()})
	}
	return append(cells, cell{"generator", "cores", s.own.Seconds() / s.elapsed.Seconds()})
}
