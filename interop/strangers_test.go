package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// shortHandshake is the handshake timer where a test waits for it.
const shortHandshake = "[network.timeout]\nhandshake = \"1s\"\n"

// farewell is what a notingFront says when a visitor is done.
var farewell = []byte("HTTP/1.1 400 Bad Request\r\n\r\n")

// A notingFront is a site that listens to each visitor up to its FIN, then says farewell and closes.
type notingFront struct {
	addr string

	mu      sync.Mutex
	arrived int
	said    [][]byte // by visitors that are done
}

func startNotingFront(t *testing.T) *notingFront {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	f := &notingFront{addr: l.Addr().String()}
	var visits sync.WaitGroup
	visits.Go(func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close() // before it serves, the proxy sees whether its front is itself
		}
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.arrived++
			f.mu.Unlock()
			visits.Go(func() { f.attend(conn) })
		}
	})
	t.Cleanup(func() { // after the proxy, which ends the visits
		l.Close()
		visits.Wait()
	})
	return f
}

func (f *notingFront) attend(conn net.Conn) {
	defer conn.Close()
	said, err := io.ReadAll(conn)
	if err != nil {
		return // RST
	}
	conn.Write(farewell)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, said)
}

// untilArrived waits until so many visitors have come.
func (f *notingFront) untilArrived(t *testing.T, want int) {
	t.Helper()
	until(t, func() (bool, string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.arrived == want, fmt.Sprintf("%d visitors at the front, %d expected", f.arrived, want)
	})
}

// heard returns what the visitors said and forgets it.
func (f *notingFront) heard() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := f.said
	f.said = nil
	return said
}

