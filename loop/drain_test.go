package loop

import (
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// TestDrainWaitsForSessions: a session that is under way finishes, new clients are refused meanwhile.
func TestDrainWaitsForSessions(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	c := connect(t, s)
	echo(t, c, 1000)
	drained := make(chan struct{})
	go func() {
		s.Drain(time.Hour)
		close(drained)
	}()
	await(t, "the port is closed", func() bool { return refuses(s) })
	echo(t, c, 100_000)
	select {
	case <-drained:
		t.Fatal("drained with a session under way")
	default:
	}
	c.Close()
	<-drained
}

func TestDrainEndsInTime(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	c := connect(t, s)
	echo(t, c, 1000)
	s.Drain(time.Millisecond)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the session goes on")
	}
}

// TestCloseCutsDrainShort, in either order and more than once.
func TestCloseCutsDrainShort(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	echo(t, connect(t, s), 1000)
	go s.Close()
	s.Drain(time.Hour)
	s.Drain(time.Hour)
	s.Close()
}
