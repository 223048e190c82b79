package loop

import (
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"
)

// kick is the loop's way to ask for one more round: an eventfd that is always readable and registered
// edge-triggered, so that modifying its registration raises one event in the next batch. It costs a
// microsecond and no garbage, which the poller's own task queue does not (LOOP.md, design 7).
type kick struct {
	fd        int
	requested bool
	attached  netpoll.PollAttachment
}

func (l *loop) openKick() error {
	fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	l.kick.fd = fd
	l.kick.attached.FD = fd
	l.kick.requested = true // registering raises the first event
	l.enter(fd, round{l})
	return l.poller.AddRead(&l.kick.attached, true)
}

func (k *kick) request(l *loop) {
	if k.requested {
		return
	}
	if err := l.poller.ModRead(&k.attached, true); err != nil {
		panic("loop: internal error: no further round: " + err.Error())
	}
	k.requested = true
}

// enqueue puts p on the ready list.
func (l *loop) enqueue(p *pair) {
	if !p.queued {
		p.queued = true
		l.turns = append(l.turns, p)
		l.kick.request(l)
	}
}

// budget is for the turn of a pair that is not on the list, or whose round it is.
func (l *loop) budget() int {
	if len(l.turns) > 0 || len(l.running) > 1 {
		return turnBudget
	}
	return loneBudget
}

// A round is what happens once per batch of events: descriptors are closed, and pairs that used up
// their budget get another turn.
type round struct{ loop *loop }

func (r round) ready(uint32) {
	l := r.loop
	l.kick.requested = false
	l.closeDropped()
	l.turns, l.running = l.running[:0], l.turns
	scanned := false
	for i, p := range l.running {
		l.running[i] = nil
		p.queued = false
		if p.again && scanned { // one scan of the secrets in a round, or a crowd of strangers holds up everybody
			l.enqueue(p)
			continue
		}
		scanned = scanned || p.again
		p.proceed()
	}
	l.running = l.running[:0]
}
