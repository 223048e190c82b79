package scout

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"mtrelay/tlsfront"
)

// Numbers of our choosing.
const (
	connectTimeout = 5 * time.Second
	// flightTime bounds one probe behind its connect: Telegram's clients wait 10 s for the whole answer.
	flightTime = 10 * time.Second
	// A server's flight has ended when nothing came for a few round trips: one is what a flight larger than the first
	// congestion window takes before it goes on.
	quietRoundTrips = 3
	minQuiet        = 100 * time.Millisecond
	maxQuiet        = time.Second
)

// errUnreachable marks an error of connecting: another address may do better.
var errUnreachable = errors.New("unreachable")

// dial connects to address, and to nothing else. rtt is what that took. The connection dies with ctx, and at the latest
// after life.
func dial(ctx context.Context, address netip.AddrPort, life time.Duration) (conn net.Conn, rtt time.Duration, err error) {
	d := net.Dialer{Timeout: connectTimeout}
	start := time.Now()
	conn, err = d.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	rtt = time.Since(start)
	return newMortal(ctx, conn, life), rtt, nil
}

// mortal is a connection that is closed when its context or its time ends, so that no deadline that is set on it in
// between can make it outlive them.
type mortal struct {
	net.Conn
	timer *time.Timer
	stop  func() bool
}

func newMortal(ctx context.Context, conn net.Conn, life time.Duration) *mortal {
	end := func() { _ = conn.Close() }
	return &mortal{conn, time.AfterFunc(life, end), context.AfterFunc(ctx, end)}
}

// CloseWrite sends our FIN.
func (m *mortal) CloseWrite() error { return m.Conn.(*net.TCPConn).CloseWrite() }

func (m *mortal) Close() error {
	m.timer.Stop()
	m.stop()
	return m.Conn.Close()
}

// quietAfter returns how long nothing must come until a server waits for us.
func quietAfter(rtt time.Duration) time.Duration {
	return min(max(quietRoundTrips*rtt, minQuiet), maxQuiet)
}

// probeFlight sends a ClientHello of that kind and reads the answer until the server waits for the client's Finished,
// which nobody can make for this hello. One observation: Records has one list when the flight is OK, else none.
//
// Whatever the server sends, alerts and garbage included, is a result; an error says that the answer did not come, was
// cut, or did not end in time.
func probeFlight(
	ctx context.Context, address netip.AddrPort, serverName string, kind tlsfront.HelloKind, lim limits,
) (tlsfront.Flight, error) {
	conn, rtt, err := dial(ctx, address, lim.flightTime)
	if err != nil {
		return tlsfront.Flight{}, err
	}
	defer conn.Close()
	var id [32]byte
	rand.Read(id[:])
	if _, err := conn.Write(tlsfront.AppendClientHello(nil, kind, serverName, id, nil, 0, rand.Reader)); err != nil {
		return tlsfront.Flight{}, fmt.Errorf("send a ClientHello: %w", err)
	}
	f, err := readFlight(conn, id, quietAfter(rtt))
	if err != nil {
		return tlsfront.Flight{}, fmt.Errorf("answer to a ClientHello (%v): %w", kind, err)
	}
	return f, nil
}

// readFlight reads an answer from conn, which somebody closes in time. id is the session id that was sent.
func readFlight(conn net.Conn, id [32]byte, quiet time.Duration) (tlsfront.Flight, error) {
	a := answer{sessionID: id}
	buf := make([]byte, 16<<10)
	for a.stage != concluded {
		var until time.Time
		if a.atRest() {
			until = time.Now().Add(quiet)
		}
		if err := conn.SetReadDeadline(until); err != nil {
			return tlsfront.Flight{}, err
		}
		n, err := conn.Read(buf)
		a.feed(buf[:n])
		switch {
		case n > 0:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return a.ended(), nil
		case errors.Is(err, net.ErrClosed):
			return tlsfront.Flight{}, errors.New("it did not come to an end in time")
		case err != nil:
			return tlsfront.Flight{}, fmt.Errorf("cut: %w", err)
		}
	}
	return a.flight, nil
}
