package loadtest

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"syscall"

	"mtrelay/loadtest/netns"
)

// hosts say where the parties are: all on loopback, or each on a host of its own.
type hosts struct{ world *netns.World } // nil: loopback

// makeHosts makes what Options.Netns asks for.
func makeHosts(ctx context.Context, o *Options) (h hosts, err error) {
	if o.Netns {
		h.world, err = netns.Make(ctx, netns.Options{Rate: o.LinkRate})
	}
	return h, err
}

func (h hosts) close() error {
	if h.world == nil {
		return nil
	}
	return h.world.Close()
}

// do runs f, which makes a socket or starts a process, where a party is.
func (h hosts) do(r netns.Role, f func() error) error {
	if h.world == nil {
		return f()
	}
	return h.world.Do(r, f)
}

// host is a party's address.
func (h hosts) host(r netns.Role) string {
	if h.world == nil {
		return loopback
	}
	return h.world.Addr(r).String()
}

const loopback = "127.0.0.1"

// anyPort is an address for a party to listen at.
func (h hosts) anyPort(r netns.Role) string { return net.JoinHostPort(h.host(r), "0") }

func (h hosts) listen(r netns.Role, addr string) (l net.Listener, err error) {
	err = h.do(r, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// Ports to choose from: below those that the kernel gives to connections (ip_local_port_range), one of which may come
// between the choice and the use.
const (
	firstPort = 20_000
	ports     = 12_000
)

// free returns an address on which nobody listens now, where a party is. No process may be forked meanwhile: until it
// execs it would hold the listener, too, and the address would not be free.
func (h hosts) free(r netns.Role, host string) string {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for range 100 {
		addr := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(ports)))
		if l, err := h.listen(r, addr); err == nil {
			l.Close()
			return addr
		}
	}
	return net.JoinHostPort(host, "0") // the proxy will say what is wrong
}

// dial connects client n.
func (h hosts) dial(ctx context.Context, n uint64, addr string) (c net.Conn, err error) {
	var d net.Dialer
	if source := h.source(n, addr); source != nil {
		d.LocalAddr, d.Control = source, latePort
	}
	err = h.do(netns.Clients, func() (err error) {
		c, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return c, err
}

// source is where client n connects from; nil leaves it to the system.
func (h hosts) source(n uint64, addr string) *net.TCPAddr {
	if h.world != nil {
		own := h.world.Addrs(netns.Clients)
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(own[n%uint64(len(own))], 0))
	}
	if to, err := netip.ParseAddrPort(addr); err == nil && to.Addr().Is4() && to.Addr().IsLoopback() {
		return &net.TCPAddr{IP: sourceAddress(n)}
	}
	return nil
}

func (h hosts) start(r netns.Role, c *exec.Cmd) error { return h.do(r, c.Start) }
