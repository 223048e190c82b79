//go:build race

package loop

import (
	"github.com/panjf2000/gnet/v2/pkg/io"
	"golang.org/x/sys/unix"
)

func sysRead(fd int, p []byte) (int, error) { return moved(unix.Read(fd, p)) }
func sysPeek(fd int, p []byte) (int, error) {
	n, _, err := unix.Recvfrom(fd, p, unix.MSG_PEEK)
	return moved(n, err)
}
func sysWrite(fd int, p []byte) (int, error) { return moved(unix.Write(fd, p)) }

type vectors struct{}

func (*vectors) readv(fd int, bufs [][]byte) (int, error)  { return moved(io.Readv(fd, bufs)) }
func (*vectors) writev(fd int, bufs [][]byte) (int, error) { return moved(io.Writev(fd, bufs)) }

// moved gives the answer of syscall_raw.go: with an error nothing was moved, not -1 bytes.
func moved(n int, err error) (int, error) { return max(n, 0), err }
