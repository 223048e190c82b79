package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// memory is what the kernel says a process takes, in bytes.
type memory struct {
	rss  int64
	anon int64 // the part of it that no file backs: heap and stacks
}

func (m memory) String() string {
	return fmt.Sprintf("%.1f MiB (%.1f)", mib(m.rss), mib(m.anon))
}

func (p *proxy) memory(t *testing.T) memory {
	t.Helper()
	return memory{rss: p.rss(t), anon: p.status(t, "RssAnon:") << 10}
}

// status returns a number from /proc/PID/status (proc_pid_status(5)). Those that are sizes count KiB.
func (p *proxy) status(t *testing.T, key string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in /proc/%d/status", key, p.pid)
	return 0
}

// peakUntil returns the largest memory seen until done.
func (p *proxy) peakUntil(t *testing.T, done <-chan error) (peak memory) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return peak
		case <-tick.C:
		}
		if m := p.memory(t); m.rss > peak.rss {
			peak = m
		}
	}
}

// cpu returns the time that the proxy's threads have run. The ticks of /proc/PID/stat are as long as the whole time
// that is to be measured, hence schedstat, which counts nanoseconds.
func (p *proxy) cpu(t *testing.T) (total time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no schedstat of process %d (%v)", p.pid, err)
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that ended
		}
		first, _, _ := strings.Cut(string(b), " ")
		ran, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(ran)
	}
	return total
}

// descriptors raises the test's own limit as far as it may and returns how many it can open.
func descriptors(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Max, 1<<20))
}

// sourceAddresses is the number of addresses, from 127.0.0.2 on, that a crowd of clients comes from: one alone has some
// 28,000 ports, and each is out of use for a minute after a connection that it closed.
const sourceAddresses = 16

var connections atomic.Uint32

// connectFrom dials addr from one source address after the other.
func connectFrom(addr string) (*net.TCPConn, error) {
	source := net.IPv4(127, 0, 0, byte(2+connections.Add(1)%sourceAddresses))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: source}, Control: portAtConnect, Timeout: patience}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// ipBindAddressNoPort (ip(7)) has connect choose the port rather than bind, so that one that waits in TIME_WAIT for
// another peer can be had.
const ipBindAddressNoPort = 24

func portAtConnect(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
	}); e != nil {
		return e
	}
	return err
}

// inParallel calls work for 0 to n-1, so many at a time, and returns what failed first.
func inParallel(n, atATime int, work func(i int) error) (first error) {
	var next atomic.Int64
	var once sync.Once
	var wg sync.WaitGroup
	for range atATime {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := work(int(i)); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return first
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func kib(bytes int64) float64 { return float64(bytes) / 1024 }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
