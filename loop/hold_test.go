package loop

import (
	"encoding/binary"
	"io"
	"testing"

	"mtrelay/doppel"
	"mtrelay/relay"
	"mtrelay/relay/relaytest"
)

// serveShaped runs a proxy whose sessions look like a site that sends full records without pauses.
func serveShaped(t *testing.T, work func(*relaytest.DCConn)) *Server {
	t.Helper()
	s := serve(t, options(fakeDC(t, work).Addr(), fakeFront(t, echoFront)))
	s.SetLook(0, &relay.Look{Shape: doppel.Default()})
	return s
}

// frame is a message as the padded intermediate transport has it.
func frame(n int) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(n)), make([]byte, n)...)
}

func writeAll(w io.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// TestWhatIsHeldLeaves: while a message goes on the kernel is told not to wake us for less than a record. When it is over, the
// least byte has to wake us again.
func TestWhatIsHeldLeaves(t *testing.T) {
	const long, short = 50_000, 40
	s := serveShaped(t, func(c *relaytest.DCConn) {
		for ask := make([]byte, 1); ; {
			if _, err := io.ReadFull(c, ask); err != nil {
				return
			}
			message := frame(short)
			if ask[0] == 'l' {
				message = frame(long)
			}
			for len(message) > 0 {
				n := min(1448, len(message))
				if writeAll(c, message[:n]) != nil {
					return
				}
				message = message[n:]
			}
		}
	})
	c := connect(t, s)
	for range 50 {
		for ask, n := range map[byte]int{'l': long, 's': short} {
			if err := writeAll(c, []byte{ask}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, c, int64(4+n)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestHeldTail: what waits for bytes that never come, because the DC has left, is delivered all the same.
func TestHeldTail(t *testing.T) {
	for _, n := range []int{1, 4, 1000, 10_000, 40_000} {
		s := serveShaped(t, func(c *relaytest.DCConn) {
			io.CopyN(io.Discard, c, 1)
			writeAll(c, frame(50_000)[:n])
			io.CopyN(io.Discard, c, 1) // it was held meanwhile, or is about to be
		})
		c := connect(t, s)
		if err := writeAll(c, []byte{1}, []byte{2}); err != nil {
			t.Fatal(err)
		}
		if got, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
			t.Fatalf("%d bytes of %d arrived: %v", got, n, err)
		}
		if _, err := c.ReadEnd(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeavingClientIsNotKept: who ends its direction when all was answered gets the end of a site at once, though the DC takes
// its time.
func TestLeavingClientIsNotKept(t *testing.T) {
	over := make(chan struct{})
	s := serveShaped(t, func(c *relaytest.DCConn) {
		io.CopyN(io.Discard, c, 1)
		writeAll(c, frame(1000))
		<-over
	})
	defer close(over)
	c := connect(t, s)
	if err := writeAll(c, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, 4+1000); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadEnd(); err != nil {
		t.Fatal(err)
	}
}
