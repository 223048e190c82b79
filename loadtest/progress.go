package loadtest

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress writes lines that tell how far a run is. Safe for concurrent use.
type progress struct {
	w     io.Writer // nil: nobody looks
	mu    sync.Mutex
	stage string
	last  time.Time
}

// stepEvery is how often a line of the same stage is written.
const stepEvery = 5 * time.Second

// begin announces a stage.
func (p *progress) begin(format string, args ...any) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.last = fmt.Sprintf(format, args...), time.Now()
	fmt.Fprintln(p.w, p.stage)
}

// step tells about the present stage, if nothing was told for a while.
func (p *progress) step(format string, args ...any) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.last) >= stepEvery {
		p.last = now
		fmt.Fprintf(p.w, "%s: %s\n", p.stage, fmt.Sprintf(format, args...))
	}
}
