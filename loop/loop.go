package loop

import (
	"errors"
	"net/netip"
	"time"

	gnet "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"mtrelay/clock"
	"mtrelay/relay"
	"mtrelay/relay/chunk"
)

// A source is whatever a descriptor belongs to; ready is told the events (epoll's bits) as hints.
type source interface{ ready(events uint32) }

// An expirer is whatever sets a timer.
type expirer interface{ expire() }

// A loop serves its share of the connections on one goroutine. Nothing in it is shared with another
// loop except through server.
type loop struct {
	server *Server
	opts   *Options
	report *reporter
	poller *netpoll.Poller
	others map[int]source // by descriptor: what is no socket of a pair, see table
	pairs  int

	origin time.Time // what now counts from
	now    clock.Time
	wheel  *clock.Wheel[expirer]
	alarm  alarm

	kick       kick
	turns      []*pair // with more to do than one turn allowed
	running    []*pair // turns of the round under way
	dropped    []int   // out of the poller in this batch
	closable   []int   // out of the poller for a whole batch
	listeners  []*listener
	reserve    int // a descriptor to be given up when there are no others; -1: none
	draining   bool
	drained    bool
	empty      chan struct{} // closed once drained
	env        relay.Env
	chunks     chunk.Pool
	avoid      map[netip.AddrPort]clock.Time // addresses that failed, until when they are tried last
	recent     recent
	out        relay.Out // of the call into a session that is under way
	scratch    []byte
	bufs       [][]byte // scratch for vectored calls
	vectors    vectors
	registered netpoll.PollAttachment // scratch: the poller copies what it needs
}

// scratchSize holds the largest read with the gaps for its record headers.
const scratchSize = 128 << 10

func newLoop(s *Server) (*loop, error) {
	poller, err := netpoll.OpenPoller()
	if err != nil {
		return nil, err
	}
	l := &loop{
		server:  s,
		opts:    &s.opts,
		report:  s.report,
		poller:  poller,
		origin:  time.Now().Add(-time.Second), // so that now is never 0, which means "no instant"
		empty:   make(chan struct{}),
		others:  make(map[int]source),
		avoid:   make(map[netip.AddrPort]clock.Time),
		scratch: make([]byte, scratchSize),
		bufs:    make([][]byte, 0, maxVectors),
	}
	l.alarm.fd, l.kick.fd, l.reserve = -1, -1, -1
	l.env = s.newEnv(&l.chunks)
	l.tick()
	l.wheel = clock.NewWheel[expirer](l.now)
	l.openReserve()
	if err := errors.Join(l.openAlarm(), l.openKick()); err != nil {
		l.closeOwn()
		_ = poller.Close()
		return nil, err
	}
	return l, nil
}

// run serves until stop.
func (l *loop) run() {
	err := l.poller.Polling(func(fd int, events netpoll.IOEvent, _ netpoll.IOFlags) error {
		l.tick()
		if s := l.owner(fd); s != nil {
			s.ready(events)
		}
		l.armAlarm()
		return nil
	})
	if err != gnet.ErrEngineShutdown {
		l.report.loopFailed(err)
	}
	l.closeAll()
}

// tick reads the clocks once for all that one event causes.
func (l *loop) tick() {
	now := time.Now()
	l.now = clock.Time(now.Sub(l.origin))
	l.env.Wall = clock.Unix(now.Unix())
}

// watch registers fd for life, edge-triggered in both directions, and directs its events to s.
func (l *loop) watch(fd int, s source) error {
	l.enter(fd, s)
	l.registered.FD = fd
	if err := l.poller.AddReadWrite(&l.registered, true); err != nil {
		l.leave(fd)
		return err
	}
	return nil
}

// drop takes fd out of the poller at once and closes it after the next batch of events.
func (l *loop) drop(fd int) {
	l.leave(fd)
	_ = l.poller.Delete(fd)
	l.dropped = append(l.dropped, fd)
	l.kick.request(l)
}

// closeDropped closes what was dropped at least a whole batch of events ago.
func (l *loop) closeDropped() {
	for _, fd := range l.closable {
		_ = unix.Close(fd)
	}
	l.closable, l.dropped = l.dropped, l.closable[:0]
	if len(l.closable) > 0 {
		l.kick.request(l)
	}
}

// cleared returns the loop's Out, emptied for the next call into a session. What that decides is then
// carried out by pair.carryOut.
func (l *loop) cleared() *relay.Out {
	l.out = relay.Out{}
	return &l.out
}

// forget is told that a pair closed.
func (l *loop) forget() {
	l.pairs--
	l.server.clients.leave()
	l.checkEmpty()
}

// closeAll ends everything at once. The poller stays open for Server.Close.
func (l *loop) closeAll() {
	l.drain()
	for s := range l.sockets() {
		s.pair.close()
	}
	l.closeDropped()
	l.closeDropped()
	l.closeOwn()
}

func (l *loop) closeOwn() {
	for _, fd := range []int{l.alarm.fd, l.kick.fd, l.reserve} {
		_ = unix.Close(fd) // -1: was never opened
	}
}
