package loadtest

import (
	"fmt"
	"sync"
)

// faults collects what went wrong: bytes that differ, connections that broke. Safe for concurrent use.
type faults struct {
	mu    sync.Mutex
	count int
	first []string
}

// maxFaults is how many are told in full.
const maxFaults = 10

func (f *faults) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if len(f.first) < maxFaults {
		f.first = append(f.first, err.Error())
	}
}

// list returns them for a report.
func (f *faults) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.first[:len(f.first):len(f.first)]
	if more := f.count - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}
