package scout

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"mtrelay/clock"
	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// What follows is for a command that looks once: the observations of a raid, one by one, at a front or at ourselves.

// Unreachable reports whether err says that there was no connection.
func Unreachable(err error) bool { return errors.Is(err, errUnreachable) }

// Flight observes how a server answers a hello of that kind, as a raid does. With a key the hello proves to hold that
// secret, which is how our own answer is seen.
func Flight(
	ctx context.Context, address netip.AddrPort, serverName string, kind tlsfront.HelloKind, key *[16]byte,
) (tlsfront.Flight, error) {
	conn, rtt, err := dial(ctx, address, flightTime)
	if err != nil {
		return tlsfront.Flight{}, err
	}
	defer conn.Close()
	var id [32]byte
	rand.Read(id[:])
	stamp := clock.Unix(time.Now().Unix())
	if _, err := conn.Write(tlsfront.AppendClientHello(nil, kind, serverName, id, key, stamp, rand.Reader)); err != nil {
		return tlsfront.Flight{}, fmt.Errorf("send a ClientHello: %w", err)
	}
	return readFlight(conn, id, quietAfter(rtt))
}

// Profile sums up observations as a raid does.
func Profile(flights [tlsfront.NumHelloKinds][]tlsfront.Flight, tickets [][]int) *tlsfront.Profile {
	f := findings{flights: flights, tickets: tickets}
	return f.profile(nil)
}

// Visited is what one connection to a front showed.
type Visited struct {
	Trace    doppel.Trace
	Tickets  []int // payloads of the records right behind the handshake
	Bytes    int   // records that came down
	Problems []string
}

// Visit makes one connection to the front at address and fetches its URLs over it, as many as the limit, in bytes down,
// allows; pause is the rest before the largest is fetched again.
func Visit(ctx context.Context, address netip.AddrPort, f Front, limit int, pause time.Duration) (Visited, error) {
	r := raid{scout: &scout{front: f}}
	urls, follow := r.urls()
	got, err := fetch(ctx, address, f.ServerName, plan{urls, follow, limit, pause, false}, defaultLimits)
	for _, p := range got.problems {
		r.problem(p)
	}
	return Visited{got.trace, got.tickets, got.bytes, r.problems}, err
}

// Watched is a connection whose records are watched as those of a Visit are. One goroutine may read while another
// writes.
type Watched struct{ *wire }

// Watch watches conn from now on, over at most limit bytes down; reading fails behind them.
func Watch(conn net.Conn, limit int) Watched {
	w := newWire(conn, time.Now(), 0, limit)
	w.shaking = false
	return Watched{w}
}

// Read implements net.Conn. Unlike a Visit's it hands out what came together together: to a client that looks at
// segments it is the connection itself.
func (w Watched) Read(p []byte) (int, error) {
	for len(w.ready) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.err = w.fill()
	}
	n := copy(p, w.ready)
	w.ready = w.ready[n:]
	return n, nil
}

// Begin says that all records so far belong to the handshake.
func (w Watched) Begin() { w.finish() }

// Ask says that what is written next is a request.
func (w Watched) Ask() { w.ask() }

// Bursts returns the responses so far, while nobody reads.
func (w Watched) Bursts() []doppel.Burst {
	bursts, _ := w.trace()
	return bursts
}

// IsCertificateProblem reports whether a problem of a Visit is one of the front's certificate.
func IsCertificateProblem(text string) bool {
	return strings.HasPrefix(text, "browsers would warn of its certificate")
}
