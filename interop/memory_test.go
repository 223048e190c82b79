package interop

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// What the proxy promises about its memory, and what is measured to hold it to that.
const (
	fewSessions  = 1000
	manySessions = 9000 // of two descriptors each; 20,000 are a common limit

	maxSlope   = 3 << 10         // bytes of RSS per idle session, between few and many of them
	maxIdleCPU = 0.005           // of one core
	idleWindow = 5 * time.Second // over which that is measured

	burstSize = 4 << 20          // bytes that each of few sessions downloads at once
	maxAfter  = 1.3              // RSS after that, in terms of the RSS before
	restTime  = 75 * time.Second // in which it must have come about: "a quiet minute", and a busy machine
)

// proxyEnv lets a measurement be repeated under another policy of memory without giving it to the tests themselves:
//
//	go test -count=1 -v -run TestIdleMemory . -args -proxyenv 'GOGC=25 GOMEMLIMIT=40MiB'
var proxyEnv = flag.String("proxyenv", "", "environment of the proxy that TestIdleMemory measures: NAME=VALUE, separated by spaces")

// useProxyEnv hands the variables down to the proxies that the test starts from now on.
func useProxyEnv(t *testing.T) {
	t.Helper()
	for v := range strings.FieldsSeq(*proxyEnv) {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			t.Fatalf("-proxyenv: %q is not NAME=VALUE", v)
		}
		t.Setenv(name, value)
		t.Logf("proxy under %s", v)
	}
}

// TestIdleMemory holds thousands of sessions that have said a little and are quiet now: what each of them takes, what
// time all of them take, and what a burst leaves behind.
//
// The bound of the slope has room for what is not the session's own: how long ago the last collection was decides about
// some hundred bytes, and the tables of descriptors grow by doubling.
func TestIdleMemory(t *testing.T) {
	c := newMultitude(t)
	empty := c.memory(t)
	c.grow(t, fewSessions)
	few := c.memory(t)
	c.grow(t, c.limit)
	many, took := c.memory(t), c.cpu(t)

	n, more := int64(c.limit), int64(c.limit-fewSessions)
	slope := max(1, (many.rss-few.rss)/more)
	t.Logf("RSS (of it anonymous): empty %v, %d sessions %v, %d sessions %v", empty, fewSessions, few, n, many)
	t.Logf("a session: %.2f KiB by slope, %.2f of it anonymous; %.2f KiB of the whole", kib(slope), kib((many.anon-few.anon)/more), kib(many.rss/n))
	t.Logf("sessions in 1 GiB: %d by slope, %d of the whole; to open one and echo 23 KiB: %.2f ms of CPU", 1<<30/slope, n<<30/many.rss, 1000*took.Seconds()/float64(n))
	if slope > maxSlope {
		t.Errorf("an idle session takes %d bytes, more than %d", slope, maxSlope)
	}
	c.checkIdleCPU(t)
	c.checkBurst(t)
}

// multitude is a proxy with many sessions. Their clients and their DCs are in the test's process, where none of them needs
// a goroutine while it is quiet.
type multitude struct {
	*scene
	limit int // sessions
	lanes []*lane
}

// lane opens sessions one after the other and is both ends of each. It asks for a DC that is its alone, so that what
// arrives there belongs to the session just opened.
type lane struct {
	addr  string // of the proxy
	id    int
	dc    *relaytest.DC
	awake []*ends    // sessions that are still to do something
	quiet []net.Conn // clients' connections of those that are not: all that must be kept of them
}

type ends struct {
	client *relaytest.Client
	dc     *relaytest.DCConn
}

const (
	laneCount = 8
	laneID    = 2001 // the DC of the first
)

