package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/clock"
	"mtrelay/relay/relaytest"
	"mtrelay/tlsfront"
)

// keeper is a proxy as far as it remembers hellos.
type keeper struct {
	*replayFile
	gate    *tlsfront.Gate
	started clock.Unix
	log     *bytes.Buffer
	stop    func() // ends keep
}

var keeperKey = [16]byte{7, 7, 7}

// startKeeper starts one that was made lag ago.
func startKeeper(t *testing.T, dir string, lag clock.Unix) *keeper {
	t.Helper()
	k := &keeper{started: clock.Unix(time.Now().Unix()) - lag, log: new(bytes.Buffer)}
	memory := tlsfront.NewReplay(2*time.Minute, k.started, 100)
	k.replayFile = openReplay(dir, memory, zerolog.New(k.log).Level(zerolog.WarnLevel))
	secrets := []tlsfront.Secret{{Host: "example.com", Key: keeperKey}}
	k.gate = tlsfront.NewGate(secrets, 2*time.Minute, memory, rand.NewChaCha8([32]byte{}))
	k.every = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.keep(ctx)
	}()
	k.stop = func() { cancel(); <-ended }
	t.Cleanup(k.crash)
	return k
}

// crash ends it as SIGKILL would: nothing more is written, and the lock is gone.
func (k *keeper) crash() {
	k.stop()
	if k.dir != nil {
		k.dir.Close()
	}
}

// end ends it as SIGTERM does.
func (k *keeper) end() {
	k.stop()
	k.finish()
}

// expect has the gate judge a hello at the time of its stamp or of the start, whichever is later.
func (k *keeper) expect(t *testing.T, hello []byte, stamp clock.Unix, want tlsfront.Reason) {
	t.Helper()
	var h tlsfront.Hello
	if v := h.Feed(hello); v != tlsfront.Whole {
		t.Fatal(v)
	}
	if k.gate.Judge(&h, hello, max(stamp, k.started), 1); h.Reason() != want {
		t.Fatalf("%v, want %v", h.Reason(), want)
	}
}

func keeperHello(stamp clock.Unix) []byte {
	return relaytest.ClientHello(keeperKey, "example.com", relaytest.Stamp(time.Unix(int64(stamp), 0)))
}

// restamped gives a recorded hello another stamp, which takes no secret.
func restamped(hello []byte, from, to clock.Unix) []byte {
	b := bytes.Clone(hello)
	stamp := b[39:43] // the end of the random
	binary.LittleEndian.PutUint32(stamp, binary.LittleEndian.Uint32(stamp)^uint32(from)^uint32(to))
	return b
}

// awaitStored waits until the file in dir holds n hellos.
func awaitStored(t *testing.T, dir string, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(filepath.Join(dir, replayName))
		if err != nil {
			t.Fatal(err)
		}
		r := tlsfront.NewReplay(time.Minute, 0, 100)
		if _, err := r.ReadState(bytes.NewReader(b)); err != nil {
			t.Fatal(err) // a reader never sees half a file
		}
		if r.Len() == n {
			return
		}
		<-tick.C
	}
}

// TestReplayAfterCrash: what was written before a crash is known, and what is stamped before the start is refused.
func TestReplayAfterCrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	k := startKeeper(t, dir, 60)
	old, unused := k.started+1, keeperHello(k.started+2)
	hello := keeperHello(old)
	k.expect(t, hello, old, tlsfront.ReasonNone)
	awaitStored(t, dir, 1)
	k.crash()

	k = startKeeper(t, dir, 0)
	k.expect(t, restamped(hello, old, k.started), k.started, tlsfront.ReasonReplay)
	k.expect(t, hello, old, tlsfront.ReasonBeforeStart)
	k.expect(t, unused, old+1, tlsfront.ReasonBeforeStart)
	if k.log.Len() > 0 {
		t.Error(k.log)
	}
	info, err := os.Stat(filepath.Join(dir, replayName))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, replayName+".new")); err == nil {
		t.Error("the temporary file is still there")
	}
}

