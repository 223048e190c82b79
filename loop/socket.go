package loop

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
	"mtrelay/relay/chunk"
)

// Numbers of our choosing.
const (
	// maxVectors is the number of chunks that one writev takes, and of records that one readv fills.
	maxVectors = relay.MaxPlanned
)

// Events as the poller reports them (epoll). All of them are hints: the next read or write tells.
const (
	eventIn     = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	eventHangup = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
)

// A socket is one side of a pair.
type socket struct {
	pair *pair
	out  chunk.Queue // what the kernel did not take yet

	fd       int32 // -1: none
	side     relay.Side
	readable bool   // a read may return bytes
	hangup   bool   // FIN, RST or an error was seen: a short read does not mean "drained"
	ended    bool   // the session was told that nothing more comes
	broken   bool   // writing failed: bytes for this side are dropped
	reported bool   // the session was told that writing failed
	fin      bool   // FIN is due once out is empty
	rst      bool   // RST is due once out is empty and acknowledged
	large    bool   // the last read filled its buffer
	doubted  bool   // it was woken with less than awaited
	awaited  uint16 // bytes, 0 for none; see await
}

// ready is called by the poller.
func (s *socket) ready(ev uint32) {
	if ev&eventHangup != 0 {
		s.hangup = true
	}
	if ev&eventIn != 0 {
		s.readable = true
		s.woken()
	}
	if !s.pair.queued { // else its turn comes, and a second one would be unfair to the others
		s.pair.turn()
	}
}

// await has the kernel keep quiet about s until n bytes are there, its buffer has no room for so many, or the end has come.
// Without that we would not know when what is left unread keeps the window shut, and nothing more can come.
func (s *socket) await(n int) {
	if s.setLowat(n) {
		s.awaited, s.doubted = uint16(n), false
	}
}

// setLowat has the kernel look at once whether that many are there, and wake us if so.
func (s *socket) setLowat(n int) bool {
	return unix.SetsockoptInt(int(s.fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil
}

// woken is called when the kernel has spoken. An event from before await may come after it: so the first with too few bytes is
// not believed, but asked for again.
func (s *socket) woken() {
	if s.awaited == 0 {
		return
	}
	n, err := sysIoctlInt(int(s.fd), unix.SIOCINQ)
	enough := err == nil && n >= int(s.awaited)
	if !enough && !s.doubted && !s.hangup && s.setLowat(int(s.awaited)) {
		s.doubted = true
		return
	}
	s.listen()
	if !enough {
		s.pair.session.GiveUpHold()
	}
}

// listen has the next byte wake us again.
func (s *socket) listen() {
	if s.awaited > 0 {
		s.setLowat(1)
		s.awaited = 0
	}
}

// write sends b, or queues what the kernel does not take. A failure is remembered in s.broken.
func (s *socket) write(b []byte) {
	if len(b) == 0 || s.broken || s.fd < 0 {
		return
	}
	if s.out.Len() == 0 {
		n, err := retry(func() (int, error) { return sysWrite(int(s.fd), b) })
		if err != nil && err != unix.EAGAIN {
			s.fail()
			return
		}
		b = b[n:]
	}
	if len(b) > 0 {
		s.out.Append(&s.pair.loop.chunks, b)
	}
}

// flush sends what is queued, as far as the kernel takes it.
func (s *socket) flush() {
	l := s.pair.loop
	for s.out.Len() > 0 {
		bufs := s.out.Slices(l.bufs[:0])
		n, err := retry(func() (int, error) { return l.vectors.writev(int(s.fd), bufs) })
		if err == unix.EAGAIN {
			return
		}
		if err != nil {
			s.fail()
			return
		}
		s.out.Discard(&l.chunks, n)
	}
}

func (s *socket) fail() {
	s.broken = true
	s.out.Free(&s.pair.loop.chunks)
}

// finish sends the FIN that is due behind the queue.
func (s *socket) finish() {
	if s.fin && s.out.Len() == 0 && s.fd >= 0 {
		s.fin = false
		_ = unix.Shutdown(int(s.fd), unix.SHUT_WR) // ENOTCONN: it is gone already
	}
}

// idle tells whether nothing that was accepted for this side is still in our hands. A side that is to be
// reset must also have acknowledged everything, since RST destroys what is on its way.
func (s *socket) idle() bool {
	return s.out.Len() == 0 && (!s.rst || s.acknowledged())
}

func (s *socket) acknowledged() bool {
	if s.broken || s.fd < 0 {
		return true
	}
	n, err := sysIoctlInt(int(s.fd), unix.SIOCOUTQ)
	return err != nil || n == 0
}

// gone asks the kernel whether the peer's FIN or RST has arrived, which a read cannot tell while
// bytes before it are still unread.
func (s *socket) gone() bool {
	if !s.hangup || s.fd < 0 {
		return false
	}
	info, err := unix.GetsockoptTCPInfo(int(s.fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && (info.State == tcpCloseWait || info.State == tcpClose)
}

// States of a TCP connection as TCP_INFO numbers them (include/net/tcp_states.h).
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// setOptions sets what both sides share. On a listener it is inherited by what it accepts.
func (o *SocketOptions) setOptions(fd int) error {
	set := func(level, name, value int) error { return unix.SetsockoptInt(fd, level, name, value) }
	errs := []error{set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)}
	if o.KeepAlive {
		errs = append(errs,
			set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
			setUnlessZero(fd, unix.TCP_KEEPIDLE, seconds(o.KeepAliveIdle)),
			setUnlessZero(fd, unix.TCP_KEEPINTVL, seconds(o.KeepAliveInterval)),
			setUnlessZero(fd, unix.TCP_KEEPCNT, o.KeepAliveCount))
	}
	errs = append(errs, setUnlessZero(fd, unix.TCP_USER_TIMEOUT, int(o.UserTimeout.Milliseconds())))
	return errors.Join(errs...)
}

func setUnlessZero(fd, name, value int) error {
	if value == 0 {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, name, value)
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// openSocket opens a non-blocking TCP socket for addr's family.
func openSocket(addr netip.AddrPort) (int, error) {
	family := unix.AF_INET
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
}

// sockaddr returns a fresh kernel address: unix.Connect writes into the one it is given.
func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16(), ZoneId: zone(addr.Addr())}
}

// addrPort is the inverse of sockaddr; IPv4 in IPv6 is unmapped.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
