package loop

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"mtrelay/clock"
	"mtrelay/relay"
)

const (
	// turnBudget is the number of bytes that a pair may move before the others get their turn: one large read.
	turnBudget = largeRead
	// loneBudget is that of a pair when no other waits for its turn. Going round once more costs a twelfth of a large
	// read; what another event may wait for it is a tenth of a millisecond.
	loneBudget = 4 * largeRead
)

// A pair is a session and its two sockets. It lives on the loop that accepted the client.
type pair struct {
	loop    *loop
	session relay.Session
	sides   [2]socket // by relay.Side
	timer   clock.Timer[expirer]
	dial    *dial // while the upstream is being dialled

	address  netip.AddrPort // the client's
	accepted clock.Time
	ackPoll  clock.Time // when to look again whether a side that is to be reset has acknowledged
	shapeDue clock.Time // when the next record of a shaped downlink that has bytes may leave
	dc       int16      // index into relay.DCLabels
	ackPolls uint8      // how often that was done, as far as it matters
	state    relay.State
	queued   bool // on the ready list
	again    bool // the session asked to be continued
	unproven bool // counts among those without a verdict
	fronted  bool // counts among the connections to fronts
	closing  bool // to be closed once both queues are empty
	closed   bool
}

func (p *pair) client() *socket   { return &p.sides[relay.Client] }
func (p *pair) upstream() *socket { return &p.sides[relay.Upstream] }

// other returns the side that s's bytes go to.
func (p *pair) other(s *socket) *socket { return &p.sides[1-s.side] }

// newPair makes the pair of a client that was just accepted; its session is to be started.
func (l *loop) newPair(fd int, address netip.AddrPort) *pair {
	p := &pair{loop: l, address: address, accepted: l.now, unproven: true}
	p.timer.Owner = p
	for side := range p.sides {
		p.sides[side] = socket{pair: p, fd: -1, side: relay.Side(side)}
	}
	p.client().fd = int32(fd)
	l.pairs++
	l.opts.Stats.Connections[p.state].Inc()
	return p
}

// turn moves what can be moved now, within the budget. It runs after every event, expiry, dial result
// and flush, so that whoever stops with bytes to read waits for a named event: the other side's queue,
// the dial, the ready list, or the peer.
func (p *pair) turn() {
	if p.closed {
		return
	}
	p.shapeDue = 0
	p.flush(p.client())
	p.flush(p.upstream())
	budget := p.loop.budget()
	for budget > 0 && !p.closed {
		n := p.pull(p.upstream(), budget) + p.pull(p.client(), budget)
		if n == 0 {
			break
		}
		budget -= n
	}
	p.checkHangup()
	p.checkDrained()
	p.settle(budget <= 0)
}

// settle decides what the pair waits for at the end of a turn.
func (p *pair) settle(more bool) {
	if p.closed {
		return
	}
	if p.closing && p.drained() {
		p.close()
		return
	}
	p.track()
	p.arm()
	if more || p.again {
		p.loop.enqueue(p)
	}
}

// pull reads from s once, if the session wants to and the other side has nothing queued, and returns
// the number of bytes moved, which exceeds the budget by less than a record. An end of the stream counts as one.
func (p *pair) pull(s *socket, budget int) int {
	if !s.readable || s.ended || s.fd < 0 || p.closed || p.other(s).out.Len() > 0 {
		return 0
	}
	want := p.want(s.side)
	if want == 0 {
		return 0
	}
	if s.side == relay.Client {
		return p.pullClient(s, min(want, s.readLimit(p.upstream(), budget)))
	}
	return p.pullUpstream(s, min(want, s.readLimit(p.client(), budget)))
}

func (p *pair) want(side relay.Side) int {
	client, upstream := p.session.Want()
	if side == relay.Client {
		return client
	}
	return upstream
}

func (p *pair) pullClient(s *socket, want int) int {
	l := p.loop
	buf := l.scratch[:want]
	n, err := retry(func() (int, error) { return sysRead(int(s.fd), buf) })
	if n = p.took(s, n, len(buf), err); n > 0 {
		p.session.Client(l.now, buf[:n], l.cleared())
		p.carryOut()
	}
	return progress(n)
}

