package measure

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the time that a process has run, on all cores together, in user and kernel mode.
//
// It reads the process's own CPU clock, which is as fine as the scheduler's accounts (nanoseconds) and keeps the time of
// threads that have exited. The two other ways lack one or the other: /proc/PID/stat counts hundredths of a second, and
// the sum of /proc/PID/task/*/schedstat falls when a thread exits.
func CPU(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(cpuClock(pid), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// cpuClock is clock_getcpuclockid(3): the process's id inverted, above the kind of clock (CPUCLOCK_SCHED, the
// scheduler's, in the kernel's include/linux/posix-timers.h).
func cpuClock(pid int) int32 {
	const scheduler = 2
	return ^int32(pid)<<3 | scheduler
}
