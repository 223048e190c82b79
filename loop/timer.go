package loop

import (
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"mtrelay/clock"
)

// alarm is the loop's one timerfd. It is one-shot and armed for the next deadline only, so that an idle
// proxy is never woken. Registered edge-triggered it need not be read: arming it again is enough.
type alarm struct {
	fd  int
	due clock.Time // 0: not armed
}

func (l *loop) openAlarm() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	l.alarm.fd = fd
	l.enter(fd, expiry{l})
	return l.poller.AddRead(&netpoll.PollAttachment{FD: fd}, true)
}

// armAlarm sets the timerfd when the next deadline is earlier than what it is set for. One that has
// moved to later costs a wake-up instead of a system call for every move.
func (l *loop) armAlarm() {
	next := l.wheel.Next()
	if next == 0 || l.alarm.due != 0 && l.alarm.due <= next {
		return
	}
	l.alarm.due = next
	wait := max(int64(next-l.now), 1) // 0 would disarm it
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(wait)}
	if err := unix.TimerfdSettime(l.alarm.fd, 0, &spec, nil); err != nil {
		panic("loop: internal error: timer not set: " + err.Error())
	}
}

// An expiry runs what is due.
type expiry struct{ loop *loop }

func (e expiry) ready(uint32) {
	l := e.loop
	l.alarm.due = 0
	l.wheel.Advance(l.now)
	for t := l.wheel.Pop(); t != nil; t = l.wheel.Pop() {
		t.Owner.expire()
	}
}
