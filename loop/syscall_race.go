//go:build race

package loop

import (
	"github.com/panjf2000/gnet/v2/pkg/io"
	"golang.org/x/sys/unix"
)

func sysRead(fd int, p []byte) (int, error)  { return unix.Read(fd, p) }
func sysWrite(fd int, p []byte) (int, error) { return unix.Write(fd, p) }

type vectors struct{}

func (*vectors) readv(fd int, bufs [][]byte) (int, error)  { return io.Readv(fd, bufs) }
func (*vectors) writev(fd int, bufs [][]byte) (int, error) { return io.Writev(fd, bufs) }
