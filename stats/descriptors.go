package stats

import (
	"io"
	"os"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/sys/unix"
)

const descriptorsDir = "/proc/self/fd"

// writeDescriptors writes how many descriptors are open and may be. The metrics library lists them all for that, 0.9 MB
// of garbage with 9,000 sessions at each scrape; since Linux 6.2 the size of the directory is their number
// (proc_pid_fd(5)), and it was 0 before.
func writeDescriptors(w io.Writer) {
	dir, err := os.Stat(descriptorsDir)
	if err != nil || dir.Size() == 0 {
		metrics.WriteFDMetrics(w)
		return
	}
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // fails for no limit that exists
	metrics.WriteGaugeUint64(w, "process_max_fds", limit.Cur)
	metrics.WriteGaugeUint64(w, "process_open_fds", uint64(dir.Size()))
}
