package interop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// tailSizes are how much is sent before a FIN: less than a record, more than one read of the proxy, more than the
// kernel's buffers of both connections hold.
var tailSizes = []int64{1, 64 << 10, 2 << 20, 16 << 20}

// Seeds of the two directions.
const (
	seedUp   = 0x75
	seedDown = 0xd0
)

// bothDownlinks runs a test with the downlink moved as it comes and with the downlink encrypted anew.
func bothDownlinks(t *testing.T, test func(t *testing.T, s *scene)) {
	for _, downlink := range []string{"pass", "reencrypt"} {
		t.Run(downlink, func(t *testing.T) {
			test(t, startScene(t, sceneConfig{tables: fmt.Sprintf("[relay]\ndownlink = %q\n", downlink)}))
		})
	}
}

// slowBuffer keeps a slow reader's kernel from reading ahead for it. Much less than the MSS of loopback, 64 KiB, would
// make the kernel wait for its persist timer after every few bytes.
const slowBuffer = 128 << 10

// slowly reads 16 KiB at a time, each only once the echo of a byte has come back through the proxy: a pace that comes
// from other traffic, not from a clock.
type slowly struct {
	io.Reader
	pace *bystander
}

func (r slowly) Read(p []byte) (int, error) {
	if err := r.pace.trip(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p[:min(len(p), 16<<10)])
}

// TestTailDown: what the DC sends before it closes arrives, all of it, and then FIN.
func TestTailDown(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, s *scene) {
		pace := newBystander(t, s)
		fds := s.restingFDs(t)
		for _, n := range tailSizes {
			for _, slow := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d bytes, slow %v", n, slow), func(t *testing.T) {
					receiveTail(t, s, n, slow, pace)
				})
				t.Run(fmt.Sprintf("%d bytes, slow %v, talking", n, slow), func(t *testing.T) {
					receiveTailTalking(t, s, n, slow, pace)
				})
			}
		}
		s.untilFDs(t, fds)
	})
}

// slowOptions are those of a client with a small window, if it is to be slow.
func slowOptions(slow bool) []relaytest.Option {
	if slow {
		return []relaytest.Option{relaytest.ReceiveBuffer(slowBuffer)}
	}
	return nil
}

func paced(r io.Reader, slow bool, pace *bystander) io.Reader {
	if slow {
		return slowly{r, pace}
	}
	return r
}

// receiveTail has the DC call close right after its last byte.
func receiveTail(t *testing.T, s *scene, n int64, slow bool, pace *bystander) {
	job := s.onDC(func(c *relaytest.DCConn) error {
		return errors.Join(relaytest.SendPattern(c, seedDown, n), c.Close())
	})
	var records recordSizes
	c := s.dial(t, job.id, append(slowOptions(slow), relaytest.OnRecord(records.note))...)
	if err := relaytest.CheckPattern(paced(c, slow, pace), seedDown, n); err != nil {
		t.Fatal(err)
	}
	records.check(t)
	expectEnd(t, c)
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
}

// receiveTailTalking has the client send all the while, and on until it has seen the end. The DC shuts down its
// direction right after its last byte and reads on: over unread bytes its kernel would answer close with RST and drop
// what the proxy has not taken yet, and nobody could make up for that.
func receiveTailTalking(t *testing.T, s *scene, n int64, slow bool, pace *bystander) {
	var received atomic.Int64
	job := s.onDC(func(c *relaytest.DCConn) error {
		up := make(chan error, 1)
		go func() {
			got, err := checkToEOF(c, seedUp)
			received.Store(got)
			up <- err
		}()
		return errors.Join(relaytest.SendPattern(c, seedDown, n), c.CloseWrite(), <-up)
	})
	c := s.dial(t, job.id, slowOptions(slow)...)
	enough := make(chan struct{})
	sent := make(chan int64, 1)
	go func() { sent <- talk(c, slow, enough) }()
	if err := relaytest.CheckPattern(paced(c, slow, pace), seedDown, n); err != nil {
		t.Error(err)
	}
	expectEnd(t, c)
	close(enough)
	total := <-sent
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
	if total == 0 || received.Load() != total {
		t.Errorf("the client sent %d bytes, the DC received %d", total, received.Load())
	}
}

// talk sends the pattern until told that it is enough, then FIN, and returns the number of bytes sent. Beside a slow
// reader it sends 8 MB/s, else what it can: a flood would make the reader's pace that of the machine.
func talk(c *relaytest.Client, slow bool, enough <-chan struct{}) int64 {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	pattern := relaytest.NewPattern(seedUp)
	for buf := make([]byte, 8<<10); ; {
		pattern.Read(buf)
		if n, err := c.Write(buf); err != nil {
			return pattern.Offset() - int64(len(buf)-n)
		}
		select {
		case <-enough:
			c.CloseWrite()
			return pattern.Offset()
		default:
		}
		if slow {
			<-tick.C
		}
	}
}

