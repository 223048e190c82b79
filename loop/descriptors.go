package loop

import (
	"os"

	"golang.org/x/sys/unix"
)

// spareDescriptors are left for everything but clients and their upstreams: files of the process, the
// counters' visitors, dials to a second address beside a silent first.
const spareDescriptors = 16

// fitDescriptors raises the limit of open files as far as it goes and lowers MaxConnections to what it
// allows, two for each client, and the other limits in proportion. It returns what MaxConnections would need, or 0 if there is enough.
func (o *Options) fitDescriptors() (needed uint64) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	if raised := (unix.Rlimit{Cur: limit.Max, Max: limit.Max}); limit.Cur < limit.Max && unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		limit = raised
	}
	used := uint64(usedDescriptors() + spareDescriptors)
	needed = used + 2*uint64(o.MaxConnections)
	if needed <= limit.Cur {
		return 0
	}
	fits := max(1, int(limit.Cur-min(limit.Cur, used))/2)
	o.MaxUnproven = max(1, o.MaxUnproven*fits/o.MaxConnections)
	o.MaxFronted = max(1, o.MaxFronted*fits/o.MaxConnections)
	o.MaxConnections = fits
	return needed
}

// usedDescriptors returns how many are open now.
func usedDescriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}
