package loop

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"mtrelay/clock"
	"mtrelay/relay"
	"mtrelay/stats"
)

// Numbers of our choosing, but for the first.
const (
	// attemptDelay is when the next address is tried beside a silent one (RFC 8305 §5).
	attemptDelay = 250 * time.Millisecond
	// frontDelay is how often to look whether a front has been found.
	frontDelay = 20 * time.Millisecond
	// avoidFor is how long an address that failed is tried last.
	avoidFor = time.Minute
	// maxAvoided bounds the list of such addresses; they come from the configuration and from the
	// fronts' names, so that it is hardly ever reached.
	maxAvoided = 1024
)

// A dial is the search for an upstream that answers. It exists only until one does, or none.
type dial struct {
	pair     *pair
	targets  []netip.AddrPort // still to be tried, in order
	attempts []*attempt       // under way
	nextAt   clock.Time       // when the next target is tried beside them

	front      int // whose addresses are still to be found; -1: none
	frontUntil clock.Time
	probe      probeID // the proxy's own hello, for which the front is dialled; zero: none
}

// An attempt is one non-blocking connect.
type attempt struct {
	dial           *dial
	fd             int
	target         netip.AddrPort
	started, until clock.Time
}

// startDial looks for the upstream that the session asked for.
func (p *pair) startDial(out *relay.Out) {
	d := &dial{pair: p, front: -1}
	if out.SelfProbe != nil {
		d.probe = probeID(out.SelfProbe)
	}
	if out.Dial == relay.DialFront {
		if !p.enterFront() {
			p.noRoomAtFront()
			return
		}
		d.front, d.frontUntil = out.Front, p.loop.now.Add(p.loop.opts.Connect)
	} else {
		p.dc = int16(p.loop.opts.DCs.Label(p.session.DC()))
		d.targets = p.loop.inOrder(out.Targets)
	}
	p.dial = d
	d.next()
}

// findFront gets the addresses of the front and tells whether they are known: it may take a moment to make
// sure that the front is not the proxy itself, right after the start and for the probe that finds it out.
func (d *dial) findFront() bool {
	l := d.pair.loop
	pending := d.probe != probeID{} && l.server.fronts.probes.pending(d.probe)
	targets, starting := l.server.fronts.addresses(d.front)
	if (pending || starting) && l.now < d.frontUntil {
		d.nextAt = l.now.Add(frontDelay)
		return false
	}
	d.front = -1
	d.targets = l.inOrder(targets)
	return true
}

// enterFront takes one of the places for connections to fronts, if one is free.
func (p *pair) enterFront() bool {
	p.fronted = p.loop.server.fronted.take(p.loop.opts.MaxFronted)
	return p.fronted
}

// leaveFront gives the pair's place back.
func (p *pair) leaveFront() {
	if p.fronted {
		p.fronted = false
		p.loop.server.fronted.leave()
	}
}

// noRoomAtFront answers a stranger with RST at once rather than with a connection that hangs. Whoever is
// still to be judged may be a client: it just has no front opened early.
func (p *pair) noRoomAtFront() {
	if p.session.State() == relay.StateHello {
		p.session.Dialed(p.loop.now, false, p.loop.cleared())
		p.carryOut()
		return
	}
	p.loop.report.refused(stats.Fronted, p.address, p.loop.opts.MaxFronted)
	p.client().rst = true
	p.close()
}

// inOrder returns the targets that are not our own listeners, those that failed lately last.
func (l *loop) inOrder(targets []netip.AddrPort) []netip.AddrPort {
	ordered := make([]netip.AddrPort, 0, len(targets))
	for _, t := range targets {
		if l.server.self.contains(t) {
			l.report.selfLoop(t)
			continue
		}
		ordered = append(ordered, t)
	}
	slices.SortStableFunc(ordered, func(a, b netip.AddrPort) int {
		return l.avoided(a) - l.avoided(b)
	})
	return ordered
}

func (l *loop) avoided(t netip.AddrPort) int {
	if l.avoid[t] > l.now {
		return 1
	}
	return 0
}

func (l *loop) shun(t netip.AddrPort) {
	if len(l.avoid) >= maxAvoided {
		clear(l.avoid)
	}
	l.avoid[t] = l.now.Add(avoidFor)
}

// next starts attempts until one is under way, and gives up when no target is left.
func (d *dial) next() {
	l := d.pair.loop
	d.nextAt = 0
	if d.front >= 0 && !d.findFront() {
		return
	}
	for len(d.targets) > 0 {
		target := d.targets[0]
		d.targets = d.targets[1:]
		if d.try(target) {
			if len(d.targets) > 0 {
				d.nextAt = l.now.Add(attemptDelay)
			}
			return
		}
	}
	if len(d.attempts) == 0 {
		d.finish(nil, 0)
	}
}

