package loadtest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"mtrelay/conf"
	"mtrelay/relay/relaytest"
)

// target is what is measured.
type target struct {
	name    string // in reports
	addr    string
	hosts   hosts
	secrets []conf.Secret // none: it relays bytes as they are
	classic bool          // see Options
	pids    []int
	dcs     int                     // clients ask for the DCs 1 to this
	alive   func() error            // tells how it ended if it has
	lost    func() error            // likewise, once something says that it has
	stop    func() (problem string) // ends it if it is ours; what it complained about
}

// foreign is a target that runs already.
func foreign(o *Options) *target {
	t := &target{
		name: o.Addr, addr: o.Addr, pids: o.PIDs, dcs: 1, classic: o.Classic,
		alive: func() error { return nil }, lost: func() error { return nil },
		stop: func() string { return "" },
	}
	if !o.Plain {
		t.secrets = []conf.Secret{o.Secret}
	}
	return t
}

// readyWithin bounds the wait for a target to relay.
const readyWithin = 20 * time.Second

// awaitReady returns when a client was relayed once.
func (t *target) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		conn, err := t.dial(ctx, 0, nil)
		if err == nil {
			err = (&client{Conn: conn}).echo(&scratch{}, 64)
			conn.Close()
		}
		if err == nil {
			return nil
		}
		if ended := t.alive(); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not relay to the fake DC: %w", t.addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dial connects client n through the target, with the secret of its address. watch, if any, gets the connection before the
// first byte and returns what is to be used in its place.
func (t *target) dial(ctx context.Context, n uint64, watch func(net.Conn) net.Conn, opts ...relaytest.Option) (net.Conn, error) {
	var secret conf.Secret
	if len(t.secrets) > 0 {
		secret = t.secrets[n%sources%uint64(len(t.secrets))]
	}
	return t.dialWith(ctx, secret, n, watch, opts...)
}

func (t *target) dialWith(ctx context.Context, secret conf.Secret, n uint64, watch func(net.Conn) net.Conn, opts ...relaytest.Option) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := t.connect(ctx, n)
	if err != nil {
		return nil, err
	}
	if watch != nil {
		conn = watch(conn)
	}
	id := 1 + int(n)%t.dcs
	if len(t.secrets) > 0 {
		opts = append(slices.Clip(opts), relaytest.OverConn(conn))
		if t.classic {
			opts = append(opts, relaytest.Classic())
		}
		return relaytest.Dial(ctx, "", secret.Key(), secret.Host(), id, opts...)
	}
	direct, err := relaytest.NewDirect(conn, id)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return direct, nil
}

// connect opens a TCP connection from the source address of client n.
func (t *target) connect(ctx context.Context, n uint64) (net.Conn, error) {
	return t.hosts.dial(ctx, n, t.addr)
}
