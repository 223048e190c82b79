package measure

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"mtrelay/loadtest/netns"
)

// TestMemory: 64 MiB more show in every figure that counts them, and they are ours alone.
func TestMemory(t *testing.T) {
	const more = 64 << 20
	before, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	block, err := syscall.Mmap(-1, 0, more, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(block)
	for i := 0; i < more; i += os.Getpagesize() {
		block[i] = 1
	}
	after, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, grown := range map[string]int64{
		"RSS": after.RSS - before.RSS, "PSS": after.PSS - before.PSS, "USS": after.USS - before.USS,
		"anonymous": after.Anonymous - before.Anonymous,
	} {
		if grown < more*9/10 || grown > more*11/10 {
			t.Errorf("%s has grown by %d bytes, not %d", name, grown, more)
		}
	}
	if after.Anonymous > after.RSS || after.USS > after.PSS || after.PSS > after.RSS {
		t.Errorf("%+v", after)
	}
}

func TestDescriptors(t *testing.T) {
	before, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if after, err := Read(os.Getpid()); err != nil || after.Descriptors != before.Descriptors+1 {
		t.Errorf("%d descriptors, then %d (%v)", before.Descriptors, after.Descriptors, err)
	}
}

// TestCPU: the clock agrees with what getrusage says, and a thread that exits leaves its time.
func TestCPU(t *testing.T) {
	thread := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		defer close(thread)
		burn(t, 100*time.Millisecond)
	}()
	<-thread
	low := usage(t)
	got, err := CPU(os.Getpid())
	high := usage(t)
	if err != nil || got < 100*time.Millisecond || got < low-time.Millisecond || got > high+time.Millisecond {
		t.Errorf("%v, between %v and %v of getrusage (%v)", got, low, high, err)
	}
}

// burn runs until the process has used so much more time.
func burn(t *testing.T, d time.Duration) {
	for start := usage(t); usage(t) < start+d; {
	}
}

func usage(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestOtherProcess looks at one that has said something, since one that has just begun has no figures yet.
func TestOtherProcess(t *testing.T) {
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	input.Write([]byte("x"))
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	p, err := Read(pid)
	if err != nil || p.RSS == 0 || p.CPU == 0 || p.Descriptors == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if p, err := Read(pid); err == nil {
		t.Errorf("a process that has ended: %+v", p)
	}
	if s, err := ReadSockets(pid); err == nil {
		t.Errorf("sockets of a process that has ended: %+v", s)
	}
	if d, err := CPU(pid); err == nil {
		t.Errorf("CPU of a process that has ended: %v", d)
	}
}

// TestCgroup: what a process takes is charged to its own cgroup, and a shared one says nothing about it.
func TestCgroup(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read line; x=$(head -c 20000000 /dev/zero | tr '\\0' x); read line")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	if p, err := Read(pid); err != nil || p.Cgroup != 0 {
		t.Errorf("%+v: the cgroup is this process's too (%v)", p, err)
	}
	isolate(t, pid)
	input.Write([]byte("\n"))
	var p Process
	for start := time.Now(); p.Cgroup < 20_000_000 && time.Since(start) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		if p, err = Read(pid); err != nil {
			t.Fatal(err)
		}
	}
	if p.Cgroup < 20_000_000 || p.Cgroup > 200_000_000 {
		t.Errorf("%+v: 20 MB were to be charged", p)
	}
	input.Close()
	cmd.Wait()
}

// isolate moves a process into a cgroup of its own, which is removed in the end. In version 2 a group either holds
// processes or divides its memory among groups, so the new one is beside ours there.
func isolate(t *testing.T, pid int) {
	t.Helper()
	dir, file := memoryCgroup(os.Getpid())
	if dir == "" {
		t.Skip("no cgroup accounts for the memory of this process")
	}
	if file == "memory.current" {
		dir = filepath.Dir(dir)
	}
	dir = filepath.Join(dir, "mtrelay-test-"+strconv.Itoa(pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Skip(err)
	}
}

// TestSockets: the sockets of this process are found, both families, and bytes that nobody reads are in their memory.
func TestSockets(t *testing.T) {
	const unread = 50_000
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skip(err) // no IPv6 on loopback
		}
		defer l.Close()
		before := readSockets(t)
		writer, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		reader, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		if n := readSockets(t).Count - before.Count; n != 2 {
			t.Errorf("%s: %d sockets more, not 2", addr, n)
		}
		if _, err := writer.Write(make([]byte, unread)); err != nil {
			t.Fatal(err)
		}
		if grown := readSockets(t).Memory - before.Memory; grown < unread {
			t.Errorf("%s: %d unread bytes, and the memory has grown by %d", addr, unread, grown)
		}
	}
}

// TestSocketsElsewhere: a process is asked about in the network namespace that it is in.
func TestSocketsElsewhere(t *testing.T) {
	w, err := netns.Make(t.Context(), netns.Options{})
	if err != nil {
		t.Skip(err)
	}
	defer w.Close()
	l, err := w.Listen(netns.Proxy, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{f}
	if err := w.Start(netns.Proxy, cmd); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if s, err := ReadSockets(cmd.Process.Pid); err != nil || s.Count != 1 {
		t.Errorf("%+v, not the listener that it was given (%v)", s, err)
	}
}

func readSockets(t *testing.T) Sockets {
	t.Helper()
	s, err := ReadSockets(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestManySockets: more than one answer of the kernel holds.
func TestManySockets(t *testing.T) {
	const n = 1000
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := readSockets(t)
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
	}
	if got := readSockets(t).Count - before.Count; got != 2*n {
		t.Errorf("%d sockets, not %d", got, 2*n)
	}
}
