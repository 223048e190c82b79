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

// probeTimeout is how long a front may take to answer. In a circle nobody ever does: the hello that came back is
// treated as any visitor's and waits for its front like them (see dial.findFront), so that whoever sends us
// a copy of it learns nothing.
const probeTimeout = 2 * time.Second

// probeID is the session id by which a probe is recognised.
type probeID [32]byte

// probes are the hellos that are on their way. Safe for concurrent use.
type probes struct {
	key [16]byte

	mu  sync.Mutex
	met map[probeID]bool // those on their way; true: one of our listeners got it
}

func newProbes() *probes {
	p := &probes{met: make(map[probeID]bool)}
	rand.Read(p.key[:])
	return p
}

func (p *probes) begin() (id probeID) {
	rand.Read(id[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met[id] = false
	return id
}

// end tells whether the probe was met.
func (p *probes) end(id probeID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer delete(p.met, id)
	return p.met[id]
}

// meet is called by a loop whose listener got a probe, or a copy of an old one.
func (p *probes) meet(id probeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.met[id]; ok {
		p.met[id] = true
	}
}

// pending tells whether it is still open what that probe will find.
func (p *probes) pending(id probeID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.met[id]
	return ok
}

// secret is what the gates must know to recognise a probe, whatever front it was sent to.
func (p *probes) secret() tlsfront.Secret { return tlsfront.Secret{Name: "self-probe", Key: p.key} }

// probeName is the SNI of a probe: an address is none, and visitors of one come with a secret's host anyway.
func (f *fronts) probeName(site Front) string {
	if _, err := netip.ParseAddr(site.ServerName); err == nil {
		return f.server.opts.Secrets[0].Host
	}
	return site.ServerName
}

// leadsBack sends a probe to address and waits for an answer, which a front gives after one round trip. Without
// an answer it tells whether the probe came back to us.
func (f *fronts) leadsBack(site Front, address netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(f.ctx, probeTimeout)
	defer cancel()
	id := f.probes.begin()
	answered := f.send(ctx, site, address, id)
	return f.probes.end(id) && !answered
}

// send sends the probe and tells whether a byte came back before there was an end or no more time.
func (f *fronts) send(ctx context.Context, site Front, address netip.AddrPort, id probeID) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	stamp := clock.Unix(time.Now().Unix())
	hello := tlsfront.AppendClientHello(nil, tlsfront.HelloHybrid, f.probeName(site), id, &f.probes.key, stamp, rand.Reader)
	if _, err := conn.Write(hello); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 1))
	return n > 0
}
