package interop

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	fewDescriptors = 64
	crowd          = 200
)

// TestDescriptorsRunOut takes them away from a running proxy, so that its own limits do not help, and lets
// a crowd in. Nothing may spin, established sessions go on, and clients are accepted again once there are
// descriptors.
func TestDescriptorsRunOut(t *testing.T) {
	s := startScene(t, sceneConfig{})
	established := newBystander(t, s)
	few := unix.Rlimit{Cur: fewDescriptors, Max: fewDescriptors}
	if err := unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range crowd {
		if c, err := net.Dial("tcp", s.addr); err == nil { // else it was refused, which is fine
			conns = append(conns, c)
		}
	}
	before := s.cpuTime(t)
	const watched = 3 * time.Second
	time.Sleep(watched)
	used := s.cpuTime(t) - before
	t.Logf("%v of CPU in %v with all descriptors taken (%d open)", used, watched, s.fds(t))
	if share := float64(used) / float64(watched); share > 0.05 {
		t.Errorf("%.1f %% of a processor", 100*share)
	}
	if err := established.trip(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(s.output.String(), "could not be accepted"); n != 1 {
		t.Errorf("%d lines in the log, want one", n)
	}
	for _, c := range conns {
		c.Close()
	}
	freed := time.Now()
	for {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
		}
		if s.fds(t) < fewDescriptors-10 {
			break
		}
		if time.Since(freed) > patience {
			t.Fatal("descriptors are not given back")
		}
	}
	s.dial(t, echoID)
	t.Logf("accepted %v after the crowd left", time.Since(freed))
	if err := established.trip(); err != nil {
		t.Error(err)
	}
	if n := s.metric(t, `mtrelay_accept_errors_total{errno="EMFILE"}`); n == 0 {
		t.Error("descriptors did not run out: the test tests nothing")
	}
}

// TestConcurrencyFitsDescriptors starts with few of them: the operator is told, and no descriptor runs out.
func TestConcurrencyFitsDescriptors(t *testing.T) {
	config := sceneConfig{}
	text := config.text(t, "127.0.0.1:1")
	p := start(t, limited, text)
	if !strings.Contains(p.output.String(), "concurrency is lowered") {
		t.Errorf("not told: %s", p.output)
	}
	for range crowd {
		if c, err := net.Dial("tcp", config.bind[0]); err == nil {
			defer c.Close()
		}
	}
	s := &scene{proxy: p}
	refused := s.metric(t, `mtrelay_refused_total{limit="concurrency"}`) + s.metric(t, `mtrelay_refused_total{limit="unproven"}`)
	if refused == 0 {
		t.Error("nobody was refused")
	}
	if n := s.metric(t, `mtrelay_accept_errors_total{errno="EMFILE"}`); n != 0 {
		t.Errorf("descriptors ran out %v times", n)
	}
}

// limited returns a command that runs the proxy with few descriptors.
func limited() (string, error) {
	real, err := binaries.plain()
	if err != nil {
		return "", err
	}
	path := filepath.Join(binaries.dir, "limited")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", fewDescriptors, real)
	return path, os.WriteFile(path, []byte(script), 0o755)
}

// metric returns the value of one series.
func (p *proxy) metric(t *testing.T, series string) float64 {
	t.Helper()
	answer, err := http.Get(p.stats + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no series %s", series)
	return 0
}
