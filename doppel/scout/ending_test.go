package scout

import (
	"crypto/tls"
	"net"
	"slices"
	"testing"
	"time"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// tacit connections lose the server's close_notify.
type tacit struct{ net.Listener }

func (l tacit) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tacitConn{c}, err
}

type tacitConn struct{ net.Conn }

func (c tacitConn) Write(p []byte) (int, error) {
	if len(p) == tlsfront.RecordHeaderLen+farewell {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestEndings: who ends a connection, and with what, is seen, and leaves nothing in the trace.
func TestEndings(t *testing.T) {
	for _, c := range []struct {
		name          string
		http2, tacit  bool
		hangUp        bool
		tired         bool // keeps no connection for as long as the pause is
		clientIsFirst bool
		said          tlsfront.Farewell
	}{
		{"HTTP/1.1, we leave", false, false, false, false, true, tlsfront.FarewellSaid},
		{"HTTP/1.1, it leaves", false, false, true, false, false, tlsfront.FarewellSaid},
		{"HTTP/1.1, we leave, tacit", false, true, false, false, true, tlsfront.FarewellOmitted},
		{"HTTP/1.1, it leaves, tacit", false, true, true, false, false, tlsfront.FarewellOmitted},
		{"HTTP/2, we leave", true, false, false, false, true, tlsfront.FarewellSaid},
		{"HTTP/2, we leave, tacit", true, true, false, false, true, tlsfront.FarewellOmitted},
		{"HTTP/1.1, it left in the pause", false, false, false, true, false, tlsfront.FarewellSaid},
		{"HTTP/1.1, it left in the pause, tacit", false, true, false, true, false, tlsfront.FarewellOmitted},
	} {
		t.Run(c.name, func(t *testing.T) {
			idle := time.Hour
			if c.tired {
				idle = 200 * time.Millisecond // longer than between two fetches, on any machine
			}
			address := serveSite(t, c.http2, idle, func(l net.Listener) net.Listener {
				if c.tacit {
					return tacit{l}
				}
				return l
			})
			p := testPlan(root()...)
			p.hangUp = c.hangUp
			if c.tired {
				p.pause = 5 * idle
			}
			f, err := fetch(t.Context(), address, testHost, p, patient)
			if err != nil {
				t.Fatal(err)
			}
			if want := (ending{c.clientIsFirst, c.said}); f.ending != want {
				t.Errorf("%+v, want %+v", f.ending, want)
			}
			if !c.tired {
				checkBursts(t, f.trace.Bursts)
			}
			for _, b := range f.trace.Bursts {
				if slices.ContainsFunc(b.Records, func(r doppel.Record) bool { return r.Size == farewell }) {
					t.Error("the farewell is taken for a part of a response")
				}
			}
		})
	}
}

// TestServerThatStays: one that does not end a connection is not waited for long, and nothing is known of its endings.
func TestServerThatStays(t *testing.T) {
	release := make(chan struct{})
	address := serve(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{testCertificate()}})
		for buf := make([]byte, 4<<10); ; {
			if _, err := s.Read(buf); err != nil {
				<-release
				return
			}
			_, _ = s.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		}
	})
	defer close(release)
	f, err := fetch(t.Context(), address, testHost, testPlan(root()...), patient)
	if err != nil || f.ending.said != tlsfront.FarewellUnknown {
		t.Errorf("%+v, %v", f.ending, err)
	}
}

func TestFarewellOf(t *testing.T) {
	const unknown, said, omitted = tlsfront.FarewellUnknown, tlsfront.FarewellSaid, tlsfront.FarewellOmitted
	for _, c := range []struct {
		before tlsfront.Farewell
		seen   []ending
		want   tlsfront.Farewell
	}{
		{unknown, nil, unknown},
		{said, nil, said},
		{said, []ending{{true, omitted}, {true, omitted}, {true, said}}, omitted},
		{said, []ending{{false, omitted}, {true, unknown}}, said},
	} {
		if got := farewellOf(c.seen, true, c.before); got != c.want {
			t.Errorf("%+v behind %d: %d, want %d", c.seen, c.before, got, c.want)
		}
	}
}
