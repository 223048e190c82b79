package relaytest

import (
	"net"
	"testing"
)

// TestDirect: what a client says without a proxy reaches the DC and comes back.
func TestDirect(t *testing.T) {
	dc, err := ListenDC("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan int, 1)
	dc.Serve(func(c *DCConn) {
		asked <- c.DC()
		Echo(c)
	})
	defer func() {
		if err := dc.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp", dc.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := NewDirect(conn, -3)
	if err != nil {
		t.Fatal(err)
	}
	const n = 200_000 // more than the scratch of Write holds
	sent := make(chan error, 1)
	go func() { sent <- SendPattern(c, 7, n) }()
	if err := CheckPattern(c, 7, n); err != nil {
		t.Error(err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if id := <-asked; id != -3 {
		t.Errorf("the DC was asked for as %d", id)
	}
}