func (p *pair) pullUpstream(s *socket, want int) int {
	l := p.loop
	avail, ok := p.shaped(s)
	if !ok {
		return 0
	}
	bufs := p.session.UpstreamBuffers(l.now, l.scratch, want, avail, l.bufs[:0])
	if len(bufs) == 0 { // the shape changed its mind
		p.shapeDue = p.session.Retry(l.now)
		if n := p.session.Awaited(); n > avail {
			s.await(n)
		}
		return 0
	}
	asked := 0
	for _, b := range bufs {
		asked += len(b)
	}
	n, err := retry(func() (int, error) { return l.vectors.readv(int(s.fd), bufs) })
	if n = p.took(s, n, asked, err); n > 0 {
		if n == asked && avail == 0 && !p.fronted {
			n += p.pullCrumb(s, n)
		}
		p.session.Upstream(l.now, l.scratch, n, l.cleared())
		p.carryOut()
	}
	return progress(n)
}

// shaped tells whether the shape, if there is one, allows a read of s now, and how many bytes there are for it. If
// not, the turn ends with an armed timer.
func (p *pair) shaped(s *socket) (avail int, ok bool) {
	if s.awaited > 0 {
		if due := p.session.Retry(p.loop.now); due > p.loop.now {
			p.shapeDue = due
			return 0, false
		}
		s.listen()
	}
	if !p.session.Shaped() {
		return 0, true
	}
	if due := p.session.Due(p.loop.now); due > p.loop.now {
		p.shapeDue = due
		return 0, false
	}
	avail, err := sysIoctlInt(int(s.fd), unix.SIOCINQ)
	if err != nil {
		return 0, true // the read tells
	}
	if avail == 0 && !s.hangup {
		s.readable = false // a read now would take what comes just then, unplanned
		return 0, false
	}
	p.peek(s, avail)
	return avail, true
}

// peek shows the session what waits, if it has to know where messages end.
func (p *pair) peek(s *socket, avail int) {
	n := p.session.Peek(avail)
	if n == 0 {
		return
	}
	buf := p.loop.scratch[:n]
	n, err := retry(func() (int, error) { return sysPeek(int(s.fd), buf) })
	if err == nil {
		p.session.Peeked(buf[:n])
	}
}

// pullCrumb reads what is left behind n bytes if that is too little for a record of its own: left to the next
// read it would become one. It goes where a longer read would have put it.
func (p *pair) pullCrumb(s *socket, n int) int {
	l := p.loop
	left, err := sysIoctlInt(int(s.fd), unix.SIOCINQ)
	if err != nil || left == 0 || left >= relay.MinRecord {
		return 0
	}
	bufs := p.session.UpstreamBuffers(l.now, l.scratch, n+left, 0, l.bufs[:0])
	crumb := bufs[len(bufs)-1]
	got, err := retry(func() (int, error) { return sysRead(int(s.fd), crumb[len(crumb)-left:]) })
	if err != nil {
		return 0 // the next read tells
	}
	return got
}

// took notes what a read says about the socket and returns the number of bytes that it brought, or -1
// when it brought the end of the stream.
func (p *pair) took(s *socket, n, asked int, err error) int {
	switch {
	case err == unix.EAGAIN:
		s.readable = false
		return 0
	case err != nil:
		p.end(s, relay.EndReset)
		return -1
	case n == 0:
		p.end(s, relay.EndFIN)
		return -1
	}
	s.large = n == asked
	if n < asked && !s.hangup {
		s.readable = false // drained: the next byte raises a new edge
	}
	return n
}

func progress(n int) int {
	if n < 0 {
		return 1
	}
	return n
}

func (p *pair) end(s *socket, how relay.End) {
	s.ended, s.readable = true, false
	l := p.loop
	p.session.Ended(l.now, s.side, how, l.cleared())
	p.carryOut()
}

// carryOut does what the session decided in l.out. Writing may fail, which the session is told in turn;
// since a side breaks only once, that comes to an end.
func (p *pair) carryOut() {
	for {
		p.carryOnce(&p.loop.out)
		s := p.newlyBroken()
		if s == nil || p.closed {
			return
		}
		s.reported = true
		p.session.Ended(p.loop.now, s.side, relay.EndWrite, p.loop.cleared())
	}
}

func (p *pair) carryOnce(out *relay.Out) {
	c, u := p.client(), p.upstream()
	if out.Judged {
		p.judged()
	}
	if out.SelfProbe != nil {
		p.loop.server.fronts.probes.meet(probeID(out.SelfProbe))
	}
	p.count(len(out.Upstream), len(out.Client))
	c.write(out.Client)
	u.write(out.Upstream)
	c.fin, c.rst = c.fin || out.ShutClient, c.rst || out.ResetClient
	u.fin, u.rst = u.fin || out.ShutUpstream, u.rst || out.ResetUpstream
	c.finish()
	u.finish()
	p.again = p.again || out.Again
	if out.Close == relay.CloseNow {
		p.close()
		return
	}
	p.closing = p.closing || out.Close == relay.CloseDrained
	if out.DropUpstream {
		p.dropUpstream()
	}
	if out.Dial != relay.DialNone {
		p.startDial(out)
	}
}

