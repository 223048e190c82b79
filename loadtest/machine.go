package loadtest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine says where figures come from.
type Machine struct {
	Cores       int     `json:"cores"`
	Processor   string  `json:"processor,omitempty"`
	Kernel      string  `json:"kernel"`
	Go          string  `json:"go"`
	Memory      int64   `json:"memory_bytes"`
	LoadAverage float64 `json:"load_average"` // over a minute, before the run
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores (%s), %.1f GiB, kernel %s, %s, load average before %.2f",
		m.Cores, m.Processor, float64(m.Memory)/(1<<30), m.Kernel, m.Go, m.LoadAverage)
}

// thisMachine reads what can be read and leaves out the rest.
func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Processor: processor(), Go: runtime.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
		m.LoadAverage = float64(info.Loads[0]) / (1 << 16) // SI_LOAD_SHIFT
	}
	return m
}

// processor returns the first model name in /proc/cpuinfo.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