// checkToEOF compares all that comes with a pattern and returns how much that was.
func checkToEOF(r io.Reader, seed uint64) (int64, error) {
	p := relaytest.NewPattern(seed)
	_, err := io.Copy(p, r)
	return p.Offset(), err
}

// expectEnd fails the test unless the client is given an end now, as a site that ends of itself would give it.
func expectEnd(t *testing.T, c *relaytest.Client) {
	t.Helper()
	if notify := expectSomeEnd(t, c); !notify {
		t.Error("no close_notify before the FIN")
	}
}

// expectEndBehindFIN is for clients that have sent their FIN: behind that, nginx sends its own and nothing else, and
// the proxy takes a site for nginx of which it does not know better.
func expectEndBehindFIN(t *testing.T, c *relaytest.Client) {
	t.Helper()
	if notify := expectSomeEnd(t, c); notify {
		t.Error("a close_notify behind the client's FIN")
	}
}

// expectSomeEnd tells whether a close_notify came.
func expectSomeEnd(t *testing.T, c *relaytest.Client) (notify bool) {
	t.Helper()
	notify, err := c.ReadEnd()
	if err != nil {
		t.Errorf("at the end: %v", err)
	}
	return notify
}

// recordSizes are the payload lengths of the records that a client was sent.
type recordSizes []int

func (r *recordSizes) note(n int) { *r = append(*r, n) }

// check knows what a TLS 1.3 server's bulk looks like: 16384 bytes of content fill a record of 16401, so that neither
// a longer one nor one of exactly 16384 occurs.
func (r *recordSizes) check(t *testing.T) {
	t.Helper()
	const full = 16401
	if n := slices.Max(*r); n > full {
		t.Errorf("a record of %d bytes, a full one has %d", n, full)
	}
	if slices.Contains(*r, 16384) {
		t.Error("a record of 16384 bytes, which in TLS 1.3 nobody fills it to")
	}
}

// TestTailUp: what the client sends before its FIN arrives at the DC, all of it, then FIN; and the DC can still answer.
func TestTailUp(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, s *scene) {
		pace := newBystander(t, s)
		fds := s.restingFDs(t)
		for _, n := range tailSizes {
			for _, slow := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d bytes, slow %v", n, slow), func(t *testing.T) {
					sendTail(t, s, n, slow, pace)
				})
			}
			t.Run(fmt.Sprintf("%d bytes, closed", n), func(t *testing.T) { sendAndClose(t, s, n) })
		}
		s.untilFDs(t, fds)
	})
}

const answerLen = 200_000

func sendTail(t *testing.T, s *scene, n int64, slow bool, pace *bystander) {
	job := s.onDC(func(c *relaytest.DCConn) error {
		if slow {
			c.Conn.(*net.TCPConn).SetReadBuffer(slowBuffer)
		}
		got, err := checkToEOF(paced(c, slow, pace), seedUp)
		if err == nil && got != n {
			err = fmt.Errorf("%d bytes in place of %d", got, n)
		}
		return errors.Join(err, relaytest.SendPattern(c, seedDown, answerLen))
	})
	c := s.dial(t, job.id)
	job.connected(t)
	if err := errors.Join(relaytest.SendPattern(c, seedUp, n), c.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if err := relaytest.CheckPattern(c, seedDown, answerLen); err != nil {
		t.Errorf("answer: %v", err)
	}
	expectEndBehindFIN(t, c)
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
}

// sendAndClose has the client close rather than shut down its direction.
func sendAndClose(t *testing.T, s *scene, n int64) {
	job := s.onDC(func(c *relaytest.DCConn) error {
		got, err := checkToEOF(c, seedUp)
		if err == nil && got != n {
			err = fmt.Errorf("%d bytes in place of %d", got, n)
		}
		return err
	})
	c := s.dial(t, job.id)
	job.connected(t)
	if err := errors.Join(relaytest.SendPattern(c, seedUp, n), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
}

// TestTailsCross: both sides send 2 MiB and their FIN at once, and both get all of the other's.
func TestTailsCross(t *testing.T) {
	const n = 2 << 20
	bothDownlinks(t, func(t *testing.T, s *scene) {
		fds := s.restingFDs(t)
		for range 20 {
			job := s.onDC(func(c *relaytest.DCConn) error {
				sent := make(chan error, 1)
				go func() { sent <- errors.Join(relaytest.SendPattern(c, seedDown, n), c.CloseWrite()) }()
				return errors.Join(relaytest.CheckPattern(c, seedUp, n), expectEOF(c), <-sent)
			})
			c := s.dial(t, job.id)
			job.connected(t)
			sent := make(chan error, 1)
			go func() { sent <- errors.Join(relaytest.SendPattern(c, seedUp, n), c.CloseWrite()) }()
			if err := relaytest.CheckPattern(c, seedDown, n); err != nil {
				t.Fatal(err)
			}
			expectSomeEnd(t, c)
			if err := errors.Join(<-sent, job.result()); err != nil {
				t.Fatal(err)
			}
		}
		s.untilFDs(t, fds)
	})
}

func expectEOF(r io.Reader) error {
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%d bytes and error %v in place of EOF", n, err)
	}
	return nil
}

// TestTailAfterFIN: the one side has sent its FIN long ago when the other sends its tail, to a slow reader, and ends.
func TestTailAfterFIN(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, s *scene) {
		pace := newBystander(t, s)
		fds := s.restingFDs(t)
		for _, n := range tailSizes {
			t.Run(fmt.Sprintf("%d bytes down", n), func(t *testing.T) { tailToHalfClosedClient(t, s, n, pace) })
			t.Run(fmt.Sprintf("%d bytes up", n), func(t *testing.T) { tailToHalfClosedDC(t, s, n, pace) })
		}
		s.untilFDs(t, fds)
	})
}

