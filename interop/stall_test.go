package interop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

const (
	// stalledBytes is what the one side has to say and the other does not read.
	stalledBytes = 300 << 20
	// stalledShare is what of it may have left the sender when everything has come to a stand. All of it is in kernel
	// buffers: up to tcp_wmem's 4 MiB and tcp_rmem's 6 MiB for each of two connections, less where the proxy bounds it.
	stalledShare = 24 << 20

	// Bounds of the process's growth for a client that has stalled: for a single one, and on average over many.
	growthOfOne  = 72 << 10
	growthOfMany = 32 << 10
)

// A stall is a session of which one side sends and the other does not read.
type stall struct {
	client *relaytest.Client
	conn   *net.TCPConn // the sender's
	sent   atomic.Int64
	done   chan error // the sender's
}

// stallDown has the DC send to a client that does not read. Like Telegram's, this DC hangs up on a client that leaves.
func stallDown(t *testing.T, s *scene) *stall {
	t.Helper()
	st := &stall{done: make(chan error, 1)}
	conns := make(chan *net.TCPConn, 1)
	job := s.onDC(func(c *relaytest.DCConn) error {
		conns <- c.Conn.(*net.TCPConn)
		go func() {
			expectEOF(c)
			c.Close()
		}()
		st.done <- errors.Join(st.send(c, seedDown), c.CloseWrite())
		return nil
	})
	st.client = s.dial(t, job.id)
	job.connected(t)
	st.conn = <-conns
	return st
}

// stallUp has a client send to a DC that begins to read only when resume is closed, and then checks what it gets.
func stallUp(t *testing.T, s *scene, resume <-chan struct{}) (st *stall, job *dcJob) {
	t.Helper()
	st = &stall{done: make(chan error, 1)}
	job = s.onDC(func(c *relaytest.DCConn) error {
		<-resume
		return errors.Join(relaytest.CheckPattern(c, seedUp, stalledBytes), expectEOF(c))
	})
	st.client = s.dial(t, job.id)
	job.connected(t)
	st.conn = st.client.NetConn().(*net.TCPConn)
	go func() { st.done <- errors.Join(st.send(st.client, seedUp), st.client.CloseWrite()) }()
	return st, job
}

// send writes the pattern and counts. It allocates nothing while it goes on.
func (st *stall) send(w io.Writer, seed uint64) error {
	p, buf := relaytest.NewPattern(seed), make([]byte, 64<<10)
	for p.Offset() < stalledBytes {
		b := buf[:min(len(buf), stalledBytes-int(p.Offset()))]
		p.Read(b)
		if _, err := w.Write(b); err != nil {
			return err
		}
		st.sent.Store(p.Offset())
	}
	return nil
}

// untilStill waits until none of the senders gets rid of anything any more: its write stands, its kernel has bytes to
// send, and neither changes. That is how a closed window looks from there.
func untilStill(t *testing.T, stalls ...*stall) {
	t.Helper()
	const still = 20 // looks
	var before []int64
	same := 0
	until(t, func() (bool, string) {
		var now []int64
		for _, st := range stalls {
			now = append(now, st.sent.Load(), int64(unsent(st.conn)))
		}
		if !slices.Equal(now, before) || slices.Contains(now, 0) {
			same = 0
		}
		before = now
		same++
		return same == still, fmt.Sprintf("the senders go on: (written, unacknowledged) of each: %d", now)
	})
	for _, st := range stalls {
		if n := st.sent.Load(); n > stalledShare {
			t.Errorf("%d bytes were taken from the sender though nobody reads", n)
		}
	}
}

// steadyRSS is the median of some looks at the process's memory. Between two looks its collector may free or touch a
// page or two; a single look would measure that.
func steadyRSS(t *testing.T, s *scene) int64 {
	t.Helper()
	looks := make([]int64, 15)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range looks {
		looks[i] = s.rss(t)
		<-tick.C
	}
	slices.Sort(looks)
	return looks[len(looks)/2]
}

