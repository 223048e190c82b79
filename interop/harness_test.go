// Package interop runs the built proxy against real Telegram clients and real web servers, on loopback only.
// It is a module of its own so that the clients' dependencies stay out of the proxy's.
package interop

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bounds of patience of our choosing. They end a hang; nothing is measured against them.
const (
	startPatience = 30 * time.Second // from exec to the first 200 of /healthz; a -race build on a busy machine is slow
	drainPatience = 5 * time.Second  // from SIGTERM to the exit; then a second signal ends the draining at once
	endPatience   = 10 * time.Second // from the second signal to the exit; then SIGQUIT shows where it hangs
)

// proxyBinaryVar names a binary that was built already: a test that re-executes itself in a network
// namespace hands down the one that it has.
const proxyBinaryVar = "INTEROP_PROXY"

// binaries holds the proxy as built for this run, each variant once and only when a test asks for it.
var binaries struct {
	dir   string // removed by TestMain
	plain func() (string, error)
	race  func() (string, error)
}

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries.dir = dir
	binaries.plain = sync.OnceValues(func() (string, error) { return build("proxy") })
	binaries.race = sync.OnceValues(func() (string, error) { return build("proxy-race", "-race") })
	return m.Run()
}

// build compiles the proxy of the root module into the run's directory and returns its path.
func build(name string, flags ...string) (string, error) {
	if path := os.Getenv(proxyBinaryVar); path != "" {
		return path, nil
	}
	path := filepath.Join(binaries.dir, name)
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, ".")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the proxy: %w\n%s", err, out)
	}
	return path, nil
}

// proxy is a running `proxy run`.
type proxy struct {
	pid    int
	stats  string // base URL of its HTTP server, http://127.0.0.1:port
	output *syncBuffer

	cmd    *exec.Cmd
	exited chan struct{} // closed once the process was waited for
}

// startProxy runs `proxy run FILE ARGS` with config as FILE until the test ends, and returns once /healthz
// answers 200. A config without [stats] gets one on a free port. The test fails when the proxy exits early
// or not cleanly, or when its output holds a panic. The binary is never a -race one, so memory can be measured.
func startProxy(t *testing.T, config string, args ...string) *proxy {
	t.Helper()
	return start(t, binaries.plain, config, args...)
}

// startCheckedProxy is startProxy with the race detector in the proxy, so its memory figures mean nothing.
// A race that was found ends the proxy with another exit code than 0, and so fails the test.
func startCheckedProxy(t *testing.T, config string, args ...string) *proxy {
	t.Helper()
	return start(t, binaries.race, config, args...)
}

func start(t *testing.T, binary func() (string, error), config string, args ...string) *proxy {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	config, address := withStats(t, config)
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	p := &proxy{stats: "http://" + address, output: &syncBuffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(path, append([]string{"run", file}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=50") // a second otherwise, which every test would wait for
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = p.cmd.Process.Pid
	go func() {
		p.cmd.Wait() // the verdict is read from ProcessState, see stop
		close(p.exited)
	}()
	t.Cleanup(func() { p.stop(t) })
	p.awaitHealthy(t)
	return p
}

var statsTable = regexp.MustCompile(`(?m)^\[stats\]\s*$(?s:[^\[]*?)^bind-to\s*=\s*"([^"]+)"`)

// withStats returns config with a [stats] table, and the address in it.
func withStats(t *testing.T, config string) (string, string) {
	t.Helper()
	if m := statsTable.FindStringSubmatch(config); m != nil {
		return config, m[1]
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	return fmt.Sprintf("%s\n[stats]\nbind-to = %q\n", config, address), address
}

func (p *proxy) awaitHealthy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !p.healthy(ctx) {
		select {
		case <-p.exited:
			t.Fatalf("proxy ended before it served: %v\n%s", p.cmd.ProcessState, p.output)
		case <-ctx.Done():
			t.Fatalf("proxy does not answer %s/healthz\n%s", p.stats, p.output)
		case <-tick.C:
		}
	}
}

func (p *proxy) healthy(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.stats+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends the proxy as an operator would and judges how it went.
func (p *proxy) stop(t *testing.T) {
	t.Helper()
	drained := p.endWith(syscall.SIGTERM, drainPatience)
	if !drained && !p.endWith(syscall.SIGTERM, endPatience) {
		t.Errorf("proxy hangs after two SIGTERM")
		p.endWith(syscall.SIGQUIT, endPatience)
		p.endWith(syscall.SIGKILL, endPatience)
	}
	if code := p.cmd.ProcessState.ExitCode(); drained && code != 0 {
		t.Errorf("proxy exited with %d", code)
	}
	if sign := trouble(p.output.String()); sign != "" {
		t.Errorf("proxy printed %q", sign)
	}
	if t.Failed() {
		t.Logf("output of the proxy:\n%s", p.output)
	}
}

// endWith sends sig and reports whether the process was gone within patience.
func (p *proxy) endWith(sig syscall.Signal, patience time.Duration) bool {
	p.cmd.Process.Signal(sig) // "already finished" shows in exited
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// trouble returns the first sign of a defect in the proxy's output, or "".
func trouble(output string) string {
	for _, sign := range []string{"panic:", "fatal error:", "WARNING: DATA RACE", "internal error"} {
		if strings.Contains(output, sign) {
			return sign
		}
	}
	return ""
}

// rss returns the resident memory of the proxy in bytes.
func (p *proxy) rss(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no VmRSS in /proc/%d/status", p.pid)
	return 0
}

// fds returns how many descriptors the proxy holds open.
func (p *proxy) fds(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

var handedOut sync.Map // ports that freePort has returned

// freePort returns a TCP port of 127.0.0.1 that nobody listens on, and never the same one twice in a run.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		ln.Close()
		if _, again := handedOut.LoadOrStore(port, true); !again {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// syncBuffer gathers the output of a process. Safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
