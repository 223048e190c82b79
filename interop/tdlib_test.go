package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// isolatedVar is set where a test runs in a network namespace of its own.
const isolatedVar = "INTEROP_ISOLATED"

// isolated reports whether the test runs where loopback is all the network there is. If not, it runs the test
// again in such a place, in a process of its own, and takes over its verdict: TDLib dials Telegram's own addresses
// as soon as it starts, and no test may reach out.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedVar) != "" {
		return true
	}
	binary, err := binaries.race() // there is no compiling without a network
	if err != nil {
		t.Fatal(err)
	}
	unshare := []string{"--net"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--map-root-user") // where the kernel lets anybody have a namespace
	}
	// The shell stays in front of the test binary only until the loopback interface is up. Debian keeps ip where
	// only root's PATH finds it.
	script := `PATH=$PATH:/usr/sbin:/sbin; ip link set lo up && exec "$0" "$@"`
	args := append(unshare, "sh", "-c", script, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = append(os.Environ(), isolatedVar+"=1", proxyBinaryVar+"="+binary)
	out, err := cmd.CombinedOutput()
	t.Logf("in a network namespace of its own:\n%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("failed there, or no namespace could be made (root, or unprivileged namespaces, are needed): %v", err)
	}
	return false
}

// tdlib is what client.js of ./tdlib prints in a line.
type tdlib struct {
	Seconds float64 // of a ping that succeeded
	Code    int     // of one that did not
	Error   string
	State   string // of the connection
	Failed  string // the driver could not do its work
}

// startTDLib runs client.js until the test ends and returns what it prints. Closing stdin ends the command stay.
func startTDLib(t *testing.T, command, addr, secret string) (lines <-chan tdlib, closeStdin func() error) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "tdlib/client.js", command, t.TempDir(), host, port, secret)
	log := &syncBuffer{}
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("TDLib's driver: %v (install.sh beside this file installs what is missing)", err)
	}

	printed := make(chan tdlib, 1024) // so that nothing read here waits for a test that has seen enough
	go func() {
		defer close(printed)
		for text := bufio.NewScanner(stdout); text.Scan(); {
			line := tdlib{Failed: text.Text()}
			if json.Unmarshal(text.Bytes(), &line) == nil {
				line.Failed = ""
			}
			printed <- line
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		timer := time.AfterFunc(clientPatience, func() { cmd.Process.Kill() })
		defer timer.Stop()
		for range printed { // Wait closes the pipe, so reading must be over
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("TDLib's driver: %v\n%s", err, log)
		}
		if text := log.String(); text != "" {
			t.Logf("TDLib's own log:\n%s", text)
		}
	})
	return printed, stdin.Close
}

// ping returns TDLib's answer to pingProxy.
func ping(t *testing.T, addr, secret string) tdlib {
	t.Helper()
	lines, _ := startTDLib(t, "ping", addr, secret)
	select {
	case line, ok := <-lines:
		if !ok || line.Failed != "" {
			t.Fatalf("TDLib's driver gave no answer: %q", line.Failed)
		}
		return line
	case <-time.After(clientPatience):
		t.Fatal("TDLib does not answer")
	}
	return tdlib{}
}

// enough is how many connections show that TDLib dials again after it lost one.
const enough = 3

func TestTDLib(t *testing.T) {
	if !isolated(t) {
		return
	}
	t.Run("right secret", tdlibPings)
	t.Run("wrong secret", tdlibIsRefused)
	t.Run("DC hangs up", tdlibReconnects)
	t.Run("DC refuses", tdlibFindsNoDC)
}

func tdlibPings(t *testing.T) {
	s := setStage(t, 0, noScout)
	if answer := ping(t, s.addr, faketls(stageKey)); answer.Error != "" {
		t.Errorf("pingProxy: %d %s", answer.Code, answer.Error)
	}
	checkConnections(t, s.dc, []int16{1}) // what it asks for before anybody has logged in
	if names := s.front.names(); len(names) != 0 {
		t.Errorf("the front saw ClientHellos for %q", names)
	}
}

func tdlibIsRefused(t *testing.T) {
	s := setStage(t, 0, noScout)
	if answer := ping(t, s.addr, faketls(strangerKey)); answer.Error == "" {
		t.Error("pingProxy succeeded")
	}
	if names := s.front.names(); !slices.Equal(names, []string{secretHost}) {
		t.Errorf("the front saw ClientHellos for %q, want one for %s", names, secretHost)
	}
	if ids := s.dc.dcs(); len(ids) != 0 {
		t.Errorf("the DC was dialled for %d", ids)
	}
}

// tdlibReconnects has the DC hang up on every request. Whatever the proxy sends before its FIN (PROTOCOL.md §4 wants a
// record like a close_notify), TDLib must see a lost connection, and dial again.
func tdlibReconnects(t *testing.T) {
	s := setStage(t, 0, "")
	s.dc.hangUpAfter(0)
	checkLost(t, ping(t, s.addr, faketls(stageKey)))

	before := len(s.dc.dcs())
	lines, closeStdin := startTDLib(t, "stay", s.addr, faketls(stageKey))
	defer closeStdin()
	deadline := time.After(clientPatience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(s.dc.dcs()) < before+enough {
		select {
		case line, ok := <-lines:
			if !ok || line.Failed != "" {
				t.Fatalf("TDLib's driver ended: %q", line.Failed)
			}
		case <-tick.C:
		case <-deadline:
			t.Fatalf("TDLib dialled %d times", len(s.dc.dcs())-before)
		}
	}
}

func tdlibFindsNoDC(t *testing.T) {
	s := setStage(t, 0, "")
	s.dc.ln.Close()
	checkLost(t, ping(t, s.addr, faketls(stageKey)))
}

// lost is how TDLib's words for a lost connection begin. Were the record that stands for a close_notify random, it
// would say "Expected packet size is too big".
const lost = "Connection closed"

// checkLost wants a ping that failed because the connection went, rather than for want of an answer.
func checkLost(t *testing.T, answer tdlib) {
	t.Helper()
	if !strings.HasPrefix(answer.Error, lost) {
		t.Errorf("pingProxy: %d %q after %v s, want a lost connection", answer.Code, answer.Error, answer.Seconds)
	}
	t.Logf("pingProxy: %q", answer.Error)
}
