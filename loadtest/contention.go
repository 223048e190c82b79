package loadtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// userHz is the unit of /proc/stat, ticks per second, on every platform of today (USER_HZ).
const userHz = 100

// machineCPU returns the time that all cores have run, whoever it was for; 0 if the kernel does not say.
func machineCPU() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	return busyTime(first)
}

// busyTime reads "cpu user nice system idle iowait irq softirq steal …" (proc_stat(5)). Time stolen by a hypervisor counts: it
// is just as lost to the run.
func busyTime(line string) (sum time.Duration) {
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || i == 4 || i == 5 || i > 8 { // the label, idle, iowait, guests (in user already)
			continue
		}
		sum += time.Duration(n) * time.Second / userHz
	}
	return sum
}

// waited returns how long the threads of a process were ready to run and had no core (the second field of schedstat).
func waited(pid int) (sum time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		if f := strings.Fields(string(text)); len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}
