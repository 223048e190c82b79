package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// restamped gives a recorded hello another stamp. It takes no secret: the stamp is mixed into the end of the random by
// exclusive or, and the digest does not cover it.
func restamped(hello []byte, from, to time.Time) []byte {
	b := bytes.Clone(hello)
	stamp := b[helloRandomOffset+28 : helloRandomOffset+32]
	binary.LittleEndian.PutUint32(stamp, binary.LittleEndian.Uint32(stamp)^uint32(from.Unix())^uint32(to.Unix()))
	return b
}

// nextSecond waits for one and returns the time.
func nextSecond() time.Time {
	now := time.Now()
	time.Sleep(time.Until(now.Truncate(time.Second).Add(time.Second)))
	return time.Now()
}

// expectFronted sends a hello that must reach the front unchanged.
func (s *scene) expectFronted(t *testing.T, f *notingFront, hello []byte) {
	t.Helper()
	f.heard()
	conn := s.dialRaw(t)
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, _ := readToEnd(conn)
	conn.Close()
	if acceptedBy(sceneKey, hello, got) {
		t.Fatal("the hello was accepted")
	}
	if heard := f.heard(); len(heard) != 1 || !bytes.Equal(heard[0], hello) {
		t.Errorf("the front heard %d visitors, or another text", len(heard))
	}
}

// TestReplayAfterRestart: a censor records a client's hello, waits for the proxy to be restarted, gives the hello the
// present time and sends it. Without a state directory that works, which shows that the copy is a good one.
func TestReplayAfterRestart(t *testing.T) {
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			t.Setenv("STATE_DIRECTORY", "") // of a service that runs the tests
			state := filepath.Join(t.TempDir(), "state")
			top := ""
			if stored {
				top = fmt.Sprintf("state-directory = %q\n", state)
			}
			begin := func() (*scene, *notingFront) { // a front is asked once per process whether it is the proxy
				f := startNotingFront(t)
				return startScene(t, sceneConfig{front: f.addr, top: top}), f
			}

			s, _ := begin()
			then := time.Now()
			recorded := relaytest.ClientHello(sceneKey, siteHost, relaytest.Stamp(then))
			slow := relaytest.ClientHello(sceneKey, siteHost, relaytest.Stamp(then))
			s.expectAccepted(t, recorded)
			c := s.dial(t, echoID)
			bounce(t, c, 1000)
			c.Close()
			s.cmd.Process.Signal(syscall.SIGTERM)
			if code := s.untilExit(t); code != 0 {
				t.Fatalf("exit code %d", code)
			}

			now := nextSecond()
			s, f := begin()
			if !stored {
				s.expectAccepted(t, restamped(recorded, then, now))
				s.expectFronted(t, f, slow)
				return
			}
			s.expectFronted(t, f, restamped(recorded, then, now))
			s.expectFronted(t, f, restamped(recorded, then, time.Now()))
			s.expectFronted(t, f, recorded)
			s.expectAccepted(t, slow) // which nobody can have seen accepted
			s.expectAccepted(t, relaytest.ClientHello(sceneKey, siteHost))
			expectPrivate(t, state)
		})
	}
}

// expectPrivate wants one file in the directory, for the owner only, without the secret.
func expectPrivate(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	path := filepath.Join(dir, files[0].Name())
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	b, err := os.ReadFile(path)
	if err != nil || bytes.Contains(b, sceneKey[:]) {
		t.Errorf("the secret is in %s: %v", path, err)
	}
}

// TestReplayFileSpoilt: a proxy whose file is unusable serves, and says so in one line.
func TestReplayFileSpoilt(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "replay"), pattern(1000), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startScene(t, sceneConfig{top: fmt.Sprintf("state-directory = %q\n", state)})
	bounce(t, s.dial(t, echoID), 1000)
	lines := slices.Collect(strings.Lines(s.output.String()))
	if n := len(slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, filepath.Join(state, "replay")) })); n != 1 {
		t.Errorf("%d lines name the file:\n%s", n, s.output)
	}
}

// TestReplayStateShared: a second proxy with the same state directory serves, and says what it must do without.
func TestReplayStateShared(t *testing.T) {
	top := fmt.Sprintf("state-directory = %q\n", t.TempDir())
	for i, want := range []bool{false, true} {
		s := startScene(t, sceneConfig{top: top})
		bounce(t, s.dial(t, echoID), 1000)
		if got := strings.Contains(s.output.String(), "another proxy uses it"); got != want {
			t.Errorf("proxy %d:\n%s", i, s.output)
		}
	}
}
