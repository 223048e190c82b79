package loop

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mtrelay/doppel"
	"mtrelay/relay"
	"mtrelay/relay/relaytest"
)

// serveShaped runs a proxy whose sessions look like a site that sends full records without pauses. Its clients linger for
// longer than tests wait, and the segments of its DC are of Ethernet's length.
func serveShaped(t *testing.T, work func(*relaytest.DCConn), change ...func(*Options)) *Server {
	t.Helper()
	ethernet := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1448) }), err)
	}}
	ln, err := ethernet.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dc := relaytest.DCOn(ln)
	dc.Serve(work)
	t.Cleanup(func() { dc.Close() })
	o := options(dc.Addr(), fakeFront(t, echoFront))
	o.Linger = 2 * patience
	for _, f := range change {
		f(&o)
	}
	s := serve(t, o)
	s.SetLook(0, &relay.Look{Shape: doppel.Default()})
	return s
}

// frame is a message as the padded intermediate transport has it.
func frame(n int) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(n)), make([]byte, n)...)
}

func writeAll(w io.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// TestWhatIsHeldLeaves: while a message goes on the kernel is told not to wake us for less than a record. When it is over, the
// least byte has to wake us again.
func TestWhatIsHeldLeaves(t *testing.T) {
	const long, short = 50_000, 40
	s := serveShaped(t, func(c *relaytest.DCConn) {
		for ask := make([]byte, 1); ; {
			if _, err := io.ReadFull(c, ask); err != nil {
				return
			}
			message := frame(short)
			if ask[0] == 'l' {
				message = frame(long)
			}
			for len(message) > 0 {
				n := min(1448, len(message))
				if writeAll(c, message[:n]) != nil {
					return
				}
				message = message[n:]
			}
		}
	})
	c := connect(t, s)
	for range 50 {
		for ask, n := range map[byte]int{'l': long, 's': short} {
			if err := writeAll(c, []byte{ask}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, c, int64(4+n)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAwaitTellsOfAShutWindow: what await rests on. Whoever waits for more than there is room for is woken when no more can come,
// and not before.
func TestAwaitTellsOfAShutWindow(t *testing.T) {
	const room, awaited = 4 << 10, 60 << 10
	fill := make(chan int)
	addr := listenTCP(t, func(c *net.TCPConn) {
		for n := range fill {
			c.Write(make([]byte, n))
		}
	})
	defer close(fill)
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, room) }), err)
	}}
	s := socket{fd: int32(descriptorTo(t, d, addr))}
	if s.await(awaited); s.awaited != awaited {
		t.Fatal("the kernel has no low-water mark")
	}
	readable := func(timeout int) bool {
		fds := []unix.PollFd{{Fd: s.fd, Events: unix.POLLIN}}
		n, err := retry(func() (int, error) { return unix.Poll(fds, timeout) })
		return err == nil && n == 1
	}
	fill <- 10
	await(t, "ten bytes", func() bool { n, _ := sysIoctlInt(int(s.fd), unix.SIOCINQ); return n == 10 })
	if readable(0) {
		t.Error("woken for ten bytes")
	}
	fill <- 10 * awaited
	if !readable(int(patience.Milliseconds())) {
		t.Error("not woken though no more can come")
	}
}

// descriptorTo returns that of a connection to addr, which ends with the test.
func descriptorTo(t *testing.T, d net.Dialer, addr string) (fd int) {
	t.Helper()
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return int(file.Fd())
}

// TestHalfClosedClientGetsAll: who asks, ends its direction and reads on gets all messages that the DC has sent meanwhile.
func TestHalfClosedClientGetsAll(t *testing.T) {
	const frames, short = 400, 3000
	for range 10 {
		written := make(chan error, 1)
		s := serveShaped(t, func(c *relaytest.DCConn) {
			io.CopyN(io.Discard, c, 1)
			var all []byte
			for range frames {
				all = append(all, frame(short)...)
			}
			written <- writeAll(c, all)
			io.Copy(io.Discard, c)
		})
		c := connect(t, s, relaytest.ReceiveBuffer(8<<10))
		if err := writeAll(c, []byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyN(io.Discard, c, frames*(4+short)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if _, err := c.ReadEnd(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWidenedWindow: the buffer is larger, may still grow, and wakes for a byte.
func TestWidenedWindow(t *testing.T) {
	fd := descriptorTo(t, net.Dialer{}, listenTCP(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) }))
	widenWindow(fd)
	const fixed = 2 // SOCK_RCVBUF_LOCK: SO_RCVBUF was set, the buffer does not grow
	buffer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	mark, markErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	lock, lockErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK)
	if err := errors.Join(err, markErr, lockErr); err != nil {
		t.Fatal(err)
	}
	if buffer < firstWindow*3/2 || mark != 1 || lock&fixed != 0 {
		t.Errorf("a buffer of %d bytes, low-water mark %d, locks %d", buffer, mark, lock)
	}
}

// TestHeldTail: what waits for bytes that never come, because the DC has left, is delivered all the same.
func TestHeldTail(t *testing.T) {
	for _, n := range []int{1, 4, 1000, 10_000, 40_000} {
		s := serveShaped(t, func(c *relaytest.DCConn) {
			io.CopyN(io.Discard, c, 1)
			writeAll(c, frame(50_000)[:n])
			io.CopyN(io.Discard, c, 1) // it was held meanwhile, or is about to be
		})
		c := connect(t, s)
		if err := writeAll(c, []byte{1}, []byte{2}); err != nil {
			t.Fatal(err)
		}
		if got, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
			t.Fatalf("%d bytes of %d arrived: %v", got, n, err)
		}
		if _, err := c.ReadEnd(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeavingClientIsNotKept: who ends its direction when all was answered gets the end of a site at once, though the DC takes
// its time.
func TestLeavingClientIsNotKept(t *testing.T) {
	over := make(chan struct{})
	s := serveShaped(t, func(c *relaytest.DCConn) {
		io.CopyN(io.Discard, c, 1)
		writeAll(c, frame(1000))
		<-over
	})
	defer close(over)
	c := connect(t, s)
	if err := writeAll(c, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, 4+1000); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadEnd(); err != nil {
		t.Fatal(err)
	}
}