// newMultitude starts a proxy for as many sessions as the limit of descriptors allows.
func newMultitude(t *testing.T) *multitude {
	t.Helper()
	c := &multitude{limit: sessionLimit(t)}
	var dcs strings.Builder
	for i := range laneCount {
		dc, err := relaytest.ListenDC("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.lanes = append(c.lanes, &lane{id: laneID + i, dc: dc})
		fmt.Fprintf(&dcs, "\"%d\" = %q\n", laneID+i, dc.Addr())
	}
	useProxyEnv(t)
	c.scene = startScene(t, sceneConfig{top: "concurrency = 9500", tables: dcs.String()})
	for _, l := range c.lanes {
		l.addr = c.addr
		t.Cleanup(func() { l.close(t) })
	}
	return c
}

func sessionLimit(t *testing.T) int {
	t.Helper()
	n := manySessions
	if testing.Short() {
		n = 3 * fewSessions
	}
	n = min(n, (descriptors(t)-500)/2)
	if n < 2*fewSessions {
		t.Fatalf("the limit of descriptors (ulimit -Hn) is too low for %d sessions", 2*fewSessions)
	}
	if n < manySessions {
		t.Logf("ONLY %d SESSIONS, not %d: -short, or the limit of descriptors (ulimit -Hn)", n, manySessions)
	}
	return n
}

// grow opens sessions until there are total.
func (c *multitude) grow(t *testing.T, total int) {
	t.Helper()
	err := inParallel(len(c.lanes), len(c.lanes), func(i int) error {
		l := c.lanes[i]
		for len(l.awake)+len(l.quiet) < total/len(c.lanes) {
			if err := l.open(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// open adds a session on which three messages of 1 KiB and one of 20 KiB are echoed.
func (l *lane) open() error {
	conn, err := connectFrom(l.addr)
	if err != nil {
		return err
	}
	ctx, cancel := within(patience)
	defer cancel()
	e := &ends{}
	if e.client, err = relaytest.Dial(ctx, "", sceneKey, siteHost, l.id, relaytest.OverConn(conn)); err != nil {
		return err
	}
	if e.dc, err = l.accept(); err != nil {
		return err
	}
	for _, n := range []int{1 << 10, 1 << 10, 20 << 10, 1 << 10} {
		if err := e.echo(n); err != nil {
			return err
		}
	}
	if len(l.awake) < fewSessions/laneCount {
		l.awake = append(l.awake, e)
	} else {
		l.quiet = append(l.quiet, conn)
	}
	return nil
}

func (l *lane) accept() (*relaytest.DCConn, error) {
	hangs := time.AfterFunc(patience, func() { l.dc.Close() })
	defer hangs.Stop()
	return l.dc.Accept()
}

// echo is a round trip of n bytes. Both ends take their turn in one goroutine, so n must fit the kernel's buffers.
func (e *ends) echo(n int) error {
	sent, got := noiseBytes(n, byte(n>>10)), make([]byte, n)
	e.client.SetDeadline(time.Now().Add(patience))
	e.dc.SetDeadline(time.Now().Add(patience))
	_, sending := e.client.Write(sent)
	_, taking := io.ReadFull(e.dc, got)
	_, answering := e.dc.Write(got)
	clear(got)
	_, reading := io.ReadFull(e.client, got)
	err := errors.Join(sending, taking, answering, reading)
	if err == nil && !bytes.Equal(got, sent) {
		err = errors.New("the echo differs")
	}
	return err
}

func (l *lane) close(t *testing.T) {
	for _, e := range l.awake {
		e.client.Close()
	}
	for _, conn := range l.quiet {
		conn.Close()
	}
	if err := l.dc.Close(); err != nil {
		t.Error(err)
	}
}

// checkIdleCPU looks at three windows at most, since what else runs on the machine, or a collection that is due every
// two minutes anyway, may meet one of them.
func (c *multitude) checkIdleCPU(t *testing.T) {
	t.Helper()
	var share float64
	for range 3 {
		before, since := c.cpu(t), time.Now()
		time.Sleep(idleWindow)
		share = float64(c.cpu(t)-before) / float64(time.Since(since))
		t.Logf("idle: %.4f %% of a core", 100*share)
		if share <= maxIdleCPU {
			return
		}
	}
	t.Errorf("an idle proxy takes %.2f %% of a core, more than %.2f %%", 100*share, 100*maxIdleCPU)
}

// checkBurst has the sessions that are awake download at once and waits for the memory to come back.
func (c *multitude) checkBurst(t *testing.T) {
	t.Helper()
	idle, cpu, since := c.memory(t), c.cpu(t), time.Now()
	done := make(chan error, 1)
	go func() { done <- c.download() }()
	peak := c.peakUntil(t, done)
	t.Logf("burst of %d x %d MiB: %.1f s, %.1f s of CPU; %v before, %v at most",
		fewSessions, burstSize>>20, time.Since(since).Seconds(), (c.cpu(t) - cpu).Seconds(), idle, peak)

	end, since := c.memory(t), time.Now()
	bound := int64(maxAfter * float64(idle.rss))
	after := end
	for after.rss > bound && time.Since(since) < restTime {
		time.Sleep(time.Second)
		after = c.memory(t)
	}
	t.Logf("after it: at once %v, in %.0f s %v, %.2f times as much as before", end, time.Since(since).Seconds(), after, float64(after.rss)/float64(idle.rss))
	if after.rss > bound {
		t.Errorf("RSS is not back within %.1f times of what it was before the burst", maxAfter)
	}
}

// download has every session that is awake receive burstSize bytes, all at the same time.
func (c *multitude) download() error {
	var awake []*ends
	for _, l := range c.lanes {
		awake = append(awake, l.awake...)
	}
	return inParallel(len(awake), len(awake), func(i int) error { return awake[i].download(uint64(i)) })
}

func (e *ends) download(seed uint64) error {
	e.client.SetDeadline(time.Time{})
	e.dc.SetDeadline(time.Time{})
	sent := make(chan error, 1)
	go func() { sent <- relaytest.SendPattern(e.dc, seed, burstSize) }()
	return errors.Join(relaytest.CheckPattern(e.client, seed, burstSize), <-sent)
}
