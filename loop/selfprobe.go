package loop

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"sync"
	"time"

	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// A front may lead back to us in ways that no list of addresses shows: a forwarder, a NAT, a balancer. So
// the proxy sends it a hello that is signed with a key only this process knows. When one of our listeners
// meets that hello, the circle is proven.

const (
	probeTimeout = 2 * time.Second
	// probeMemory is how long a probe is recognised after it was given up, in case the circle is slow.
	probeMemory = time.Minute
)

// probeID is the session id by which a probe is recognised.
type probeID [32]byte

// probes are the hellos that are on their way. Safe for concurrent use.
type probes struct {
	key [16]byte

	mu    sync.Mutex
	unmet map[probeID]func() // what to do when it is met
}

func newProbes() *probes {
	p := &probes{unmet: make(map[probeID]func())}
	rand.Read(p.key[:])
	return p
}

// met is called by a loop whose listener got a probe.
func (p *probes) met(id probeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tell, ok := p.unmet[id]; ok {
		delete(p.unmet, id)
		tell()
	}
}

// expect has met call tell, which must not block, when the probe that is returned is met.
func (p *probes) expect(tell func()) (id probeID) {
	rand.Read(id[:])
	p.mu.Lock()
	p.unmet[id] = tell
	p.mu.Unlock()
	time.AfterFunc(probeMemory, func() {
		p.mu.Lock()
		delete(p.unmet, id)
		p.mu.Unlock()
	})
	return id
}

// secrets returns what the gates must know to recognise a probe: the key, under the name that is sent to
// each front.
func (f *fronts) secrets() []tlsfront.Secret {
	list := make([]tlsfront.Secret, len(f.server.opts.Fronts))
	for i, site := range f.server.opts.Fronts {
		list[i] = tlsfront.Secret{Name: "self-probe", Host: f.probeName(site), Key: f.probes.key}
	}
	return list
}

// probeName is the SNI of a probe: an address is none, and visitors of one come with a secret's host anyway.
func (f *fronts) probeName(site Front) string {
	if _, err := netip.ParseAddr(site.ServerName); err == nil {
		return f.server.opts.Secrets[0].Host
	}
	return site.ServerName
}

// leadsBack sends a probe to address and waits until it comes back or the front answers, which a front
// does after one round trip.
func (f *fronts) leadsBack(site Front, address netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(f.ctx, probeTimeout)
	defer cancel()
	back := make(chan struct{})
	id := f.probes.expect(func() { close(back) })
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.send(ctx, site, address, id)
	}()
	select {
	case <-back:
		return true
	case <-answered:
	}
	select {
	case <-back: // the listener that met it tells before it hangs up
		return true
	default:
		return false
	}
}

// send sends the probe and returns when there is an answer, an end, or no more time.
func (f *fronts) send(ctx context.Context, site Front, address netip.AddrPort, id probeID) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stamp := clock.Unix(time.Now().Unix())
	hello := tlsfront.AppendClientHello(nil, tlsfront.HelloHybrid, f.probeName(site), id, &f.probes.key, stamp, rand.Reader)
	if _, err := conn.Write(hello); err == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
}
