package loop

import (
	"net/netip"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"mtrelay/clock"
	"mtrelay/relay"
	"mtrelay/stats"
)

// Numbers of our choosing.
const (
	// acceptsPerEvent bounds a burst of accepts, so that it does not starve those who are connected.
	acceptsPerEvent = 64
	// acceptPause is how long a listener rests when descriptors or memory have run out. A listener left
	// in the poller would report the waiting client again and again.
	acceptPause = 100 * time.Millisecond
	// reopenPause is how long to wait before a listener that broke is opened anew.
	reopenPause = time.Second
)

// A listener accepts for one loop.
type listener struct {
	loop    *loop
	fd      int // -1: it broke and is to be opened anew
	address netip.AddrPort
	pause   clock.Timer[expirer]
	due     time.Duration // to rest once the present event is done with
	paused  bool
}

// listen starts to accept from fd, which the loop owns from now on.
func (l *loop) listen(fd int, address netip.AddrPort) error {
	ln := &listener{loop: l, fd: fd, address: address}
	ln.pause.Owner = ln
	l.listeners = append(l.listeners, ln)
	return ln.watch()
}

// watch registers the listener level-triggered: clients beyond acceptsPerEvent are reported again.
func (ln *listener) watch() error {
	ln.loop.enter(ln.fd, ln)
	return ln.loop.poller.AddRead(&netpoll.PollAttachment{FD: ln.fd}, false)
}

// ready is called by the poller.
func (ln *listener) ready(uint32) {
	for range acceptsPerEvent {
		if !ln.acceptOne() {
			break
		}
	}
	if ln.due > 0 {
		ln.rest(ln.due)
	}
}

// acceptOne tells whether there may be another.
func (ln *listener) acceptOne() bool {
	fd, sa, err := unix.Accept4(ln.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch err {
	case nil:
		ln.loop.accept(fd, addrPort(sa))
		return true
	case unix.EAGAIN:
		return false
	case unix.EINTR:
		return true
	}
	ln.loop.report.acceptFailed(err)
	return ln.survive(err)
}

// survive tells whether to accept on after err, and sets due when the listener has to rest.
func (ln *listener) survive(err error) bool {
	switch err {
	case unix.EMFILE, unix.ENFILE:
		ln.due = acceptPause
		return ln.loop.shed(ln.fd)
	case unix.ENOBUFS, unix.ENOMEM:
		ln.due = acceptPause
		return false
	case unix.ECONNABORTED, unix.EPERM, unix.ENETDOWN, unix.EPROTO, unix.ENOPROTOOPT, unix.EHOSTDOWN,
		unix.ENONET, unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH:
		return true // the error of that one connection, see accept(2)
	}
	ln.loop.drop(ln.fd)
	ln.fd = -1
	ln.due = reopenPause
	return false
}

// shed answers one waiting client with RST, for which it needs the descriptor that is kept in reserve:
// better than to leave it hanging until descriptors are free. It tells whether there was one.
func (l *loop) shed(listener int) bool {
	if l.reserve < 0 {
		l.openReserve()
		return false
	}
	_ = unix.Close(l.reserve)
	fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err == nil {
		resetOnClose(fd)
		_ = unix.Close(fd)
	}
	l.openReserve()
	return err == nil
}

// openReserve takes the descriptor to be kept in reserve, if there is one.
func (l *loop) openReserve() {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		fd = -1
	}
	l.reserve = fd
}

// rest takes the listener out of the poller for a while.
func (ln *listener) rest(pause time.Duration) {
	ln.due = 0
	ln.setPaused(true)
	if ln.fd >= 0 {
		_ = ln.loop.poller.Delete(ln.fd)
	}
	ln.loop.wheel.Set(&ln.pause, ln.loop.now.Add(pause))
}

// expire is called by the timer wheel: the pause is over.
func (ln *listener) expire() {
	if err := ln.resume(); err != nil {
		ln.loop.report.acceptFailed(err)
		ln.loop.wheel.Set(&ln.pause, ln.loop.now.Add(reopenPause))
		return
	}
	ln.setPaused(false)
}

func (ln *listener) resume() error {
	if ln.fd < 0 {
		fd, _, err := openListener(ln.loop.opts, ln.address)
		if err != nil {
			return err
		}
		ln.fd = fd
	}
	return ln.watch()
}

func (ln *listener) setPaused(paused bool) {
	if ln.paused != paused {
		ln.paused = paused
		ln.loop.report.listenerPaused(ln.address, paused)
	}
}

// closeListeners gives the ports back. Clients that the kernel has accepted but we have not get RST.
func (l *loop) closeListeners() {
	for _, ln := range l.listeners {
		l.wheel.Stop(&ln.pause)
		ln.setPaused(false)
		if ln.fd >= 0 {
			l.drop(ln.fd)
		}
	}
	l.listeners = nil
}

// accept starts a session for a new client, unless as many are there as may be.
func (l *loop) accept(fd int, address netip.AddrPort) {
	if !l.admit(address) {
		resetOnClose(fd)
		_ = unix.Close(fd)
		return
	}
	l.opts.Stats.Accepted.Inc()
	mss, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG) // 0: unknown
	p := l.newPair(fd, address)
	p.session.Start(&l.env, l.now, relay.Peer{MSS: mss, Secret: l.recent.secret(address.Addr())})
	if err := l.watch(fd, p.client()); err != nil {
		l.report.watchFailed(err)
		p.client().rst = true
		p.close()
		return
	}
	p.turn()
}

// admit takes a place among all clients and one among those without a verdict.
func (l *loop) admit(address netip.AddrPort) bool {
	s := l.server
	switch {
	case !s.clients.take(l.opts.MaxConnections):
		l.report.refused(stats.Concurrency, address, l.opts.MaxConnections)
	case !s.unproven.take(l.opts.MaxUnproven):
		s.clients.leave()
		l.report.refused(stats.Unproven, address, l.opts.MaxUnproven)
	default:
		return true
	}
	return false
}
