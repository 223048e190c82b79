package loadtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mtrelay/conf"
	"mtrelay/loadtest/netns"
)

// proxyBinary is the proxy that tests measure.
var proxyBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "loadtest-test")
	if err != nil {
		panic(err)
	}
	proxyBinary = filepath.Join(dir, "proxy")
	if out, err := exec.Command("go", "build", "-o", proxyBinary, "mtrelay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		os.Exit(1)
	}
	flag.Parse()
	flag.Set("test.parallel", "16") // they wait most of the time
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// TestScenarios runs each as small as it goes against a proxy of its own.
func TestScenarios(t *testing.T) {
	for name, test := range map[string]struct {
		o       Options
		rows    int
		metrics []string
	}{
		"idle":    {Options{Connections: []int{10, 20}}, 3, []string{"bytes_per_connection", "open_cpu_ms", "socket_bytes_per_connection"}},
		"active":  {Options{Connections: []int{20}, Rate: 20}, 1, []string{"cpu_us_per_message", "p99_ms"}},
		"bulk":    {Options{Connections: []int{1, 3}}, 2, []string{"cpu_s_per_gb_3", "mb_per_s", "fairness"}},
		"bulk up": {Options{Connections: []int{2}, Up: true}, 1, []string{"cpu_s_per_gb", "mb_per_s_2"}},
		"rate":    {Options{Mbit: 50}, 8, []string{"mbit_per_s", "rss_mean_bytes", "uss_peak_bytes"}},
		"sizes":   {Options{Sizes: []int{8, 5000, 32768, 0}}, 4, []string{"messages_per_s_8", "cpu_us_per_message_0"}},
		"ping":    {Options{Connections: []int{2}, Rate: 200}, 2, []string{"added_p99_ms", "p99_ms_beside_bulk"}},
		"churn":   {Options{Secrets: 3, Burst: 50, Hold: 20, Connections: []int{2}}, 4, []string{"handshake_cpu_ms", "handshakes_per_s_unknown_address", "burst_p99_ms_busy"}},
		"slow":    {Options{Stalled: []int{2, 4}}, 3, []string{"bytes_per_stalled", "socket_bytes_per_stalled"}},
		"front":   {Options{Connections: []int{5}}, 2, []string{"visit_cpu_ms", "bytes_per_visitor"}},
		"curve": {Options{Connections: []int{10, 20, 40}, Active: []float64{0, 0.5}, Stalled: []int{2, 4}, Rate: 10}, 8,
			[]string{"base_bytes", "bytes_per_active", "bytes_per_stalled", "worst_percent"}},
		"mixed": {Options{Connections: []int{20}, Rate: 20}, 2, []string{"p99_ms_day", "p99_ms_rush", "mb_per_s_rush"}},
	} {
		t.Run(name, func(t *testing.T) {
			alongside(t)
			o := test.o
			o.Scenario, _, _ = strings.Cut(name, " ")
			o.Executable, o.Duration, o.Quiet = proxyBinary, 400*time.Millisecond, 10*time.Millisecond
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Rows) != test.rows || strings.Contains(strings.Join(report.Notes, "\n"), "proxy said") {
				t.Errorf("%d rows, want %d; %q", len(report.Rows), test.rows, report.Notes)
			}
			for _, name := range test.metrics {
				if _, ok := report.Metrics[name]; !ok {
					t.Errorf("no %s in %v", name, slices.Sorted(maps.Keys(report.Metrics)))
				}
			}
			for _, name := range []string{"mb_per_s", "mbit_per_s", "messages_per_s_8", "handshake_cpu_ms", "visit_cpu_ms", "cpu_s_per_gb"} {
				if v, ok := report.Metrics[name]; ok && v <= 0 {
					t.Errorf("%s is %v", name, v)
				}
			}
		})
	}
}

// TestOnHostsOfTheirOwn: a download through a link of 80 Mbit/s is no faster than that, and right.
func TestOnHostsOfTheirOwn(t *testing.T) {
	world, err := netns.Make(t.Context(), netns.Options{})
	if err != nil {
		t.Skip(err) // not root, or a kernel without namespaces
	}
	if err := world.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{Scenario: "bulk", Executable: proxyBinary, Netns: true, LinkRate: 80e6, Connections: []int{1}, Duration: time.Second}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if speed := report.Metrics["mb_per_s"]; speed <= 0 || speed > 12 {
		t.Errorf("%v MB/s", speed)
	}
}