// dialRaw connects without a word.
func (s *scene) dialRaw(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// leave sends FIN and expects the front's farewell and its FIN.
func leave(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, end := readToEnd(conn); end != endFIN || !bytes.Equal(got, farewell) {
		t.Errorf("the front's answer came back as %q, then %s", got, end)
	}
	conn.Close()
}

// TestCrowdOfStrangers: hundreds at once that stop in the middle of a hello, say nothing, or talk rubbish. Each is
// the front's visitor; whoever has the secret is served meanwhile as if they were not there.
func TestCrowdOfStrangers(t *testing.T) {
	const ofEach = 300
	f := startNotingFront(t)
	s := startScene(t, sceneConfig{front: f.addr, tables: shortHandshake})
	watchBystander(t, s)
	fds := s.restingFDs(t)

	rnd := rand.New(rand.NewPCG(1, 2))
	var said [][]byte
	conns := make([]*net.TCPConn, 0, 3*ofEach)
	for range ofEach {
		hello := relaytest.ClientHello(sceneKey, siteHost)
		rubbish := make([]byte, 1+rnd.IntN(3000))
		for i := range rubbish {
			rubbish[i] = byte(rnd.Uint32())
		}
		for _, b := range [][]byte{hello[:1+rnd.IntN(len(hello)-1)], {}, rubbish} {
			conn := s.dialRaw(t)
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
			conns, said = append(conns, conn), append(said, b)
		}
	}
	bounce(t, s.dial(t, echoID), 100_000)
	f.untilArrived(t, len(conns)) // the silent ones once the handshake timer fires
	bounce(t, s.dial(t, echoID), 100_000)
	for _, conn := range conns {
		leave(t, conn)
	}
	heard := f.heard()
	slices.SortFunc(said, bytes.Compare)
	slices.SortFunc(heard, bytes.Compare)
	if !slices.EqualFunc(said, heard, bytes.Equal) {
		t.Errorf("the front did not hear what %d strangers said", len(said))
	}
	s.untilFDs(t, fds+4) // the two clients that were dialled meanwhile are still there
}

// TestRefusedHelloIsTheFronts: a hello that proves nothing reaches the front, with all that follows it, unchanged.
func TestRefusedHelloIsTheFronts(t *testing.T) {
	f := startNotingFront(t)
	s := startScene(t, sceneConfig{front: f.addr})
	fds := s.restingFDs(t)
	used, usedClassic := relaytest.ClientHello(sceneKey, siteHost), relaytest.ClientHello(sceneKey, siteHost, relaytest.Classic())
	for _, hello := range [][]byte{used, usedClassic} {
		s.expectAccepted(t, hello)
	}
	old := func(age time.Duration) []byte {
		return relaytest.ClientHello(sceneKey, siteHost, relaytest.Stamp(time.Now().Add(-age)))
	}
	wrongKey := sceneKey
	wrongKey[15] ^= 1
	for name, hello := range map[string][]byte{
		"replayed":                used,
		"replayed, classic":       usedClassic,
		"replayed over 2 records": relaytest.Recut(used, 2),
		"an hour old":             old(time.Hour),
		"5 minutes old":           old(5 * time.Minute),
		"from before the start":   old(time.Minute),
		"an hour ahead":           old(-time.Hour),
		"another key":             relaytest.ClientHello(wrongKey, siteHost),
		"another host":            relaytest.ClientHello(sceneKey, "other.example"),
		"no host":                 relaytest.ClientHello(sceneKey, ""),
		"over 65 records":         relaytest.Recut(relaytest.ClientHello(sceneKey, siteHost), 65),
	} {
		t.Run(name, func(t *testing.T) {
			f.heard()
			conn := s.dialRaw(t)
			sent := slices.Concat(hello, pattern(5000))
			if _, err := conn.Write(sent); err != nil {
				t.Fatal(err)
			}
			leave(t, conn)
			if heard := f.heard(); len(heard) != 1 || !bytes.Equal(heard[0], sent) {
				t.Errorf("the front heard %d visitors, or another text", len(heard))
			}
		})
	}
	s.untilFDs(t, fds)
}

// expectAccepted uses a hello up.
func (s *scene) expectAccepted(t *testing.T, hello []byte) {
	t.Helper()
	conn := s.dialRaw(t)
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, _ := readToEnd(conn); !acceptedBy(sceneKey, hello, got) {
		t.Fatal("a good hello was not accepted")
	}
	conn.Close()
}

// reset ends a connection with RST, wherever it stands.
func reset(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// TestResetAnywhere: clients and strangers that reset their connection at every stage, and nothing stays behind.
func TestResetAnywhere(t *testing.T) {
	f := startNotingFront(t)
	s := startScene(t, sceneConfig{front: f.addr, tables: shortHandshake})
	watchBystander(t, s)
	fds := s.restingFDs(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	const sourceID, n = 7, 1 << 20
	s.work[sourceID] = relaytest.Source(seedDown, n)

	first := func(b []byte) { // sends a part of it, or all
		conn := s.dialRaw(t)
		conn.Write(b[:rnd.IntN(len(b)+1)])
		reset(conn)
	}
	stages := map[string]func(){
		"hello":   func() { first(relaytest.ClientHello(sceneKey, siteHost)) },
		"reply":   func() { first(relaytest.Recut(relaytest.ClientHello(sceneKey, siteHost), 1+rnd.IntN(64))) },
		"rubbish": func() { first(pattern(2000)) },
		"init": func() {
			c := s.dial(t, sourceID, relaytest.LateInit())
			wire := c.Seal(nil, pattern(500), 100)
			c.NetConn().Write(wire[:rnd.IntN(len(wire)+1)])
			reset(c.NetConn())
		},
		"dial": func() { reset(s.dial(t, sourceID).NetConn()) },
		"down": func() {
			c := s.dial(t, sourceID)
			io.CopyN(io.Discard, c, rnd.Int64N(n))
			reset(c.NetConn())
		},
		"up": func() {
			c := s.dial(t, echoID)
			c.Write(pattern(1 + rnd.IntN(500_000)))
			reset(c.NetConn())
		},
		"end": func() {
			c := s.dial(t, sourceID)
			io.CopyN(io.Discard, c, n)
			reset(c.NetConn())
		},
		"half-closed": func() {
			c := s.dial(t, echoID)
			bounce(t, c, 10_000)
			c.CloseWrite()
			reset(c.NetConn())
		},
	}
	for name, stage := range stages {
		t.Run(name, func(t *testing.T) {
			for range 40 {
				stage()
			}
			s.untilFDs(t, fds)
		})
	}
}

// TestUpstreamResets: DCs and fronts that reset at some point. The client is given an end, and nothing stays behind.
func TestUpstreamResets(t *testing.T) {
	s := startScene(t, sceneConfig{front: rawFront(t, func(c *net.TCPConn) {
		b := make([]byte, 64)
		n, _ := c.Read(b)
		c.Write(pattern(100 * n))
		reset(c)
	})})
	watchBystander(t, s)
	fds := s.restingFDs(t)
	for size := 1; size < 3<<20; size *= 3 {
		t.Run(fmt.Sprintf("DC after %d bytes", size), func(t *testing.T) {
			job := s.onDC(func(c *relaytest.DCConn) error {
				err := relaytest.SendPattern(c, seedDown, int64(size))
				reset(c.Conn)
				return err
			})
			c := s.dial(t, job.id)
			p := relaytest.NewPattern(seedDown)
			for rest := int64(size); rest > 0; rest = int64(size) - p.Offset() { // how much gets through is the kernel's affair
				if _, err := io.CopyN(p, c, rest); err != nil {
					break
				}
			}
			if _, end := readToEnd(c.NetConn()); end == endHeld {
				t.Error("the client is left hanging")
			}
			c.Close()
		})
		t.Run(fmt.Sprintf("front after %d bytes", size), func(t *testing.T) {
			conn := s.dialRaw(t)
			conn.Write(make([]byte, 1+size%64))
			if _, end := readToEnd(conn); end != endRST {
				t.Errorf("the front's RST came as %s", end)
			}
			conn.Close()
		})
	}
	s.untilFDs(t, fds)
}

// TestBadRecords: what an accepted client may not send ends its session as a site would, and nobody else's.
func TestBadRecords(t *testing.T) {
	s := startScene(t, sceneConfig{})
	watchBystander(t, s)
	fds := s.restingFDs(t)
	wrongTag := slices.Concat(versioned(recordCCS, 0x0303, []byte{1}), versioned(recordData, 0x0303, make([]byte, 64)))
	for name, bad := range map[string][]byte{
		"init of zeroes":      wrongTag,
		"alert":               versioned(recordAlert, 0x0303, []byte{1, 0}),
		"handshake":           versioned(recordHandshake, 0x0303, pattern(300)),
		"rubbish":             append([]byte("GET / HTTP/1.1\r\n\r\n"), pattern(5000)...),
		"version 2":           versioned(recordData, 0x0203, pattern(100)),
		"long CCS":            versioned(recordCCS, 0x0303, pattern(100)),
		"a second hello":      relaytest.ClientHello(sceneKey, siteHost),
		"an init, then alert": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t, echoID, relaytest.LateInit())
			wire := bad
			if wire == nil {
				wire = c.Seal(nil, pattern(1000), 300)
				wire = append(wire, versioned(recordAlert, 0x0303, []byte{1, 0})...)
			}
			if _, err := c.NetConn().Write(wire); err != nil {
				t.Fatal(err)
			}
			if _, end := readToEnd(c.NetConn()); end != endFIN {
				t.Errorf("the session ends with %s", end)
			}
			c.Close()
		})
	}
	s.untilFDs(t, fds)
}

