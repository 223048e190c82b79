package loop

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
)

// connection returns a non-blocking TCP socket whose peer does not read.
func connection(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fd, err := openSocket(netip.MustParseAddrPort(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	_ = unix.Connect(fd, sockaddr(netip.MustParseAddrPort(l.Addr().String()))) // EINPROGRESS
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestTurnsAreEqual: a turn of large reads moves no more than one of small reads, but for less than a record.
func TestTurnsAreEqual(t *testing.T) {
	p := &pair{loop: &loop{opts: &Options{}}}
	s, dst := &socket{pair: p, side: relay.Upstream}, &socket{pair: p, fd: int32(connection(t))}
	for _, large := range []bool{false, true} {
		s.large = large
		moved, reads := 0, 0
		for moved < turnBudget {
			moved += s.readLimit(dst, turnBudget-moved)
			reads++
		}
		if moved >= turnBudget+smallRead {
			t.Errorf("large reads %v: %d bytes in a turn of %d", large, moved, turnBudget)
		}
		if large != (reads == 1) {
			t.Errorf("large reads %v: %d of them", large, reads)
		}
	}
}

// TestNoRoomIsASmallRead: what the other side does not take is one record at most.
func TestNoRoomIsASmallRead(t *testing.T) {
	fd := connection(t)
	p := &pair{loop: &loop{opts: &Options{}}}
	s, dst := &socket{pair: p, side: relay.Upstream, large: true}, &socket{pair: p, fd: int32(fd)}
	if got := s.readLimit(dst, turnBudget); got != largeRead {
		t.Fatalf("into an empty buffer %d bytes, want %d", got, largeRead)
	}
	for err := error(nil); err == nil; {
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	if got := s.readLimit(dst, turnBudget); got != smallRead {
		t.Errorf("into a full buffer %d bytes, want %d", got, smallRead)
	}
}
