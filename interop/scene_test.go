package interop

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// noScout keeps the proxy from visiting its front, for tests that count who does, and leaves the downlink unshaped.
const noScout = "[defense.doppelganger]\nenabled = false\n"

// sceneKey is the key of the one secret in the tests that use a scene; its host is siteHost.
var sceneKey = [16]byte{0x5c, 0xe4, 0xe0, 15: 0x01}

// sceneConfig is the configuration of a proxy. What a field leaves out has a value that serves most tests.
type sceneConfig struct {
	bind   []string         // default: a free port of 127.0.0.1
	top    string           // more lines before the first table
	front  string           // default: a port that nobody listens on
	fronts string           // more lines of [domain-fronting]
	dcs    []string         // where every DC but echoID is; default: the scene's
	wire   net.ListenConfig // of the scene's DC
	tables string           // more tables
}

// text fills in what was left out; dc is the address of the DC echoID.
func (c *sceneConfig) text(t *testing.T, dc string) string {
	t.Helper()
	if c.dcs == nil {
		c.dcs = []string{dc}
	}
	if c.bind == nil {
		c.bind = []string{fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	}
	if c.front == "" {
		c.front = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	}
	if !strings.Contains(c.tables, "[defense.doppelganger]") {
		c.tables += "\n" + noScout
	}
	host, port, err := net.SplitHostPort(c.front)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("secret = \"ee%x%x\"\nbind-to = %s\n%s\n[domain-fronting]\nhost = %q\nport = %s\n%s\n[dc]\n\"%d\" = %q\n\"*\" = %s\n%s\n",
		sceneKey, siteHost, list(c.bind), c.top, host, port, c.fronts, echoID, dc, list(c.dcs), c.tables)
}

func list(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// scene is a running proxy with a fake DC behind it.
type scene struct {
	*proxy
	addr string // where clients connect
	dc   *relaytest.DC

	mu   sync.Mutex
	next int
	work map[int]func(*relaytest.DCConn) // by DC id
}

// sceneDC stands for the scene's DC in a list of addresses.
const sceneDC = "scene"

// echoID is the DC that sends back what it gets.
const echoID = 1

// startScene runs a proxy; the DC echoID, and every other one that the configuration does not say, is the scene's.
func startScene(t *testing.T, c sceneConfig) *scene {
	t.Helper()
	ln, err := c.wire.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dc := relaytest.DCOn(ln)
	s := &scene{dc: dc, next: 1000, work: map[int]func(*relaytest.DCConn){echoID: relaytest.Echo}}
	dc.Serve(s.serve)
	t.Cleanup(func() { // after the proxy has gone
		if err := dc.Close(); err != nil {
			t.Error(err)
		}
	})
	for i, addr := range c.dcs {
		if addr == sceneDC {
			c.dcs[i] = dc.Addr()
		}
	}
	config := c.text(t, dc.Addr())
	s.addr = c.bind[0]
	s.proxy = startProxy(t, config)
	return s
}

func (s *scene) serve(c *relaytest.DCConn) {
	s.mu.Lock()
	work := s.work[c.DC()]
	s.mu.Unlock()
	if work != nil {
		work(c)
	}
}

// dcJob is what the DC does for one connection.
type dcJob struct {
	id    int // the DC to ask for
	begun chan struct{}
	done  chan error
}

// onDC has work done for a connection to the DC that the job names, which is closed when work returns.
func (s *scene) onDC(work func(*relaytest.DCConn) error) *dcJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	j := &dcJob{id: s.next, begun: make(chan struct{}), done: make(chan error, 1)}
	s.work[j.id] = func(c *relaytest.DCConn) {
		close(j.begun)
		j.done <- work(c)
	}
	return j
}

// connected waits until the proxy has reached the DC. Before that a client's FIN means that it left.
func (j *dcJob) connected(t *testing.T) {
	t.Helper()
	select {
	case <-j.begun:
	case <-time.After(patience):
		t.Fatal("the DC is not reached")
	}
}

// result waits until the work is done and returns its error.
func (j *dcJob) result() error {
	select {
	case err := <-j.done:
		return err
	case <-time.After(patience):
		return errors.New("the DC is not done")
	}
}

// dial connects a client that is closed in the end. Everything that it does later has patience's time.
func (s *scene) dial(t *testing.T, dc int, opts ...relaytest.Option) *relaytest.Client {
	t.Helper()
	return dialAt(t, s.addr, dc, opts...)
}

func dialAt(t *testing.T, addr string, dc int, opts ...relaytest.Option) *relaytest.Client {
	t.Helper()
	c, err := relaytest.Dial(t.Context(), addr, sceneKey, siteHost, dc, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// bystander is a client that goes on having its bytes echoed while a test maltreats the proxy.
type bystander struct {
	client *relaytest.Client
	stop   chan struct{}
	done   chan error
	trips  int
}

// watchBystander starts one and fails the test in the end unless every single round trip of it came back whole.
func watchBystander(t *testing.T, s *scene) {
	t.Helper()
	b := newBystander(t, s)
	go b.run()
	t.Cleanup(func() { // before the proxy is stopped
		close(b.stop)
		if err := <-b.done; err != nil {
			t.Errorf("the bystander was disturbed after %d round trips: %v", b.trips, err)
		}
	})
}

func newBystander(t *testing.T, s *scene) *bystander {
	t.Helper()
	b := &bystander{client: s.dial(t, echoID), stop: make(chan struct{}), done: make(chan error, 1)}
	if err := b.trip(); err != nil {
		t.Fatal(err)
	}
	return b
}

// run goes round at most 500 times a second: the machine is needed for the maltreatment.
func (b *bystander) run() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-b.stop:
			b.done <- b.client.CloseWrite()
			return
		case <-tick.C:
		}
		if err := b.trip(); err != nil {
			b.done <- err
			return
		}
	}
}

// trip sends bytes and reads them back; the number changes so that they meet every record boundary.
func (b *bystander) trip() error {
	n := int64(1 + b.trips*37%2000)
	b.client.SetDeadline(time.Now().Add(patience))
	if err := relaytest.SendPattern(b.client, uint64(b.trips), n); err != nil {
		return err
	}
	if err := relaytest.CheckPattern(b.client, uint64(b.trips), n); err != nil {
		return err
	}
	b.trips++
	return nil
}

// until polls what an outside observer cannot wait for otherwise, such as another process's descriptors, and fails
// the test when it has not come about after checks that take as long as patience.
func until(t *testing.T, what func() (ok bool, seen string)) {
	t.Helper()
	const interval = 20 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var seen string
	for range patience / interval {
		var ok bool
		if ok, seen = what(); ok {
			return
		}
		<-tick.C
	}
	t.Fatalf("it does not come about: %s", seen)
}

// restingFDs returns how many descriptors the proxy holds open when none of them is about to be closed.
func (s *scene) restingFDs(t *testing.T) (n int) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections() // those of the harness
	same := 0
	until(t, func() (bool, string) {
		before := n
		if n = s.fds(t); n != before {
			same = 0
		}
		same++
		return same == 10, "the number of descriptors does not settle"
	})
	return n
}

// untilFDs waits until the proxy holds as many descriptors as it did.
func (s *scene) untilFDs(t *testing.T, want int) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	until(t, func() (bool, string) {
		got := s.fds(t)
		return got == want, fmt.Sprintf("the proxy has %d descriptors open, it had %d", got, want)
	})
}

// readToEnd reads what the other side sends until it ends the connection, and tells how it did.
func readToEnd(conn net.Conn) (got []byte, end ending) {
	o := watch(conn, time.Now())
	return o.got, o.end
}
