package interop

import (
	"syscall"
	"unsafe"
)

// outQueue returns SIOCOUTQ of a TCP socket (tcp(7)): bytes in the send queue that are not acknowledged yet.
func outQueue(fd uintptr) int {
	var n int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return 0
	}
	return int(n)
}