// try starts a connect to target and tells whether it is under way.
func (d *dial) try(target netip.AddrPort) bool {
	l := d.pair.loop
	fd, err := l.connect(target)
	if err != nil {
		l.report.dialFailed(d.pair, target, 0, err)
		if unreachable(err) {
			l.shun(target)
		}
		return false
	}
	a := &attempt{dial: d, fd: fd, target: target, started: l.now, until: l.now.Add(l.opts.Connect)}
	if err := l.watch(fd, a); err != nil {
		_ = unix.Close(fd)
		l.report.watchFailed(err)
		return false
	}
	d.attempts = append(d.attempts, a)
	return true
}

// connect opens a socket and starts to connect it.
func (l *loop) connect(target netip.AddrPort) (int, error) {
	fd, err := openSocket(target)
	if err != nil {
		return -1, err
	}
	err = l.opts.Socket.setOptions(fd)
	if err == nil {
		err = unix.Connect(fd, sockaddr(target))
	}
	if err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// unreachable tells failures of the target from failures of our own, such as a lack of descriptors.
func unreachable(err error) bool {
	switch err {
	case unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ETIMEDOUT, unix.ECONNRESET, unix.EACCES, unix.EPERM:
		return true
	}
	return false
}

// ready is called by the poller. SO_ERROR alone does not tell: it is 0 while the connect is under way.
func (a *attempt) ready(ev uint32) {
	errno, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	switch {
	case err != nil:
		a.fail(err)
	case connected(a.fd):
		a.dial.finish(a, ev)
	case ev&eventHangup != 0:
		a.fail(unix.ECONNREFUSED)
	default:
		return
	}
	a.dial.pair.turn()
}

// connected tells whether fd has a peer other than itself: on loopback a connect to a free port of the
// ephemeral range can meet its own socket (simultaneous open).
func connected(fd int) bool {
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return false
	}
	own, err := unix.Getsockname(fd)
	return err == nil && addrPort(own) != addrPort(peer)
}

// fail ends one attempt; the next address is tried at once.
func (a *attempt) fail(err error) {
	d := a.dial
	l := d.pair.loop
	l.report.dialFailed(d.pair, a.target, l.now.Sub(a.started), err)
	l.shun(a.target)
	l.drop(a.fd)
	d.attempts = slices.DeleteFunc(d.attempts, func(b *attempt) bool { return b == a })
	d.next()
}

// deadline returns when expire is due.
func (d *dial) deadline() clock.Time {
	due := d.nextAt
	for _, a := range d.attempts {
		due = clock.Earliest(due, a.until)
	}
	return due
}

// expire ends attempts that took too long and starts the next beside a silent one.
func (d *dial) expire() {
	now := d.pair.loop.now
	for _, a := range slices.Clone(d.attempts) {
		if a.until <= now && d.pair.dial == d {
			a.fail(unix.ETIMEDOUT)
		}
	}
	if d.nextAt != 0 && d.nextAt <= now && d.pair.dial == d {
		d.next()
	}
}

// finish hands the winner's socket, or the failure of all (nil), to the session. Whoever was asked
// before the winner and has not answered is avoided for a while.
func (d *dial) finish(winner *attempt, ev uint32) {
	p := d.pair
	p.dial = nil
	for _, a := range d.attempts {
		if a == winner {
			break
		}
		p.loop.shun(a.target)
	}
	for _, a := range d.attempts {
		if a != winner {
			p.loop.drop(a.fd)
		}
	}
	if winner == nil {
		p.leaveFront()
	} else {
		p.adopt(winner.fd, ev)
		delete(p.loop.avoid, winner.target)
		p.counted().Dialed(p.loop.now.Sub(winner.started), true)
	}
	p.session.Dialed(p.loop.now, winner != nil, p.loop.cleared())
	p.carryOut()
}

// adopt makes fd the pair's upstream. It stays registered; only its events go elsewhere. The window is
// clamped now because a clamp from before the handshake is forgotten: after 200 MB such a socket took
// 33 MB of unread bytes, one clamped here stays at 2 MiB (Linux 6.18).
func (p *pair) adopt(fd int, ev uint32) {
	if !p.fronted {
		widenWindow(fd)
	}
	_ = setUnlessZero(fd, unix.TCP_WINDOW_CLAMP, p.loop.opts.Socket.WindowClamp) // without it: more memory, no harm else
	u := p.upstream()
	u.fd = int32(fd)
	u.readable = ev&eventIn != 0
	u.hangup = ev&eventHangup != 0
	p.loop.enter(fd, u)
}

// firstWindow is what an upstream may send before the kernel has seen how fast we read, from 64 KiB on by default. What a near
// DC sends at once is more, and a window that shuts cuts records short.
const firstWindow = 128 << 10

// widenWindow makes the receive buffer fit for firstWindow. Unlike SO_RCVBUF, a low-water mark that needs a larger buffer does
// not keep it from growing further (tcp_set_rcvlowat, net/ipv4/tcp.c).
func widenWindow(fd int) {
	for _, mark := range [2]int{firstWindow, 1} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, mark) // without it: as by default
	}
}

// cancel closes what is under way.
func (d *dial) cancel() {
	for _, a := range d.attempts {
		d.pair.loop.drop(a.fd)
	}
	d.pair.dial = nil
}