// TestFrontedCap: beyond the cap strangers are refused at once, and clients are served.
func TestFrontedCap(t *testing.T) {
	const most = 4
	f := startNotingFront(t)
	s := startScene(t, sceneConfig{front: f.addr, fronts: fmt.Sprintf("max-connections = %d", most)})
	watchBystander(t, s)
	fds := s.restingFDs(t)
	stranger := func() *net.TCPConn {
		conn := s.dialRaw(t)
		if _, err := conn.Write([]byte("SSH-2.0-x\r\n")); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for round := range 3 {
		inside := make([]*net.TCPConn, most)
		for i := range inside {
			inside[i] = stranger()
		}
		f.untilArrived(t, most*(round+1))
		for range 20 {
			if got, end := readToEnd(stranger()); end != endRST || len(got) > 0 {
				t.Errorf("a stranger beyond the cap gets %q, then %s", got, end)
			}
		}
		bounce(t, s.dial(t, echoID), 1000)
		fds += 2 // that client stays
		for _, conn := range inside {
			leave(t, conn)
		}
		s.untilFDs(t, fds)
	}
}

// TestConcurrency: beyond the cap on all connections everybody is refused at once; who is inside stays.
func TestConcurrency(t *testing.T) {
	const most = 10
	s := startScene(t, sceneConfig{top: fmt.Sprintf("concurrency = %d", most)})
	inside := make([]*relaytest.Client, most)
	for i := range inside {
		inside[i] = s.dial(t, echoID)
	}
	for range 20 {
		conn, err := net.Dial("tcp", s.addr)
		if errors.Is(err, syscall.ECONNRESET) { // it came while connect returned
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		if _, end := readToEnd(conn); end != endRST {
			t.Errorf("beyond the cap the end is %s", end)
		}
		conn.Close()
	}
	for _, c := range inside {
		bounce(t, c, 1000)
	}
	inside[0].Close()
	until(t, func() (bool, string) {
		c, err := relaytest.Dial(t.Context(), s.addr, sceneKey, siteHost, echoID)
		if err == nil {
			err = errors.Join(relaytest.SendPattern(c, 1, 100), relaytest.CheckPattern(c, 1, 100), c.Close())
		}
		return err == nil, fmt.Sprintf("a place is free, yet %v", err)
	})
}
