package netns

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newWorld skips the test where the machine does not allow what it takes.
func newWorld(t *testing.T, o Options) *World {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces take root")
	}
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here: install iproute2", tool)
		}
	}
	w, err := Make(t.Context(), o)
	if err != nil {
		if strings.Contains(err.Error(), unix.EPERM.Error()) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		checkThreads(t)
	})
	return w
}

// checkThreads fails when a thread of this process was left behind in another namespace.
func checkThreads(t *testing.T) {
	t.Helper()
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, name := range threads {
		if ns, err := os.Readlink(name); err == nil && ns != home {
			t.Errorf("%s is %s, not %s", name, ns, home)
		}
	}
}

// connect returns both ends of a connection between two hosts.
func connect(t *testing.T, w *World, from, to Role, d *net.Dialer) (dialled, accepted *net.TCPConn) {
	t.Helper()
	l, err := w.Listen(to, netip.AddrPortFrom(w.Addr(to), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := w.Dialer(from, d)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return c.(*net.TCPConn), a.(*net.TCPConn)
}

// TestPaths: every host reaches every other, from the address that it should have, in segments of an Ethernet's size.
func TestPaths(t *testing.T) {
	w := newWorld(t, Options{})
	for from := range roles {
		for to := range roles {
			if from == to {
				continue
			}
			c, a := connect(t, w, from, to, &net.Dialer{})
			if got := a.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != w.Addr(from) {
				t.Errorf("%s reaches %s from %s, not from %s", from, to, got, w.Addr(from))
			}
			if got := segment(t, c); got != 1448 {
				t.Errorf("%s to %s: segments of %d bytes", from, to, got)
			}
		}
	}
	for _, source := range w.Addrs(Clients) {
		d := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
		if _, a := connect(t, w, Clients, Proxy, d); a.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() != source {
			t.Errorf("a client comes from %s, not from %s", a.RemoteAddr(), source)
		}
	}
}

// segment returns the size of the payload that a segment may have.
func segment(t *testing.T, c *net.TCPConn) (size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestApart: a host has nothing but its port, and this process's own network is not its.
func TestApart(t *testing.T) {
	w := newWorld(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := w.Dialer(DC, &net.Dialer{})(t.Context(), "tcp", l.Addr().String()); err == nil {
		t.Errorf("reached from a host: %v", c.RemoteAddr())
	}
	cmd := exec.Command("ip", "-br", "link")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := w.Start(DC, cmd); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "eth0@") {
		t.Errorf("the interfaces of a process on a host:\n%s", out.String())
	}
}

// TestPortsReturn: the host's own setting is changed, and nobody else's.
func TestPortsReturn(t *testing.T) {
	setting := func() string {
		text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_tw_reuse")
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := setting()
	w := newWorld(t, Options{})
	w.Do(Proxy, func() error {
		if got := setting(); got != "1" {
			t.Errorf("tcp_tw_reuse is %s on a host", got)
		}
		return nil
	})
	if got := setting(); got != before {
		t.Errorf("tcp_tw_reuse is %s here, %s before", got, before)
	}
}

// TestRate: bytes take the time that the rate says, in either direction of the proxy's port, and only there. A busy machine
// makes it longer, so that only the lower bound can be tested here.
func TestRate(t *testing.T) {
	const rate, size = 80e6, 2 << 20 // bit/s; bytes
	const least = size*8*time.Second/rate - 30*time.Millisecond
	w := newWorld(t, Options{Rate: rate})
	for _, path := range [][2]Role{{DC, Proxy}, {Proxy, Clients}} {
		if took := transfer(t, w, path[0], path[1], size); took < least {
			t.Errorf("%s to %s: %d bytes in %v, at most %v of it allowed", path[0], path[1], size, took, least)
		}
	}
}

// transfer returns how long so many bytes take.
func transfer(t *testing.T, w *World, from, to Role, size int64) time.Duration {
	t.Helper()
	c, a := connect(t, w, from, to, &net.Dialer{})
	start := time.Now()
	go func() {
		c.Write(make([]byte, size))
		c.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, a); err != nil || n != size {
		t.Fatalf("%d bytes of %d: %v", n, size, err)
	}
	return time.Since(start)
}

// TestMakeFails: nothing stays open, and no thread is left in a namespace.
func TestMakeFails(t *testing.T) {
	newWorld(t, Options{}) // skips
	before := descriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Make(ctx, Options{}); err == nil {
		t.Error("made after the context was cancelled")
	}
	if _, err := Make(t.Context(), Options{Rate: -1}); err == nil || !strings.Contains(err.Error(), "tc") {
		t.Errorf("a rate that tc does not take: %v", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	checkThreads(t)
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestAt: the namespace of another process, by its id.
func TestAt(t *testing.T) {
	w := newWorld(t, Options{})
	sleeper := exec.Command("sleep", "60")
	if err := w.Start(Proxy, sleeper); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Process.Kill()
	path := filepath.Join("/proc", strconv.Itoa(sleeper.Process.Pid), "ns/net")
	err := At(path, func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(w.Addr(Proxy), 0).String())
		if err == nil {
			l.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := At("/proc/self/ns/net", func() error { return nil }); err != nil {
		t.Error(err)
	}
}
