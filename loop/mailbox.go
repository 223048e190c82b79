package loop

import (
	"github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/queue"
)

// What other goroutines ask of a loop arrives as a task of its poller. A wake-up costs some 11 µs, so this
// is for control, never for data.

// call has f run on the loop, as an event of its own, and does not wait for it.
func (l *loop) call(f func(*loop)) {
	l.trigger(func(any) error {
		l.tick()
		f(l)
		l.armAlarm()
		return nil
	})
}

// stop ends run.
func (l *loop) stop() {
	l.trigger(func(any) error { return errors.ErrEngineShutdown })
}

func (l *loop) trigger(task func(any) error) {
	if err := l.poller.Trigger(queue.HighPriority, task, nil); err != nil {
		l.report.loopFailed(err)
	}
}

// drain stops accepting.
func (l *loop) drain() {
	l.draining = true
	l.closeListeners()
	l.checkEmpty()
}

func (l *loop) checkEmpty() {
	if l.draining && l.pairs == 0 && !l.drained {
		l.drained = true
		close(l.empty)
	}
}
