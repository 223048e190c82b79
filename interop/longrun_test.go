package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

const (
	longRun    = 50_000 // connections
	longRunLap = 10_000 // after each so many the proxy is looked at; the first lap is to warm it
	longRunAt  = 32     // connections at a time

	// maxGrowth bounds the RSS after any later lap in terms of that after the first. A byte leaked per connection would
	// not show; 100 bytes would.
	maxGrowth = 1.15
)

// DC ids of the long run, beside echoID.
const (
	tailID    = 3001 // sends tailLen bytes and FIN
	resetID   = 3002 // resets as soon as it was reached
	refusedID = 3003 // nobody listens
	silentID  = 3004 // never answers a connect
)

const tailLen = 3000

// frontAnswer is what strangers are told.
const frontAnswer = "this is the front\n"

// fates are what becomes of the connections of the long run, in turn. live returns an error unless all came as it must;
// reason is what the proxy sends it to the front for, where that is one only.
var fates = []struct {
	name   string
	reason string
	live   func(r *longRunner) error
}{
	{"echo, then FIN", "", (*longRunner).echo},
	{"echo, then closed", "", (*longRunner).echoAndClose},
	{"the DC's tail", "", (*longRunner).tail},
	{"wrong digest", "digest", (*longRunner).wrongDigest},
	{"replay", "replay", (*longRunner).replay},
	{"gone while the DC is dialled", "", (*longRunner).goneDuringDial},
	{"RST somewhere", "", (*longRunner).resetSomewhere},
	{"garbage", "", (*longRunner).garbage},
	{"closed without a byte", "", (*longRunner).silent},
	{"the DC refuses", "", func(r *longRunner) error { return r.endBy(refusedID) }},
	{"the DC resets", "", func(r *longRunner) error { return r.endBy(resetID) }},
	{"half a hello, then FIN", "", (*longRunner).halfHello},
}

// TestLongRun makes many short connections of all fates and looks for what they leave behind.
func TestLongRun(t *testing.T) {
	total := longRun
	if testing.Short() {
		total = 3 * longRunLap
		t.Logf("-short: ONLY %d CONNECTIONS instead of %d", total, longRun)
	}
	r := startLongRun(t)
	fds := r.restingFDs(t)
	var warm lapFigures
	for from := 0; from < total; from += longRunLap {
		since := time.Now()
		if err := r.lap(from, longRunLap); err != nil {
			t.Fatal(err)
		}
		took := time.Since(since)
		r.untilFDsNear(t, fds)
		f := r.figures(t)
		t.Logf("%d connections, %.1f s: %v", from+longRunLap, took.Seconds(), f)
		if from == 0 {
			warm = f
			continue
		}
		f.compare(t, warm)
	}
	r.checkCounted(t, total)
}

// checkCounted fails the test unless the proxy took the connections for what they were.
func (r *longRunner) checkCounted(t *testing.T, total int) {
	t.Helper()
	for i, fate := range fates {
		if fate.reason == "" {
			continue
		}
		had := (total - i + len(fates) - 1) / len(fates)
		if counted := int(r.metric(t, fmt.Sprintf("mtrelay_handshakes_total{verdict=\"front\",reason=%q}", fate.reason))); counted != had {
			t.Errorf("%s: %d connections, the proxy counted %d", fate.name, had, counted)
		}
	}
}

type lapFigures struct {
	memory
	goroutines, threads, fds int
}

func (f lapFigures) String() string {
	return fmt.Sprintf("RSS %v, %d goroutines, %d threads, %d descriptors", f.memory, f.goroutines, f.threads, f.fds)
}

func (r *longRunner) figures(t *testing.T) lapFigures {
	t.Helper()
	return lapFigures{
		memory:     r.memory(t),
		threads:    int(r.status(t, "Threads:")),
		fds:        r.fds(t),
		goroutines: int(r.metric(t, "go_goroutines")),
	}
}

func (f lapFigures) compare(t *testing.T, warm lapFigures) {
	t.Helper()
	if float64(f.rss) > maxGrowth*float64(warm.rss) {
		t.Errorf("RSS is %v, after the first %d connections it was %v", f.memory, longRunLap, warm.memory)
	}
	if f.goroutines > warm.goroutines+2 { // two serve the metrics
		t.Errorf("%d goroutines, after the first %d connections there were %d", f.goroutines, longRunLap, warm.goroutines)
	}
}

// untilFDsNear waits until the proxy has as many descriptors as it had, give or take two.
func (r *longRunner) untilFDsNear(t *testing.T, want int) {
	t.Helper()
	until(t, func() (bool, string) {
		got := r.fds(t)
		return want-2 <= got && got <= want+2, fmt.Sprintf("the proxy has %d descriptors open, it had %d", got, want)
	})
}

// longRunner makes the connections.
type longRunner struct {
	*scene
	noise []byte
}

func startLongRun(t *testing.T) *longRunner {
	t.Helper()
	front := rawFront(t, func(c *net.TCPConn) {
		if n, _ := c.Read(make([]byte, 4096)); n > 0 {
			io.WriteString(c, frontAnswer)
			c.CloseWrite()
			io.Copy(io.Discard, c)
		}
	})
	s := startScene(t, sceneConfig{
		front: front,
		top:   "concurrency = 2000",
		tables: fmt.Sprintf("\"%d\" = \"127.0.0.1:%d\"\n\"%d\" = %q\n", refusedID, freePort(t), silentID, startSilentDC(t)) +
			"[network.timeout]\ntcp = \"2s\"\nlinger = \"2s\"\n",
	})
	s.mu.Lock()
	s.work[tailID] = relaytest.Source(seedDown, tailLen)
	s.work[resetID] = func(c *relaytest.DCConn) { c.Conn.(*net.TCPConn).SetLinger(0) }
	s.mu.Unlock()
	return &longRunner{scene: s, noise: noiseBytes(64<<10, 'n')}
}

