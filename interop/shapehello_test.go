package interop

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// answerTo is what a server said to a ClientHello, as far as it is not encrypted, and the bytes that are.
type answerTo struct {
	seen    string
	records []int // of type 23
}

// greet sends hello and reads the answer until nothing more comes.
func greet(t *testing.T, addr string, hello []byte) (a answerTo) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	for {
		var head [5]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return a
		}
		body := make([]byte, binary.BigEndian.Uint16(head[3:]))
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		switch head[0] {
		case recordHandshake:
			a.seen += serverHello(t, body, hello)
		case recordData:
			a.records = append(a.records, len(body))
		default:
			a.seen += fmt.Sprintf("record %d of %d bytes; ", head[0], len(body))
		}
		conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	}
}

// serverHello describes one: RFC 8446 §4.1.3.
func serverHello(t *testing.T, b, hello []byte) string {
	t.Helper()
	if len(b) < 39 || b[0] != 2 {
		return fmt.Sprintf("handshake message %d; ", b[0])
	}
	retry := bytes.HasPrefix(b[6:], []byte{0xcf, 0x21, 0xad, 0x74, 0xe5})
	n := int(b[38])
	echoed := bytes.Equal(b[38:39+n], hello[43:44+n])
	b = b[39+n:]
	s := fmt.Sprintf("ServerHello, suite %x, retry %v, session id echoed %v, extensions", b[:2], retry, echoed)
	for b = b[5:]; len(b) >= 4; b = b[4+binary.BigEndian.Uint16(b[2:]):] {
		s += fmt.Sprintf(" %d", binary.BigEndian.Uint16(b))
		if binary.BigEndian.Uint16(b) == extKeyShare {
			s += fmt.Sprintf(" (group %x)", b[4:6])
		}
	}
	return s + "; "
}

// helloOf is a ClientHello of that kind that holds the secret: for the front it is like any other.
func helloOf(kind tlsfront.HelloKind) []byte {
	var id [32]byte
	rand.Read(id[:])
	return tlsfront.AppendClientHello(nil, kind, siteHost, id, &sceneKey, clock.Unix(time.Now().Unix()), rand.Reader)
}

// compareFlights shows the same kinds of hello to both.
func compareFlights(t *testing.T, front, proxy string) {
	t.Helper()
	for kind := range tlsfront.HelloKind(tlsfront.NumHelloKinds) {
		for range 2 {
			hello := helloOf(kind)
			f, p := greet(t, front, hello), greet(t, proxy, hello)
			if f.seen != p.seen {
				t.Errorf("%v: the front answers %s\nours %s", kind, f.seen, p.seen)
			}
			frontBytes, ours := onWire(f.records), onWire(p.records)
			t.Logf("%v: %s front's records %v (%d bytes), ours %v (%d bytes)", kind, p.seen, f.records, frontBytes, p.records, ours)
			if d := frontBytes - ours; d < -4 || d > 4 {
				t.Errorf("%v: the front's encrypted records take %d bytes, ours %d", kind, frontBytes, ours)
			}
		}
	}
}

func onWire(records []int) (n int) {
	for _, r := range records {
		n += 5 + r
	}
	return n
}

func TestServerHelloLikeTheFront(t *testing.T) {
	t.Parallel() // with what only waits, too
	s := newSite(t)
	for _, f := range []*origin{startNginx(t, s), startGoOrigin(t, s, originTimer)} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			p := startShaped(t, f.addr, "urls = [\"/4k\"]\nrepeats-per-raid = 3\n")
			p.learned(t, raidRepeats)
			compareFlights(t, f.addr, p.addr)
			bounce(t, p.dial(t, echoID), 100_000)
		})
	}
}

// TestFrontMovesToAnotherStack: the flight follows after the next raid, and with it the tickets.
func TestFrontMovesToAnotherStack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nginx, other := startNginx(t, s), startGoOrigin(t, s, originTimer)
	var target atomic.Pointer[string]
	target.Store(&nginx.addr)
	front := rawFront(t, func(c *net.TCPConn) {
		far, err := net.Dial("tcp", *target.Load())
		if err != nil {
			return
		}
		defer far.Close()
		go func() {
			io.Copy(far, c)
			far.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(c, far)
	})
	p := startShaped(t, front, "urls = [\"/4k\"]\nrepeats-per-raid = 1\nraid-each = \"1s\"\n")
	p.learned(t, 1)
	compareFlights(t, nginx.addr, p.addr)
	target.Store(&other.addr)
	began := time.Now()
	for kind := range tlsfront.HelloKind(tlsfront.NumHelloKinds) {
		want := greet(t, other.addr, helloOf(kind))
		until(t, func() (bool, string) { // a raid that had begun before the move may have seen both
			got := greet(t, p.addr, helloOf(kind))
			return got.seen == want.seen && onWire(got.records) == onWire(want.records), got.seen
		})
	}
	t.Logf("followed after %v", time.Since(began))
	compareFlights(t, other.addr, p.addr)
}
