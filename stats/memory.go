package stats

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// memory reads what the kernel says this process costs.
type memory struct {
	root     fs.FS // what is mounted at /
	pageSize int
}

// usage is one reading in bytes. A figure that the system does not give is 0.
type usage struct {
	rss     int64 // resident memory of the process
	cgroup  int64 // of its control group, the kernel's memory for sockets included; and page cache, too
	sockets int64 // the part of cgroup that sockets take
}

func (m memory) read() usage {
	u := usage{rss: m.rss()}
	u.cgroup, u.sockets = m.cgroup()
	return u
}

// rss reads the second field of /proc/self/statm, which counts pages (proc_pid_statm(5)).
func (m memory) rss() int64 {
	b, err := fs.ReadFile(m.root, "proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(m.pageSize)
}

// cgroup finds the control group that accounts the memory of this process. On a hybrid system the memory
// controller is in the v1 hierarchy, so that one is tried first.
func (m memory) cgroup() (total, sockets int64) {
	v1, v2 := m.cgroupPaths()
	for _, dir := range v1 {
		if total, sockets, ok := m.cgroupV1(dir); ok {
			return total, sockets
		}
	}
	for _, dir := range v2 {
		if total, sockets, ok := m.cgroupV2(dir); ok {
			return total, sockets
		}
	}
	return 0, 0
}

// cgroupPaths reads /proc/self/cgroup, lines of "id:controllers:path" (cgroups(7)). In a container without
// a cgroup namespace the path is the host's, while the container's own group is mounted at the top: hence
// the top as a second try.
func (m memory) cgroupPaths() (v1, v2 []string) {
	b, err := fs.ReadFile(m.root, "proc/self/cgroup")
	if err != nil {
		return nil, nil
	}
	const top1, top2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			v2 = []string{path.Join(top2, parts[2]), top2}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			v1 = []string{path.Join(top1, parts[2]), top1}
		}
	}
	return v1, v2
}

// cgroupV2 reads memory.current, in which sockets are counted already.
func (m memory) cgroupV2(dir string) (total, sockets int64, ok bool) {
	total, ok = m.number(path.Join(dir, "memory.current"))
	if !ok {
		return 0, 0, false
	}
	stat, _ := fs.ReadFile(m.root, path.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		if value, found := strings.CutPrefix(line, "sock "); found {
			sockets, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return total, sockets, true
}

// cgroupV1 adds up two counters, because v1 keeps the memory of TCP sockets apart. It does so only where a
// limit was set on it; elsewhere the second one stays 0.
func (m memory) cgroupV1(dir string) (total, sockets int64, ok bool) {
	total, ok = m.number(path.Join(dir, "memory.usage_in_bytes"))
	if !ok {
		return 0, 0, false
	}
	sockets, _ = m.number(path.Join(dir, "memory.kmem.tcp.usage_in_bytes"))
	return total + sockets, sockets, true
}

func (m memory) number(name string) (n int64, ok bool) {
	b, err := fs.ReadFile(m.root, name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// Baseline takes the present memory for what the proxy needs without connections; marginal figures count
// from there. New does it; to be called again once all loops run, before Serve.
func (s *Stats) Baseline() { s.base = s.memory.read() }

// minRelayed is how many relayed connections it takes before memory is divided by their number. With fewer,
// the process itself and the garbage collector's steps would be most of the quotient.
const minRelayed = 100

// perConnection is memory in relation to relayed connections; nil where there are too few to tell.
type perConnection struct {
	BytesPerConnection       *int64 `json:"bytes_per_connection"`
	ConnectionsPerGB         *int64 `json:"connections_per_gb"`
	MarginalConnectionsPerGB *int64 `json:"marginal_connections_per_gb"`
}

// divide computes the figures for a number of relayed connections and the bytes in use now and at the
// baseline.
func divide(relayed, now, base int64) (p perConnection) {
	if relayed < minRelayed || now <= 0 {
		return p
	}
	p.ConnectionsPerGB = perGiB(relayed, now)
	if grown := now - base; base > 0 && grown > 0 {
		bytes := (grown + relayed/2) / relayed
		p.BytesPerConnection = &bytes
		p.MarginalConnectionsPerGB = perGiB(relayed, grown)
	}
	return p
}

func perGiB(relayed, bytes int64) *int64 {
	n := int64(float64(relayed) / float64(bytes) * (1 << 30))
	return &n
}

// writeMemory writes to /metrics what the process metrics do not have: the control group, and memory per
// connection while it can be told.
func (s *Stats) writeMemory(w io.Writer) {
	u, relayed := s.memory.read(), s.count(s.relayed)
	if u.cgroup > 0 {
		metrics.WriteGaugeUint64(w, "mtrelay_cgroup_memory_bytes", uint64(u.cgroup))
		metrics.WriteGaugeUint64(w, "mtrelay_cgroup_socket_bytes", uint64(u.sockets))
	}
	writePerConnection(w, "process", divide(relayed, u.rss, s.base.rss))
	writePerConnection(w, "cgroup", divide(relayed, u.cgroup, s.base.cgroup))
}

func writePerConnection(w io.Writer, of string, p perConnection) {
	write := func(name string, n *int64) {
		if n != nil {
			metrics.WriteGaugeUint64(w, fmt.Sprintf("%s{of=%q}", name, of), uint64(*n))
		}
	}
	write("mtrelay_connection_bytes", p.BytesPerConnection)
	write("mtrelay_connections_per_gb", p.ConnectionsPerGB)
	write("mtrelay_marginal_connections_per_gb", p.MarginalConnectionsPerGB)
}