// startSilentDC listens and never accepts, and has its queue full, so that the kernel ignores who wants to connect.
func startSilentDC(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	err = errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0))
	if err != nil {
		t.Fatal(err)
	}
	own, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr = fmt.Sprintf("127.0.0.1:%d", own.(*syscall.SockaddrInet4).Port)
	for range 10 {
		conn, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("a listener with a queue of none takes ten")
	return ""
}

// lap makes n connections, of one fate after the other.
func (r *longRunner) lap(from, n int) error {
	return inParallel(n, longRunAt, func(i int) error {
		fate := fates[(from+i)%len(fates)]
		if err := fate.live(r); err != nil {
			return fmt.Errorf("%s: %w", fate.name, err)
		}
		return nil
	})
}

// client greets the proxy, mostly with the classic hello: the test takes much longer to make the other.
func (r *longRunner) client(dc int) (*relaytest.Client, *net.TCPConn, error) {
	conn, err := r.connect()
	if err != nil {
		return nil, nil, err
	}
	opts := []relaytest.Option{relaytest.OverConn(conn)}
	if rand.IntN(8) > 0 {
		opts = append(opts, relaytest.Classic())
	}
	ctx, cancel := within(patience)
	defer cancel()
	c, err := relaytest.Dial(ctx, "", sceneKey, siteHost, dc, opts...)
	return c, conn, err
}

func (r *longRunner) connect() (*net.TCPConn, error) {
	conn, err := connectFrom(r.addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

func (r *longRunner) echoed() (*relaytest.Client, error) {
	c, _, err := r.client(echoID)
	if err != nil {
		return nil, err
	}
	n := 1 + rand.IntN(8<<10)
	got := make([]byte, n)
	_, writing := c.Write(r.noise[:n])
	_, reading := io.ReadFull(c, got)
	if !bytes.Equal(got, r.noise[:n]) {
		err = errors.New("the echo differs")
	}
	return c, errors.Join(writing, reading, err)
}

func (r *longRunner) echo() error {
	c, err := r.echoed()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.CloseWrite(); err != nil {
		return err
	}
	_, err = c.ReadEnd()
	return err
}

func (r *longRunner) echoAndClose() error {
	c, err := r.echoed()
	if err != nil {
		return err
	}
	return c.Close()
}

func (r *longRunner) tail() error {
	c, _, err := r.client(tailID)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := relaytest.CheckPattern(c, seedDown, tailLen); err != nil {
		return err
	}
	_, err = c.ReadEnd()
	return err
}

// endBy expects a session to be ended without a byte of the DC.
func (r *longRunner) endBy(dc int) error {
	c, _, err := r.client(dc)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.ReadEnd()
	return err
}

func (r *longRunner) goneDuringDial() error {
	c, conn, err := r.client(silentID)
	if err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		conn.SetLinger(0)
	}
	return c.Close()
}

func (r *longRunner) silent() error {
	conn, err := r.connect()
	if err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		conn.SetLinger(0)
	}
	return conn.Close()
}

func (r *longRunner) hello() []byte {
	return relaytest.ClientHello(sceneKey, siteHost, relaytest.Classic())
}

func (r *longRunner) wrongDigest() error {
	hello := r.hello()
	hello[11+rand.IntN(28)] ^= 1
	return r.toFront(hello)
}

func (r *longRunner) garbage() error {
	return r.toFront(append([]byte{'G'}, r.noise[:1+rand.IntN(3000)]...)) // no record begins like that
}

func (r *longRunner) halfHello() error {
	hello := r.hello()
	return r.toFront(hello[:1+rand.IntN(len(hello)-1)])
}

// replay has a hello accepted, then sent again.
func (r *longRunner) replay() error {
	hello := r.hello()
	conn, err := r.connect()
	if err != nil {
		return err
	}
	_, writing := conn.Write(hello)
	first := make([]byte, 1)
	_, reading := io.ReadFull(conn, first)
	if err := errors.Join(writing, reading, conn.Close()); err != nil {
		return err
	}
	if first[0] != recordHandshake {
		return fmt.Errorf("a good hello is answered with %x", first)
	}
	return r.toFront(hello)
}

// toFront sends b and FIN, and expects the answer of the front.
func (r *longRunner) toFront(b []byte) error {
	conn, err := r.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(b)
	if err := errors.Join(err, conn.CloseWrite()); err != nil {
		return err
	}
	got, err := io.ReadAll(conn)
	if err == nil && string(got) != frontAnswer {
		err = fmt.Errorf("%d bytes in place of the front's answer: %.60q", len(got), got)
	}
	return err
}

// resetSomewhere resets the connection in the middle of a hello, of the reply, of the init, or of data on their way.
func (r *longRunner) resetSomewhere() error {
	if rand.IntN(2) == 0 {
		conn, err := r.connect()
		if err != nil {
			return err
		}
		hello := r.hello()
		_, err = conn.Write(hello[:rand.IntN(len(hello)+1)])
		return errors.Join(err, conn.SetLinger(0), conn.Close())
	}
	c, conn, err := r.client(echoID)
	if err != nil {
		return err
	}
	wire := c.Seal(nil, r.noise[:rand.IntN(len(r.noise))], 2878)
	_, _ = conn.Write(wire[:rand.IntN(len(wire)+1)])
	return errors.Join(conn.SetLinger(0), conn.Close())
}
