// Package measure reads what a process takes, as the kernel counts it: memory, CPU time, descriptors, and the memory of
// its sockets, which is the kernel's and in no figure of the process itself. Linux only. Nothing here needs the process's
// help; root may read any process, others only their own.
package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Process is what a process takes at one instant. Memory is in bytes.
type Process struct {
	RSS         int64         // resident, everything
	PSS         int64         // resident, with a page that n processes map counted as 1/n
	USS         int64         // resident and mapped by no other process: what its end would free
	Anonymous   int64         // resident and backed by no file: heap and stacks
	CPU         time.Duration // used by all threads that it has or had
	Descriptors int           // open
	Cgroup      int64         // charged to its cgroup, the kernel's share included; 0 unless it is alone in one
}

// Read measures a process. It fails when there is none of that id, or when it may not be looked at.
func Read(pid int) (p Process, err error) {
	if err = p.readMemory(pid); err != nil {
		return p, err
	}
	if p.CPU, err = CPU(pid); err != nil {
		return p, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	p.Descriptors = len(open)
	p.Cgroup = cgroupMemory(pid)
	return p, err
}

// readMemory reads smaps_rollup (proc_pid_smaps(5)), for which the kernel walks the page tables: what statm and status
// say is put together from counters of each CPU and may be some dozen pages off.
func (p *Process) readMemory(pid int) error {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fields := sizes(text)
	rss, ok := fields["Rss"]
	if !ok {
		return fmt.Errorf("%s has no Rss: the process has ended, or is of the kernel", path)
	}
	p.RSS, p.PSS, p.Anonymous = rss, fields["Pss"], fields["Anonymous"]
	p.USS = fields["Private_Clean"] + fields["Private_Dirty"]
	return nil
}

// sizes returns, in bytes, the lines of the form "Name:  1234 kB".
func sizes(text []byte) map[string]int64 {
	m := make(map[string]int64)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			m[strings.TrimSuffix(f[0], ":")] = n << 10
		}
	}
	return m
}
