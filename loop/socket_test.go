package loop

import (
	"testing"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
)

// TestTurnsAreEqual: a turn of large reads moves no more than one of small reads, but for less than a record.
func TestTurnsAreEqual(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	p := &pair{loop: &loop{opts: &Options{}}}
	s, dst := &socket{pair: p, side: relay.Upstream}, &socket{pair: p, fd: int32(fds[0])}
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
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	p := &pair{loop: &loop{opts: &Options{}}}
	s, dst := &socket{pair: p, side: relay.Upstream, large: true}, &socket{pair: p, fd: int32(fds[0])}
	if got := s.readLimit(dst, turnBudget); got != largeRead {
		t.Fatalf("into an empty buffer %d bytes, want %d", got, largeRead)
	}
	for err == nil {
		_, err = unix.Write(fds[0], make([]byte, 4096))
	}
	if got := s.readLimit(dst, turnBudget); got != smallRead {
		t.Errorf("into a full buffer %d bytes, want %d", got, smallRead)
	}
}