func tailToHalfClosedClient(t *testing.T, s *scene, n int64, pace *bystander) {
	job := s.onDC(func(c *relaytest.DCConn) error {
		return errors.Join(expectEOF(c), relaytest.SendPattern(c, seedDown, n), c.Close())
	})
	c := s.dial(t, job.id, slowOptions(true)...)
	job.connected(t)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(relaytest.CheckPattern(paced(c, true, pace), seedDown, n), job.result()); err != nil {
		t.Error(err)
	}
	expectEndBehindFIN(t, c)
}

func tailToHalfClosedDC(t *testing.T, s *scene, n int64, pace *bystander) {
	job := s.onDC(func(c *relaytest.DCConn) error {
		c.Conn.(*net.TCPConn).SetReadBuffer(slowBuffer)
		return errors.Join(c.CloseWrite(), relaytest.CheckPattern(paced(c, true, pace), seedUp, n), expectEOF(c))
	})
	c := s.dial(t, job.id)
	expectEnd(t, c)
	if err := errors.Join(relaytest.SendPattern(c, seedUp, n), c.Close()); err != nil {
		t.Error(err)
	}
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
}

// TestHalfClosedGoesOn: after the client's FIN the DC goes on, byte by byte, with pauses that a whole round trip of
// another session fills.
func TestHalfClosedGoesOn(t *testing.T) {
	s := startScene(t, sceneConfig{})
	pace := newBystander(t, s)
	const n = 200
	job := s.onDC(func(c *relaytest.DCConn) error {
		if err := expectEOF(c); err != nil {
			return err
		}
		from := relaytest.NewPattern(seedDown)
		for range n {
			var b [1]byte
			from.Read(b[:])
			if _, err := c.Write(b[:]); err != nil {
				return err
			}
			if err := pace.trip(); err != nil {
				return err
			}
		}
		return nil
	})
	c := s.dial(t, job.id)
	job.connected(t)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := relaytest.CheckPattern(c, seedDown, n); err != nil {
		t.Error(err)
	}
	expectEndBehindFIN(t, c)
	if err := job.result(); err != nil {
		t.Error(err)
	}
}

// TestHelloVariants: whatever a genuine client's greeting looks like, its bytes come back.
func TestHelloVariants(t *testing.T) {
	s := startScene(t, sceneConfig{})
	fds := s.restingFDs(t)
	for name, opts := range map[string][]relaytest.Option{
		"current":                {},
		"classic":                {relaytest.Classic()},
		"over 2 records":         {relaytest.Records(2)},
		"over 64 records":        {relaytest.Records(64)},
		"classic over 7 records": {relaytest.Classic(), relaytest.Records(7)},
		"init with first bytes":  {relaytest.LateInit()},
		"records of 65535":       {relaytest.RecordSize(65535)},
		"records of 1":           {relaytest.RecordSize(1)},
		"intermediate":           {relaytest.WithTag(relaytest.Intermediate)},
		"abridged":               {relaytest.WithTag(relaytest.Abridged)},
		"clock 100 s ahead":      {relaytest.Stamp(time.Now().Add(100 * time.Second))},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 100_000
			c := s.dial(t, echoID, opts...)
			sent := make(chan error, 1)
			go func() { sent <- relaytest.SendPattern(c, seedUp, n) }()
			if err := errors.Join(relaytest.CheckPattern(c, seedUp, n), <-sent, c.CloseWrite()); err != nil {
				t.Fatal(err)
			}
			expectEndBehindFIN(t, c)
		})
	}
	s.untilFDs(t, fds)
}

// TestDCIds: the DC that the client names is the DC that is asked, whatever the id.
func TestDCIds(t *testing.T) {
	s := startScene(t, sceneConfig{})
	seen := make(chan *relaytest.DCConn, 1)
	ids := []int{2, 3, 4, 5, -1, -5, 203, -203, 10001, -10002, 32767, -32767, -32768}
	for _, id := range ids {
		s.work[id] = func(c *relaytest.DCConn) { seen <- c }
	}
	for _, id := range ids {
		c := s.dial(t, id, relaytest.WithTag(relaytest.Intermediate))
		got := <-seen
		if got.DC() != id || got.Tag() != relaytest.Intermediate {
			t.Errorf("client: DC %d, intermediate; DC: %d, %x", id, got.DC(), got.Tag())
		}
		expectEnd(t, c)
	}
}