// warmUp lets the process touch once what it will touch again: its code, its loops' buffers, the garbage of some
// hundred handshakes, and the pages that many connections beside each other and some stalled for a moment need.
func warmUp(t *testing.T, s *scene) {
	t.Helper()
	for range 10 {
		clients := make([]*relaytest.Client, 40)
		for i := range clients {
			clients[i] = s.dial(t, echoID)
		}
		for _, c := range clients {
			bounce(t, c, 200_000)
			c.Close()
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// bounce has n bytes echoed.
func bounce(t *testing.T, c *relaytest.Client, n int64) {
	t.Helper()
	sent := make(chan error, 1)
	go func() { sent <- relaytest.SendPattern(c, seedUp, n) }()
	if err := errors.Join(relaytest.CheckPattern(c, seedUp, n), <-sent); err != nil {
		t.Fatal(err)
	}
}

// TestStalledClient: a client that does not read costs little, and gets every byte when it reads again.
func TestStalledClient(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, s *scene) {
		warmUp(t, s)
		fds := s.restingFDs(t)
		stalls, growth := stallOneByOne(t, s, func() *stall { return stallDown(t, s) })
		t.Logf("growth for each: %d", growth)
		st := stalls[0]
		st.client.SetDeadline(time.Now().Add(patience))
		if err := relaytest.CheckPattern(st.client, seedDown, stalledBytes); err != nil {
			t.Error(err)
		}
		expectEnd(t, st.client)
		if err := <-st.done; err != nil {
			t.Error(err)
		}
		for _, st := range stalls {
			st.client.Close()
		}
		s.untilFDs(t, fds)
	})
}

// TestStalledDC is the same upward.
func TestStalledDC(t *testing.T) {
	s := startScene(t, sceneConfig{})
	warmUp(t, s)
	fds := s.restingFDs(t)
	resume := make(chan struct{})
	var jobs []*dcJob
	stalls, growth := stallOneByOne(t, s, func() *stall {
		st, job := stallUp(t, s, resume)
		jobs = append(jobs, job)
		return st
	})
	t.Logf("growth for each: %d", growth)
	for _, st := range stalls[1:] { // one is enough to be checked; the others' ends must not take the memory's place
		st.client.Close()
	}
	stalls[0].client.SetDeadline(time.Now().Add(patience))
	close(resume)
	if err := errors.Join(<-stalls[0].done, jobs[0].result()); err != nil {
		t.Error(err)
	}
	expectEndBehindFIN(t, stalls[0].client)
	s.untilFDs(t, fds)
}

// stallOneByOne adds stalled sessions and fails the test when the process grows by too much for one: not in the
// median, since now and then a page of the heap is begun, or a collection ends, just when one of them comes. What it
// measures is growth indeed: the sessions before stay as they are, so that none can take over another's memory.
func stallOneByOne(t *testing.T, s *scene, add func() *stall) (stalls []*stall, growth []int64) {
	t.Helper()
	const sessions = 5
	before := steadyRSS(t, s)
	for range sessions {
		st := add()
		untilStill(t, st)
		after := steadyRSS(t, s)
		stalls, growth = append(stalls, st), append(growth, after-before)
		before = after
	}
	sorted := slices.Sorted(slices.Values(growth))
	if median := sorted[len(sorted)/2]; median > growthOfOne {
		t.Errorf("the process grew by %d bytes for a stalled session, %d are allowed; each: %d", median, growthOfOne, growth)
	}
	return stalls, growth
}

// TestManyStalledClients: a hundred of them at once, and nobody else notices.
func TestManyStalledClients(t *testing.T) {
	const clients = 100
	s := startScene(t, sceneConfig{})
	warmUp(t, s)
	watchBystander(t, s)
	fds := s.restingFDs(t)
	before := steadyRSS(t, s)
	stalls := make([]*stall, clients)
	for i := range stalls {
		stalls[i] = stallDown(t, s)
	}
	untilStill(t, stalls...)
	growth := (steadyRSS(t, s) - before) / clients
	t.Logf("growth for each: %d", growth)
	if growth > growthOfMany {
		t.Errorf("the process grew by %d bytes for each of %d stalled clients, %d are allowed", growth, clients, growthOfMany)
	}
	const some = 4 << 20 // bytes: more than all buffers on the way hold
	for _, st := range stalls[:10] {
		st.client.SetDeadline(time.Now().Add(patience))
		if err := relaytest.CheckPattern(st.client, seedDown, some); err != nil {
			t.Error(err)
		}
	}
	for _, st := range stalls {
		st.client.Close()
	}
	s.untilFDs(t, fds)
}

// TestTakingTurns: clients that stop and go on, again and again, out of step with each other.
func TestTakingTurns(t *testing.T) {
	const clients, each = 8, 8 << 20
	bothDownlinks(t, func(t *testing.T, s *scene) {
		fds := s.restingFDs(t)
		readers := make([]*relaytest.Client, clients)
		patterns := make([]*relaytest.Pattern, clients)
		for i := range readers {
			job := s.onDC(func(c *relaytest.DCConn) error { return relaytest.SendPattern(c, uint64(i), each) })
			readers[i] = s.dial(t, job.id, relaytest.ReceiveBuffer(slowBuffer))
			patterns[i] = relaytest.NewPattern(uint64(i))
		}
		for turn := int64(0); patterns[0].Offset() < each; turn++ {
			for i, c := range readers {
				n := min(1+(turn*7919+int64(i)*104729)%600_000, each-patterns[i].Offset())
				if _, err := io.CopyN(patterns[i], c, n); err != nil {
					t.Fatalf("client %d: after %d bytes: %v", i, patterns[i].Offset(), err)
				}
			}
		}
		for i, c := range readers {
			if _, err := io.CopyN(patterns[i], c, each-patterns[i].Offset()); err != nil {
				t.Fatalf("client %d: after %d bytes: %v", i, patterns[i].Offset(), err)
			}
			expectEnd(t, c)
			c.Close()
		}
		s.untilFDs(t, fds)
	})
}
