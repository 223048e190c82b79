// Package netns puts the parties of a load test into network namespaces of their own, joined by a bridge, so that their
// packets are of the size that they have on a path, can be limited to a rate, and come from more than one address.
//
// One process can be several parties, since a socket stays in the namespace in which it was made: see World.Do. Nothing has
// a name outside the process, so nothing is left when it ends, however it does. Needs root, and ip and tc of iproute2.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// Role is a party, and the host that it has for itself.
type Role int

const (
	Proxy Role = iota
	Clients
	DC
	Front
	roles // their number
)

func (r Role) String() string { return [...]string{"proxy", "clients", "dc", "front"}[r] }

const (
	mtu = 1500

	// clientAddresses is the number of the clients' addresses: each has 28,000 ports.
	clientAddresses = 8
)

// Options of a World.
type Options struct {
	// Rate is what the proxy's port lets through in either direction, in bit/s, as a rented server's does; 0 is no limit.
	Rate int64
}

// World is a bridge with a host for each role. Its hosts have no route to anywhere else.
type World struct {
	hosts [roles]*os.File
	hub   *os.File // the namespace of the bridge
}

// Make builds a world, which takes some 20 ms. Close it in the end.
//
// Segmentation is left to the virtual interfaces, as a server's leave it to theirs: a packet on the path is of 1,500 bytes
// to TCP (its segments are of 1,448), but the kernel passes several on at once.
func Make(ctx context.Context, o Options) (*World, error) {
	w := &World{}
	if err := w.build(ctx, o); err != nil {
		w.Close()
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	return w, nil
}

func (w *World) build(ctx context.Context, o Options) (err error) {
	if w.hub, err = create(); err != nil {
		return err
	}
	for r := range w.hosts {
		if w.hosts[r], err = create(); err != nil {
			return err
		}
	}
	if err := w.run(ctx, w.hub, "ip", w.cables()); err != nil {
		return err
	}
	for r := range roles {
		if err := w.run(ctx, w.hosts[r], "ip", host(r)); err != nil {
			return err
		}
		if err := w.Do(r, reusePorts); err != nil {
			return err
		}
	}
	if o.Rate == 0 {
		return nil
	}
	toProxy, fromProxy := limit(Proxy.String(), o.Rate), limit(port, o.Rate)
	return errors.Join(w.run(ctx, w.hub, "tc", toProxy), w.run(ctx, w.hosts[Proxy], "tc", fromProxy))
}

// port is the name of a host's interface; the bridge's end of the cable is called like the role.
const port = "eth0"

// cables are the lines for ip(8) in the hub. The hosts' namespaces are descriptors of the command, from 3 on.
func (w *World) cables() string {
	var b strings.Builder
	fmt.Fprintln(&b, "link add bridge type bridge\nlink set bridge up")
	for r := range roles {
		fmt.Fprintf(&b, "link add %s mtu %d type veth peer name %s mtu %d netns /proc/self/fd/%d\n", r, mtu, port, mtu, 3+int(r))
		fmt.Fprintf(&b, "link set %s master bridge up\n", r)
	}
	return b.String()
}

func host(r Role) string {
	var b strings.Builder
	fmt.Fprintln(&b, "link set lo up")
	for _, a := range addrs(r) {
		fmt.Fprintf(&b, "addr add %s/16 dev %s\n", a, port)
	}
	fmt.Fprintf(&b, "link set %s up\n", port)
	return b.String()
}

// reusePorts has the system give out the port of a connection again a second after its end, as it does on loopback anyway. A
// relay has 28,000 ports for the front, and a minute is what it would have to do without each.
func reusePorts() error {
	return os.WriteFile("/proc/sys/net/ipv4/tcp_tw_reuse", []byte("1"), 0)
}

// limit is the line for tc(8). The bucket holds 5 ms: a smaller one is not refilled in time where the kernel's clock ticks
// slowly. What would have to wait longer than 50 ms is dropped.
func limit(device string, rate int64) string {
	burst := max(rate/8/200, 64<<10)
	return fmt.Sprintf("qdisc add dev %s root tbf rate %dbit burst %d latency 50ms\n", device, rate, burst)
}

// run has a command carry out lines in a namespace.
func (w *World) run(ctx context.Context, ns *os.File, name, lines string) error {
	cmd := exec.CommandContext(ctx, name, "-batch", "-")
	cmd.Stdin = strings.NewReader(lines)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.ExtraFiles = w.hosts[:]
	if err := in(ns, cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// addrs are of the range that RFC 2544 sets aside for measurements.
func addrs(r Role) (list []netip.Addr) {
	n := 1
	if r == Clients {
		n = clientAddresses
	}
	for i := range n {
		list = append(list, netip.AddrFrom4([4]byte{198, 18, byte(r), byte(1 + i)}))
	}
	return list
}

// Addr is the host's address, the first one where it has several.
func (w *World) Addr(r Role) netip.Addr { return addrs(r)[0] }

// Addrs are all addresses of the host. Only the clients' has more than one.
func (w *World) Addrs(r Role) []netip.Addr { return addrs(r) }

// Do runs f on the host, see At: f may listen, dial an IP address, or start a process. Listeners and connections can then be
// used anywhere.
func (w *World) Do(r Role, f func() error) error { return in(w.hosts[r], f) }

// Listen is net.Listen for TCP on the host.
func (w *World) Listen(r Role, address string) (l net.Listener, err error) {
	err = w.Do(r, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Dialer returns d's DialContext as it is on the host, for IP addresses. It takes a thread until the connection stands.
func (w *World) Dialer(r Role, d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = w.Do(r, func() (err error) {
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// Start starts a process on the host.
func (w *World) Start(r Role, cmd *exec.Cmd) error { return w.Do(r, cmd.Start) }

// Close gives the hosts up. They go when the last socket and the last process in them have gone.
func (w *World) Close() error {
	var errs []error
	for _, ns := range append(w.hosts[:], w.hub) {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