// corrupting is a TCP relay to addr that flips one bit of what passes byte n of either direction of each connection.
func corrupting(t *testing.T, addr string, up bool, n int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go relayCorrupting(client, addr, up, n)
		}
	}()
	return l.Addr().String()
}

func relayCorrupting(client net.Conn, addr string, up bool, n int64) {
	defer client.Close()
	dc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer dc.Close()
	flipUp, flipDown := int64(-1), n
	if up {
		flipUp, flipDown = n, -1
	}
	go func() {
		io.Copy(&flipping{w: dc, at: flipUp}, client)
		dc.Close()
	}()
	io.Copy(&flipping{w: client, at: flipDown}, dc)
}

type flipping struct {
	w    io.Writer
	at   int64 // the byte to flip a bit of; negative: none
	done int64
}

func (f *flipping) Write(p []byte) (int, error) {
	if i := f.at - f.done; f.at >= 0 && i >= 0 && i < int64(len(p)) {
		p = bytes.Clone(p)
		p[i] ^= 0x10
	}
	f.done += int64(len(p))
	return f.w.Write(p)
}

// TestCorruption: one wrong bit on the way is enough for every scenario to fail, wherever it is.
func TestCorruption(t *testing.T) {
	for _, test := range []struct {
		name string
		up   bool
		at   int64
		o    Options
	}{
		{"idle", false, 3*1024 - 100, Options{Connections: []int{40}}}, // the last echo of the greeting
		{"idle", false, 3*1024 + 64, Options{Connections: []int{40}}},  // the check in the end
		{"active", false, 3*1024 + 5, Options{Connections: []int{4}, Rate: 50}},
		{"bulk", false, 1 << 20, Options{Connections: []int{2}}},
		{"bulk", true, 1 << 20, Options{Connections: []int{2}, Up: true}},
		{"bulk", true, 64 + 32 + 1024 + 10, Options{Connections: []int{2}}}, // a command
		{"rate", false, 1 << 20, Options{Mbit: 100}},
		{"sizes", false, 1 << 17, Options{Sizes: []int{100}}},
		{"sizes", true, 1 << 17, Options{Sizes: []int{0}}},
		{"ping", false, 3*1024 + 5, Options{Connections: []int{1}}},
		{"churn", false, 100, Options{Connections: []int{1}, Burst: 20}},
		{"slow", false, 1 << 20, Options{Stalled: []int{2}}},
		{"curve", false, 1 << 20, Options{Connections: []int{4, 8}, Active: []float64{0, 1}, Stalled: []int{2}}},
		{"mixed", false, 1 << 20, Options{Connections: []int{4}}},
	} {
		t.Run(fmt.Sprintf("%s at %d", test.name, test.at), func(t *testing.T) {
			alongside(t)
			o := test.o
			o.DCBind = hosts{}.free(netns.DC, loopback)
			o.Scenario, o.Addr, o.Plain = test.name, corrupting(t, o.DCBind, test.up, test.at), true
			o.Duration, o.Quiet = 400*time.Millisecond, 10*time.Millisecond
			report, err := Run(t.Context(), o)
			if err == nil {
				t.Fatalf("nothing noticed: %+v", report)
			}
			if text := err.Error(); !strings.Contains(text, "differs") && !strings.Contains(text, " is 0x") && !strings.Contains(text, "a command reached the DC as") {
				t.Error(err)
			}
		})
	}
}

// TestPlainRelay: what is measured without a pid is measured without its processes, and says so.
func TestPlainRelay(t *testing.T) {
	dc := hosts{}.free(netns.DC, loopback)
	o := Options{Scenario: "bulk", Addr: corrupting(t, dc, true, -1), Plain: true, DCBind: dc, Connections: []int{2}, Duration: 300 * time.Millisecond}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := report.Metrics["cpu_s_per_gb"]; ok || report.Metrics["mb_per_s"] <= 0 || len(report.Notes) == 0 || !strings.Contains(report.Notes[0], "--pid") {
		t.Errorf("%v, %q", report.Metrics, report.Notes)
	}
	o.PIDs = []int{os.Getpid()}
	o.Addr = corrupting(t, dc, true, -1)
	if report, err = Run(t.Context(), o); err != nil || report.Metrics["cpu_s_per_gb"] <= 0 {
		t.Errorf("with a pid: %v, %v", report, err)
	}
}

