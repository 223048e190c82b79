package interop

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// runToEnd runs `proxy run` with a configuration that it must refuse, and returns what it said.
func runToEnd(t *testing.T, config string) string {
	t.Helper()
	binary, err := binaries.plain()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "run", file)
	timer := time.AfterFunc(patience, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code == 0 {
		t.Errorf("it was not refused: %v", err)
	}
	if sign := trouble(string(out)); sign != "" {
		t.Errorf("%q in the output", sign)
	}
	if key := fmt.Sprintf("%x", sceneKey); strings.Contains(string(out), key) {
		t.Error("the output holds the secret")
	}
	return string(out)
}

// withoutStats keeps the port of the counters out of a test.
const withoutStats = "[stats]\nenabled = false\n"

// TestFrontIsTheProxy: a front that leads back to the proxy is refused at start, in words that help.
func TestFrontIsTheProxy(t *testing.T) {
	for _, at := range [][2]string{ // bind-to, front
		{"127.0.0.1", "127.0.0.1"},
		{"0.0.0.0", "127.0.0.1"},
		{"0.0.0.0", "localhost"},
		{"[::1]", "[::1]"},
		{"[::]", "[::1]"},
		{"[::]", "127.0.0.1"},
		{"0.0.0.0", "[::ffff:127.0.0.1]"},
	} {
		t.Run(at[0]+" "+at[1], func(t *testing.T) {
			port := freePort(t)
			c := sceneConfig{
				bind:   []string{fmt.Sprintf("%s:%d", at[0], port)},
				front:  fmt.Sprintf("%s:%d", at[1], port),
				tables: withoutStats,
			}
			out := runToEnd(t, c.text(t, nobody(t)))
			if !strings.Contains(out, "the proxy itself") || !strings.Contains(out, "[domain-fronting]") {
				t.Errorf("the reason is not named:\n%s", out)
			}
		})
	}
}

// TestFrontLeadsToTheProxy: the same through a forwarder, which no list of addresses shows.
func TestFrontLeadsToTheProxy(t *testing.T) {
	bind := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	forwarder := rawFront(t, func(c *net.TCPConn) {
		onward, err := net.Dial("tcp", bind)
		if err != nil {
			return
		}
		defer onward.Close()
		go io.Copy(onward, c)
		io.Copy(c, onward)
	})
	c := sceneConfig{bind: []string{bind}, front: forwarder, tables: withoutStats}
	if out := runToEnd(t, c.text(t, nobody(t))); !strings.Contains(out, "the proxy itself") {
		t.Errorf("the reason is not named:\n%s", out)
	}
}

// TestSecondProxy: a second one on the same port is refused, and does not take a single client of the first.
func TestSecondProxy(t *testing.T) {
	s := startScene(t, sceneConfig{})
	watchBystander(t, s)
	again := sceneConfig{bind: []string{s.addr}, tables: withoutStats}
	out := runToEnd(t, again.text(t, nobody(t)))
	if !strings.Contains(out, s.addr) || !strings.Contains(out, "address already in use") {
		t.Errorf("the reason is not named:\n%s", out)
	}
	for range 20 {
		c := s.dial(t, echoID)
		bounce(t, c, 1000)
		c.Close()
	}
}

// TestSeveralAddresses: every address of bind-to serves, IPv6 included, and refuses together with the others.
func TestSeveralAddresses(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6 on loopback")
	} else {
		l.Close()
	}
	port := freePort(t)
	bind := []string{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("[::1]:%d", port), fmt.Sprintf("127.0.0.2:%d", freePort(t))}
	s := startScene(t, sceneConfig{bind: bind})
	fds := s.restingFDs(t)
	for _, addr := range bind {
		for range 5 {
			c := dialAt(t, addr, echoID)
			bounce(t, c, 100_000)
			c.Close()
		}
	}
	s.untilFDs(t, fds)
}

// untilRefused waits until nobody listens at addr any more.
func untilRefused(t *testing.T, addr string) {
	t.Helper()
	until(t, func() (bool, string) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil, "new clients are still accepted"
	})
}

// untilExit waits for the end of the process and returns its exit code.
func (s *scene) untilExit(t *testing.T) int {
	t.Helper()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("the proxy does not end")
		return -1
	}
}

// TestSIGTERM: no new clients, the present ones may finish, then exit 0; a second signal ends at once, and so does the
// time for draining when it is over.
func TestSIGTERM(t *testing.T) {
	for _, how := range []string{"clients finish", "second signal", "time is over"} {
		t.Run(how, func(t *testing.T) {
			drain := "10m"
			if how == "time is over" {
				drain = "1s"
			}
			s := startScene(t, sceneConfig{tables: fmt.Sprintf("[network.timeout]\ndrain = %q\n", drain)})
			clients := []*relaytest.Client{s.dial(t, echoID), s.dial(t, echoID)}
			for _, c := range clients {
				bounce(t, c, 1000)
			}
			s.cmd.Process.Signal(syscall.SIGTERM)
			untilRefused(t, s.addr)
			switch how {
			case "clients finish":
				for _, c := range clients {
					bounce(t, c, 100_000)
					c.CloseWrite()
					expectEndBehindFIN(t, c)
					c.Close()
				}
			case "second signal":
				bounce(t, clients[0], 100_000)
				s.cmd.Process.Signal(syscall.SIGTERM)
			}
			if code := s.untilExit(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// cpuTime returns the CPU time that the process has used.
func (s *scene) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	// proc(5): utime and stime are the fields 14 and 15; the name, the second, is in brackets and may hold spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * (time.Second / 100) // USER_HZ is 100 on every Linux that Go runs on
}

// TestIdleCostsNothing: sessions in every state in which one can stand still, and the process does not run.
func TestIdleCostsNothing(t *testing.T) {
	const ofEach = 20
	f := startNotingFront(t)
	s := startScene(t, sceneConfig{front: f.addr, tables: shortHandshake})
	resume := make(chan struct{})
	defer close(resume)
	var stalls []*stall
	for range ofEach {
		s.dialRaw(t) // with the front, once the handshake timer has fired
		bounce(t, s.dial(t, echoID), 1000)
		stalls = append(stalls, stallDown(t, s))

		halfClosed := s.onDC(func(c *relaytest.DCConn) error { <-resume; return nil })
		c := s.dial(t, halfClosed.id)
		halfClosed.connected(t)
		c.CloseWrite()

		ended := s.dial(t, s.onDC(func(*relaytest.DCConn) error { return nil }).id)
		expectEnd(t, ended) // lingers: the client does not close
	}
	up, _ := stallUp(t, s, resume)
	f.untilArrived(t, ofEach)
	untilStill(t, append(stalls, up)...)

	const watched, most = 2 * time.Second, 5 // percent of one core; spinning takes 100
	before := s.cpuTime(t)
	if before == 0 {
		t.Fatal("no CPU time is reported at all")
	}
	time.Sleep(watched)
	used := s.cpuTime(t) - before
	t.Logf("%v of CPU time in %v", used, watched)
	if used > watched*most/100 {
		t.Errorf("%v of CPU time in %v though nothing happens", used, watched)
	}
}
