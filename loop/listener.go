package loop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"mtrelay/clock"
	"mtrelay/relay"
	"mtrelay/stats"
)

// Numbers of our choosing.
const (
	backlog = 4096 // the kernel lowers it to net.core.somaxconn
	// acceptsPerEvent bounds a burst of accepts, so that it does not starve those who are connected.
	acceptsPerEvent = 64
	// acceptPause is how long a listener rests when descriptors or memory have run out. A listener left
	// in the poller would report the waiting client again and again.
	acceptPause = 100 * time.Millisecond
)

// boundSockets are listening sockets, not yet served.
type boundSockets struct {
	addresses []netip.AddrPort
	perLoop   [][]int // descriptors, in the order of addresses
}

func (b boundSockets) close() {
	for _, fds := range b.perLoop {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// bindAll binds every address once per loop.
func bindAll(o *Options) (boundSockets, error) {
	b := boundSockets{perLoop: make([][]int, o.Loops)}
	for _, addr := range o.Listen {
		if err := b.bind(o, addr); err != nil {
			b.close()
			return boundSockets{}, fmt.Errorf("listen on %v: %w", addr, explain(err))
		}
	}
	return b, nil
}

// bind makes sure that nobody else has the port, then opens a listener per loop on it. With SO_REUSEPORT
// alone a second proxy on the same port would silently take half of the clients.
func (b *boundSockets) bind(o *Options, addr netip.AddrPort) error {
	if !o.ReusePort {
		fd, _, err := openListener(o, addr, false)
		if err != nil {
			return err
		}
		_ = unix.Close(fd)
	}
	for i := range b.perLoop {
		fd, own, err := openListener(o, addr, true)
		if err != nil {
			return err
		}
		b.perLoop[i] = append(b.perLoop[i], fd)
		addr = own // a port 0 becomes the one that the first listener got
	}
	b.addresses = append(b.addresses, addr)
	return nil
}

// openListener binds addr and returns the socket and the address that it got.
func openListener(o *Options, addr netip.AddrPort, reusePort bool) (int, netip.AddrPort, error) {
	fd, err := openSocket(addr)
	if err != nil {
		return -1, addr, err
	}
	err = errors.Join(o.listenerOptions(fd, addr, reusePort), unix.Bind(fd, sockaddr(addr)))
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	own := addr
	if err == nil {
		var sa unix.Sockaddr
		sa, err = unix.Getsockname(fd)
		own = netip.AddrPortFrom(addr.Addr(), addrPort(sa).Port())
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, addr, err
	}
	return fd, own, nil
}

// listenerOptions sets what the listener needs and what accepted sockets inherit.
func (o *Options) listenerOptions(fd int, addr netip.AddrPort, reusePort bool) error {
	errs := []error{
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		o.Socket.setOptions(fd),
		setUnlessZero(fd, unix.TCP_NOTSENT_LOWAT, o.Socket.NotSentLowat),
	}
	if reusePort {
		errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	}
	if addr.Addr().Is6() {
		errs = append(errs, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, o.v6only(addr)))
	}
	return errors.Join(errs...)
}

// v6only returns 1 when an IPv4 address of the same port is listened on as well, else 0: "[::]:443" alone
// serves both families, as it does in Go's net package.
func (o *Options) v6only(addr netip.AddrPort) int {
	for _, other := range o.Listen {
		if other.Addr().Is4() && other.Port() == addr.Port() {
			return 1
		}
	}
	return 0
}

// explain adds what to do to errors that an operator meets.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%w: another program (another proxy?) has this port; stop it, choose another port in bind-to, or set reuse-port = true in both", err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: ports below 1024 need root or the capability CAP_NET_BIND_SERVICE", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this machine has no such address", err)
	}
	return err
}

// A listener accepts for one loop.
type listener struct {
	loop    *loop
	fd      int
	address netip.AddrPort
	pause   clock.Timer[expirer]
	paused  bool
}

// listen starts to accept from fd, which the loop owns from now on.
func (l *loop) listen(fd int, address netip.AddrPort) error {
	ln := &listener{loop: l, fd: fd, address: address}
	ln.pause.Owner = ln
	l.listeners = append(l.listeners, ln)
	l.enter(fd, ln)
	return ln.watch()
}

// watch registers the listener level-triggered: clients beyond acceptsPerEvent are reported again.
func (ln *listener) watch() error {
	return ln.loop.poller.AddRead(&netpoll.PollAttachment{FD: ln.fd}, false)
}

func (ln *listener) ready(uint32) {
	for range acceptsPerEvent {
		fd, sa, err := unix.Accept4(ln.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			ln.loop.accept(fd, addrPort(sa))
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED: // the next client may be fine
			ln.loop.report.acceptFailed(err)
		default:
			ln.rest(err)
			return
		}
	}
}

// rest takes the listener out of the poller for a while.
func (ln *listener) rest(err error) {
	ln.loop.report.acceptFailed(err)
	ln.setPaused(true)
	_ = ln.loop.poller.Delete(ln.fd)
	ln.loop.wheel.Set(&ln.pause, ln.loop.now.Add(acceptPause))
}

// expire is called by the timer wheel: the pause is over.
func (ln *listener) expire() {
	if err := ln.watch(); err != nil {
		ln.loop.wheel.Set(&ln.pause, ln.loop.now.Add(acceptPause))
		return
	}
	ln.setPaused(false)
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
		l.drop(ln.fd)
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
	l.out = relay.Out{}
	p.session.Start(&l.env, l.now, mss, &l.out)
	if err := l.watch(fd, p.client()); err != nil {
		p.client().rst = true
		p.close()
		return
	}
	p.carryOut()
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

// zone returns the interface of a link-local address.
func zone(a netip.Addr) uint32 {
	if a.Zone() == "" {
		return 0
	}
	if ifi, err := net.InterfaceByName(a.Zone()); err == nil {
		return uint32(ifi.Index)
	}
	n, _ := strconv.ParseUint(a.Zone(), 10, 32)
	return uint32(n)
}
