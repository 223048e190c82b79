package loop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// backlog is a number of our choosing; the kernel lowers it to net.core.somaxconn.
const backlog = 4096

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
		fd, err := openBound(o, addr, false) // it does not listen, or those who connect just now would be reset
		if err != nil {
			return err
		}
		_ = unix.Close(fd)
	}
	for i := range b.perLoop {
		fd, own, err := openListener(o, addr)
		if err != nil {
			return err
		}
		b.perLoop[i] = append(b.perLoop[i], fd)
		addr = own // a port 0 becomes the one that the first listener got
	}
	b.addresses = append(b.addresses, addr)
	return nil
}

// openListener listens on addr, beside others of ours, and returns the socket and the address that it got.
func openListener(o *Options, addr netip.AddrPort) (int, netip.AddrPort, error) {
	fd, err := openBound(o, addr, true)
	if err != nil {
		return -1, addr, err
	}
	err = unix.Listen(fd, backlog)
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

func openBound(o *Options, addr netip.AddrPort, reusePort bool) (int, error) {
	fd, err := openSocket(addr)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(o.listenerOptions(fd, addr, reusePort), unix.Bind(fd, sockaddr(addr))); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
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