// TestReplayAfterCleanEnd: a client with a slow clock need not wait, once; a crash after that is seen as one.
func TestReplayAfterCleanEnd(t *testing.T) {
	dir := t.TempDir()
	k := startKeeper(t, dir, 60)
	old := k.started + 1
	before, hello := keeperHello(k.started-1), keeperHello(old)
	k.expect(t, hello, old, tlsfront.ReasonNone)
	k.end()

	k = startKeeper(t, dir, 0)
	slow, slower := keeperHello(old), keeperHello(old)
	k.expect(t, restamped(hello, old, k.started), k.started, tlsfront.ReasonReplay)
	k.expect(t, hello, old, tlsfront.ReasonReplay)
	k.expect(t, slow, old, tlsfront.ReasonNone)
	k.expect(t, before, old-2, tlsfront.ReasonBeforeStart) // the process before had to refuse it
	k.crash()

	k = startKeeper(t, dir, 0)
	k.expect(t, restamped(hello, old, k.started), k.started, tlsfront.ReasonReplay)
	k.expect(t, slower, old, tlsfront.ReasonBeforeStart)
}

// TestReplayAfterCrashUnwritten: a clean end is not believed twice even if nothing was written after it was read.
func TestReplayAfterCrashUnwritten(t *testing.T) {
	dir := t.TempDir()
	startKeeper(t, dir, 60).end()
	startKeeper(t, dir, 0).crash()
	k := startKeeper(t, dir, 0)
	k.expect(t, keeperHello(k.started-1), k.started, tlsfront.ReasonBeforeStart)
}

// TestReplayCleanEndNotMarked: where the mark of a clean end cannot be taken off the disk, it is not believed, but the
// hellos are known.
func TestReplayCleanEndNotMarked(t *testing.T) {
	dir := t.TempDir()
	k := startKeeper(t, dir, 60)
	old := k.started + 1
	hello := keeperHello(old)
	k.expect(t, hello, old, tlsfront.ReasonNone)
	k.end()
	if err := os.MkdirAll(filepath.Join(dir, replayName+".new", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	k = startKeeper(t, dir, 0)
	k.expect(t, restamped(hello, old, k.started), k.started, tlsfront.ReasonReplay)
	k.expect(t, keeperHello(old), old, tlsfront.ReasonBeforeStart)
	if log := k.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "cannot be stored") || !strings.Contains(log, dir) {
		t.Error(log)
	}
}

// TestReplayFileAltered: one warning that names the file, and an empty memory.
func TestReplayFileAltered(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"altered": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"longer":  func(b []byte) []byte { return append(b, b...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := startKeeper(t, dir, 60)
			old := k.started + 1
			hello := keeperHello(old)
			k.expect(t, hello, old, tlsfront.ReasonNone)
			k.end()
			file := filepath.Join(dir, replayName)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, spoil(b), 0o600); err != nil {
				t.Fatal(err)
			}
			k = startKeeper(t, dir, 0)
			k.expect(t, keeperHello(old), old, tlsfront.ReasonBeforeStart)
			k.expect(t, restamped(hello, old, k.started), k.started, tlsfront.ReasonNone)
			k.stop()
			if log := k.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, file) {
				t.Error(log)
			}
		})
	}
}

// TestReplayDirectoryShared: a second proxy leaves the first one's file alone, and takes no hello for known.
func TestReplayDirectoryShared(t *testing.T) {
	dir := t.TempDir()
	first := startKeeper(t, dir, 60)
	hello := keeperHello(first.started)
	first.expect(t, hello, first.started, tlsfront.ReasonNone)
	awaitStored(t, dir, 1)

	second := startKeeper(t, dir, 60)
	if log := second.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, dir+": another proxy uses it") {
		t.Error(log)
	}
	second.expect(t, hello, first.started, tlsfront.ReasonNone)
	second.end()
	awaitStored(t, dir, 1)
	first.end()
	startKeeper(t, dir, 0).expect(t, hello, first.started, tlsfront.ReasonReplay)
}

// TestReplayNoDirectory: no directory, nothing stored; one that cannot be made is a warning.
func TestReplayNoDirectory(t *testing.T) {
	k := startKeeper(t, "", 0)
	k.expect(t, keeperHello(k.started), k.started, tlsfront.ReasonNone)
	k.end()
	if k.log.Len() > 0 {
		t.Error(k.log)
	}
	openReplay(t.TempDir(), nil, zerolog.Nop()).finish() // anti-replay is off

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k = startKeeper(t, file, 0)
	k.expect(t, keeperHello(k.started), k.started, tlsfront.ReasonNone)
	k.end()
	if log := k.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, file) {
		t.Error(log)
	}
}
