package loop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
	"mtrelay/tlsfront"
)

// Numbers of our choosing.
const (
	// smallRead is one full record. It bounds what a side that stops reading leaves in our memory.
	smallRead = tlsfront.FullRecord
	// largeRead is what a stream is read with. Six records cost a tenth less CPU per GB than three (four cost
	// more: on loopback a segment ends inside them), and moving them takes some 30 µs, so others hardly wait.
	largeRead = relay.MaxRecords * tlsfront.FullRecord
)

// readLimit returns how much may be read from s at once: much only of a stream, and only as much as the kernel is
// known to take for dst, since what it does not take stays in our memory. Asking costs two system calls.
// Where there is no room at all it is a small read all the same: the write that falls short is what makes
// the kernel tell when there is. What is left of the budget bounds it too, in whole records: otherwise a turn of large
// reads would move more than one of small reads, and of many downloads some would be faster than others.
func (s *socket) readLimit(dst *socket, budget int) int {
	if !s.large || dst.fd < 0 || budget <= smallRead {
		return smallRead
	}
	records := min(dst.room()/smallRead, (budget+smallRead-1)/smallRead)
	return max(smallRead, min(records*smallRead, largeRead))
}

// room returns how many bytes the kernel takes for s at once, as far as it tells.
func (s *socket) room() int {
	room := sendBufferRoom(int(s.fd))
	if lowat := s.pair.loop.opts.Socket.NotSentLowat; lowat > 0 && s.side == relay.Client {
		unsent, err := sysIoctlInt(int(s.fd), unix.SIOCOUTQNSD)
		if err != nil {
			return 0
		}
		room = min(room, lowat-unsent)
	}
	return room
}

// Indices into what SO_MEMINFO fills (SK_MEMINFO_… of linux/sock_diag.h).
const (
	memSendBuffer = 3
	memQueued     = 5
	memVars       = 9
)

// sendBufferRoom returns the free part of a send buffer in bytes of payload, 0 if the kernel does not say. It counts
// memory, of which a segment takes somewhat more than it carries.
func sendBufferRoom(fd int) int {
	var mem [memVars]uint32
	size := uint32(unsafe.Sizeof(mem))
	_, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&mem)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || mem[memQueued] > mem[memSendBuffer] {
		return 0
	}
	return int(mem[memSendBuffer]-mem[memQueued]) / 4 * 3
}

// sysIoctlInt asks for a number of bytes, such as SIOCINQ. It cannot block; see syscall_raw.go for why that matters.
func sysIoctlInt(fd int, request uintptr) (int, error) {
	var n int32
	_, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
