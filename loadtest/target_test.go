package loadtest

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"mtrelay/conf"
)

// TestHello: a target that is greeted as by older clients gets the 512 bytes after a record header that they send, and any
// other one more.
func TestHello(t *testing.T) {
	secret, err := conf.NewSecret(rand.Reader, ownHost)
	if err != nil {
		t.Fatal(err)
	}
	for _, classic := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		length := make(chan int, 1)
		go func() {
			length <- firstRecord(l)
		}()
		o := Options{Addr: l.Addr().String(), Secret: secret, Classic: classic}
		if c, err := foreign(&o).dial(t.Context(), 0, nil); err == nil {
			t.Errorf("it got no reply, and yet it is connected: %v", c)
		}
		l.Close() // whoever is connected stays so
		if n := <-length; (n == 512) != classic || n < 512 {
			t.Errorf("classic %v: a record of %d bytes", classic, n)
		}
	}
}

// firstRecord returns the length of the payload of the first record that the next client sends, 0 if there is none.
func firstRecord(l net.Listener) int {
	c, err := l.Accept()
	if err != nil {
		return 0
	}
	defer c.Close()
	var header [5]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return 0
	}
	n, _ := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(header[3:])))
	return int(n)
}