// dropUpstream gives up a front that was opened for a client which turned out to be one of ours.
func (p *pair) dropUpstream() {
	if p.dial != nil {
		p.dial.cancel()
	}
	p.release(p.upstream())
	*p.upstream() = socket{pair: p, fd: -1, side: relay.Upstream}
	p.leaveFront()
}

// newlyBroken returns a side whose failed write the session does not know of yet.
func (p *pair) newlyBroken() *socket {
	for i := range p.sides {
		if s := &p.sides[i]; s.broken && !s.reported {
			return s
		}
	}
	return nil
}

func (p *pair) flush(s *socket) {
	if s.out.Len() == 0 || p.closed {
		return
	}
	queued := s.out.Len()
	s.flush()
	s.finish()
	if s.out.Len() < queued {
		p.session.Progress(p.loop.now)
	}
	if s.broken {
		p.loop.cleared()
		p.carryOut()
	}
}

// checkHangup tells the session that the client left while an upstream is being dialled. The client is
// not read then, so its FIN would stay unnoticed until the dial is over.
func (p *pair) checkHangup() {
	if p.dial == nil || !p.client().gone() {
		return
	}
	p.session.Hangup(p.loop.now, p.loop.cleared())
	p.carryOut()
}

// checkDrained ends the session of a client that has ended its direction and is owed nothing, once nothing waits for it or for
// the DC any more.
func (p *pair) checkDrained() {
	u := p.upstream()
	if p.closed || !p.client().ended || p.client().out.Len()+u.out.Len() > 0 || u.readable || !p.session.OwesNothing() {
		return
	}
	if n, err := sysIoctlInt(int(u.fd), unix.SIOCINQ); err == nil && n > 0 { // it came just now
		u.readable = true
		p.loop.enqueue(p)
		return
	}
	p.session.Leave(p.loop.now, p.loop.cleared())
	p.carryOut()
}

// proceed continues a session that has more to do without new bytes.
func (p *pair) proceed() {
	if p.again && !p.closed {
		p.again = false
		p.session.Continue(p.loop.now, p.loop.cleared())
		p.carryOut()
	}
	p.turn()
}

// expire is called by the timer wheel.
func (p *pair) expire() {
	now := p.loop.now
	if p.dial != nil {
		p.dial.expire()
	}
	if d := p.session.Deadline(); !p.closed && d != 0 && d <= now {
		dozing := p.session.Dozing()
		p.session.Expire(now, p.loop.cleared())
		if !dozing && p.session.Dozing() {
			p.loop.opts.Stats.Dozed.Inc()
		}
		p.carryOut()
	}
	p.turn()
}

// arm sets the timer for the earliest of the pair's deadlines.
func (p *pair) arm() {
	due := clock.Earliest(clock.Earliest(p.session.Deadline(), p.ackPoll), p.shapeDue)
	if p.dial != nil {
		due = clock.Earliest(due, p.dial.deadline())
	}
	switch {
	case due == p.timer.Due():
	case due == 0:
		p.loop.wheel.Stop(&p.timer)
	default:
		p.loop.wheel.Set(&p.timer, due)
	}
}

// How often a side that is to be reset is asked whether all has arrived: after 20 ms, then less and less, in the
// end each 1.28 s.
const (
	firstAckWait = 20 * time.Millisecond
	maxAckPolls  = 6
)

func (p *pair) drained() bool {
	p.ackPoll = 0
	if p.client().idle() && p.upstream().idle() {
		return true
	}
	if p.client().rst || p.upstream().rst {
		p.ackPoll = p.loop.now.Add(firstAckWait << p.ackPolls)
		p.ackPolls = min(p.ackPolls+1, maxAckPolls)
	}
	return false
}

// close takes both sockets out of the poller at once and leaves closing them to the next batch of
// events: a descriptor number must not be reused while events for its old owner may still be due.
func (p *pair) close() {
	if p.closed {
		return
	}
	p.closed = true
	if p.dial != nil {
		p.dial.cancel()
	}
	for i := range p.sides {
		p.release(&p.sides[i])
	}
	p.loop.wheel.Stop(&p.timer)
	p.finished()
	p.session.Release()
	p.loop.forget()
}

func (p *pair) release(s *socket) {
	s.out.Free(&p.loop.chunks)
	if s.fd < 0 {
		return
	}
	if s.rst {
		resetOnClose(int(s.fd))
	}
	p.loop.drop(int(s.fd))
	s.fd = -1
}

// resetOnClose makes close send RST, whatever is still unsent or unread.
func resetOnClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
