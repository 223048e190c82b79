package interop

import (
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The simulated path between an observer and a server: a round trip of 20 ms and 100 Mbit/s down.
const (
	pathDelay = 10 * time.Millisecond // one way
	pathRate  = 100e6 / 8             // bytes/s, of each connection
	pathQueue = 512 << 10             // bytes that are under way at most
	pathUnit  = 2 * 1448              // bytes that arrive together
)

// lengthen returns an address whose connections lead to addr over the path.
func lengthen(t *testing.T, addr string) string {
	t.Helper()
	ln, err := ethernet.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := pathDialer.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			var both sync.WaitGroup
			both.Go(func() { newPath(near.(*net.TCPConn)).carry(far.(*net.TCPConn)) })
			both.Go(func() { newPath(far.(*net.TCPConn)).carry(near.(*net.TCPConn)) })
			go func() {
				both.Wait()
				near.Close()
				far.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// Both ends of a path have Ethernet's segments. Those of loopback, 64 KiB, do not go together with a window that is
// closed at times: the kernel waits for its persist timer then.
var (
	pathDialer = net.Dialer{Control: shortSegments}
	ethernet   = net.ListenConfig{Control: shortSegments}
)

func shortSegments(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1448)
	}); e != nil {
		return e
	}
	return err
}

// parcel is bytes under way.
type parcel struct {
	b   []byte
	due time.Time
	err error // how the source ended
}

// path carries bytes to dst.
type path struct {
	dst   *net.TCPConn
	mu    sync.Mutex
	room  sync.Cond
	inAir int
	line  chan parcel
}

func newPath(dst *net.TCPConn) *path {
	p := &path{dst: dst, line: make(chan parcel, pathQueue/100)}
	p.room.L = &p.mu
	return p
}

func (p *path) carry(src *net.TCPConn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.deliver(src)
	}()
	buf := make([]byte, 64<<10)
	free := time.Now() // when the link has sent what was given to it
	for {
		n, err := src.Read(buf)
		now := time.Now()
		for b := buf[:n]; len(b) > 0; {
			part := append([]byte(nil), b[:min(len(b), pathUnit)]...)
			b = b[len(part):]
			if free.Before(now) {
				free = now
			}
			free = free.Add(time.Duration(float64(len(part)) / pathRate * 1e9))
			p.reserve(len(part))
			p.line <- parcel{b: part, due: free.Add(pathDelay)}
		}
		if err != nil {
			p.line <- parcel{err: err, due: time.Now().Add(pathDelay)}
			break
		}
	}
	<-done
}

func (p *path) reserve(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.inAir > pathQueue {
		p.room.Wait()
	}
	p.inAir += n
}

// deliver writes parcels when they are due. The runtime's timers round up to a millisecond when a program is idle.
func (p *path) deliver(src *net.TCPConn) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		one := <-p.line
		nap(time.Until(one.due))
		if one.err != nil {
			if endingOf(one.err) == endRST {
				p.dst.SetLinger(0)
				p.dst.Close()
			} else {
				p.dst.CloseWrite()
			}
			return
		}
		if _, err := p.dst.Write(one.b); err != nil {
			src.SetReadDeadline(time.Unix(1, 0))
			for one := range p.line { // until its sender has ended
				p.landed(len(one.b))
				if one.err != nil {
					return
				}
			}
		}
		p.landed(len(one.b))
	}
}

func (p *path) landed(n int) {
	p.mu.Lock()
	p.inAir -= n
	p.mu.Unlock()
	p.room.Signal()
}

func nap(d time.Duration) {
	if d > 0 {
		spec := unix.NsecToTimespec(int64(d))
		unix.Nanosleep(&spec, nil)
	}
}
