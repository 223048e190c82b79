package main

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercent is GOGC unless the environment says otherwise. Measured with 9,000 idle sessions after a few echoes, each
// of them costs 1.9 KiB of RSS at 25, 2.0 at 50, 2.2 at 100 and 3.9 at 200; opening one takes the same CPU at all.
const gcPercent = 50

// The collector runs when something is allocated. After a burst nothing is, so what it left behind would stay:
// 1.5 times the idle level for good. These say when to look, and what is worth a collection (5 to 20 ms of CPU).
const (
	tidyEvery = 30 * time.Second
	tidyFrom  = 1 << 20 // bytes allocated since the last look
)

// tuneMemory chooses how much slack the heap has.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// tidyMemory collects and gives free memory back to the system, twice a minute at most, when something worth it was
// allocated or given up by sessions that fell asleep, and once more after that: what was in use in the midst of a burst
// is not when it is over. What is allocated without pause (handshakes) makes it a steady 0.05 % of a core.
func tidyMemory(dozed func() uint64) {
	turnover := func() uint64 { return allocated() + dozed()*cipherBytes }
	last, busy := turnover(), false
	for range time.Tick(tidyEvery) {
		wasBusy := busy
		busy = turnover()-last >= tidyFrom
		if busy || wasBusy {
			debug.FreeOSMemory()
			last = turnover()
		}
	}
}

// cipherBytes is what a session gives up that falls asleep.
const cipherBytes = 1 << 10

// allocated returns the bytes of all objects that were ever on the heap.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