// TestPlainChurn: through a relay of bytes, which answers no hello, the echo is what is waited for.
func TestPlainChurn(t *testing.T) {
	dc := hosts{}.free(netns.DC, loopback)
	o := Options{Scenario: "churn", Addr: corrupting(t, dc, true, -1), Plain: true, DCBind: dc, Connections: []int{2}, Burst: 20, Duration: 300 * time.Millisecond}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hello_p50_ms", "burst_p50_ms"} {
		if v := report.Metrics[name]; v < 0.001 { // ms; a latency of 0 is recorded as some ns
			t.Errorf("%s is %v", name, v)
		}
	}
}

// TestTargetFails: what a proxy says that does not start or that dies is in the error.
func TestTargetFails(t *testing.T) {
	for name, script := range map[string]string{
		"at the start": "#!/bin/sh\necho the reason >&2\nexit 3\n",
	} {
		path := filepath.Join(t.TempDir(), "proxy")
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), Options{Scenario: "idle", Connections: []int{1}, Executable: path})
		if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the reason") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProxyDies: a proxy that is killed in the midst of a run fails it at once, not after all patience.
func TestProxyDies(t *testing.T) {
	o := Options{Scenario: "idle", Connections: []int{20}, Quiet: time.Minute, Executable: proxyBinary}
	killed := new(atomic.Bool)
	o.Progress = writerFunc(func(p []byte) {
		if strings.HasPrefix(string(p), "idle: 0 connections") && !killed.Swap(true) {
			for _, pid := range children(t) {
				if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == proxyBinary {
					p, _ := os.FindProcess(pid)
					p.Kill()
				}
			}
		}
	})
	report, err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the proxy has ended: signal: killed") || len(report.Failures) == 0 {
		t.Errorf("%v", err)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// children returns the pids of our child processes.
func children(t *testing.T) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Skip("the kernel lists no children (CONFIG_PROC_CHILDREN)")
	}
	for _, path := range lists {
		text, _ := os.ReadFile(path)
		for f := range strings.FieldsSeq(string(text)) {
			pid := 0
			fmt.Sscan(f, &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestCancelled: an interrupted run ends soon and leaves no process behind.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Scenario: "idle", Connections: []int{10}, Quiet: time.Hour, Executable: proxyBinary}
	o.Progress = writerFunc(func(p []byte) {
		if strings.HasPrefix(string(p), "idle: 0") {
			cancel()
		}
	})
	if _, err := Run(ctx, o); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Error(err)
	}
}

// TestSelfConfig: the proxy has no complaint about what we write for it, and it finds everything.
func TestSelfConfig(t *testing.T) {
	var secrets []conf.Secret
	for range 2 {
		s, err := conf.NewSecret(rand.Reader, ownHost)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, s)
	}
	c := selfConfig{
		addr: "127.0.0.1:4000", stats: "127.0.0.1:4001", front: "127.0.0.1:4002", dcs: []string{"127.0.0.1:4003", "127.0.0.1:4004"},
		secrets: secrets, connections: 5000,
	}
	got, warnings, err := conf.Parse("config.toml", c.text())
	if err != nil || len(warnings) > 0 || len(got.Secrets) != 2 || got.Concurrency != 5000 || len(got.DC.Addresses) != 2 || got.Doppelganger.Enabled {
		t.Errorf("%+v, %q, %v", got, warnings, err)
	}
}

func TestOptionsRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"no scenario \"other\"":   {Scenario: "other"},
		"levels must rise":        {Scenario: "idle", Connections: []int{20, 10}},
		"each level is 1 or more": {Scenario: "idle", Connections: []int{0, 10}},
		"at most":                 {Scenario: "idle", Connections: []int{500_000_000}},
		"0 is a mixture":          {Scenario: "sizes", Sizes: []int{maxMessage + 1}},
		"from 0 to 1":             {Scenario: "curve", Active: []float64{1.5}},
		"give its --addr":         {Scenario: "idle", Plain: true},
		"also give --dc-bind":     {Scenario: "idle", Addr: "127.0.0.1:1"},
		"no hello":                {Scenario: "idle", Addr: "127.0.0.1:1", DCBind: "127.0.0.1:0", Plain: true, Classic: true},
		"also give its --secret":  {Scenario: "idle", Addr: "127.0.0.1:1", DCBind: "127.0.0.1:0"},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// alongside lets a test run beside others, but not under the race detector: the generator then takes so much that clients
// miss the proxy's handshake timer.
func alongside(t *testing.T) {
	if !raceEnabled {
		t.Parallel()
	}
}
