package measure

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// cgroupMemory returns what is charged to a process's cgroup: memory.current, or memory.usage_in_bytes in version 1. It
// is 0 when the kernel does not say, and when the group is the root or holds other processes, whose memory it would be too.
func cgroupMemory(pid int) int64 {
	dir, file := memoryCgroup(pid)
	if dir == "" {
		return 0
	}
	members, err := os.ReadFile(path.Join(dir, "cgroup.procs"))
	if err != nil || string(bytes.TrimSpace(members)) != strconv.Itoa(pid) {
		return 0
	}
	text, err := os.ReadFile(path.Join(dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n
}

// memoryCgroup returns the directory of the cgroup that accounts for a process's memory, and the file in it that has the
// sum; "" when there is none or when it is the root.
func memoryCgroup(pid int) (dir, file string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(text)) { // cgroups(7): hierarchy:controllers:path
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || f[2] == "/" {
			continue
		}
		switch f[1] {
		case "memory":
			return "/sys/fs/cgroup/memory" + f[2], "memory.usage_in_bytes"
		case "":
			dir, file = "/sys/fs/cgroup"+f[2], "memory.current"
		}
	}
	return dir, file
}
