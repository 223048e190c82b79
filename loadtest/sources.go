package loadtest

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sources is how many addresses the clients come from, in turn: at 20,000 ports each more than one machine needs.
const sources = 32

// sourceAddress returns where client n connects from: 127.0.0.2 to 127.0.0.33.
func sourceAddress(n uint64) net.IP { return net.IPv4(127, 0, 0, byte(2+n%sources)) }

// latePort has the kernel choose the port at the connect, when it knows the peer (ip(7), IP_BIND_ADDRESS_NO_PORT). Else a
// port would be taken for all peers, and stay so for a minute after the end.
func latePort(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); e != nil {
		return e
	}
	return err
}
