package loop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Numbers of our choosing.
const (
	resolveTimeout = 5 * time.Second
	resolveEvery   = 5 * time.Minute
	resolveAgain   = 15 * time.Second // after a failure
)

// fronts knows the addresses of every front. They are resolved in the background; the loops see finished
// lists only and never wait. When resolving fails, the last good list stays.
type fronts struct {
	server *Server
	known  []atomic.Pointer[[]netip.AddrPort] // by front
	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup // of the goroutines that stop ends
}

func newFronts(s *Server) *fronts {
	f := &fronts{server: s, known: make([]atomic.Pointer[[]netip.AddrPort], len(s.opts.Fronts))}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// addresses returns where the front can be dialled, the preferred family first; nil when its name has
// never been resolved. The list is shared and must not be changed.
func (f *fronts) addresses(front int) []netip.AddrPort {
	if list := f.known[front].Load(); list != nil {
		return *list
	}
	return nil
}

// errLoop is the answer to a front that leads back to ourselves: every stranger would make the proxy
// connect to itself until no descriptor is left.
var errLoop = errors.New("this is the proxy itself, so that every visitor would be sent in circles; name another site in the secret, or set [domain-fronting] host and port to where the real site is")

// resolveAll resolves every front once. Only a loop is an error: a resolver that is down at start may
// be back when the first stranger comes.
func (f *fronts) resolveAll() error {
	errs := make([]error, len(f.known))
	var all sync.WaitGroup
	for i := range f.known {
		all.Go(func() {
			if err := f.resolve(i); errors.Is(err, errLoop) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// refresh keeps the lists fresh until stop.
func (f *fronts) refresh() {
	for i := range f.known {
		if _, err := netip.ParseAddr(f.server.opts.Fronts[i].Host); err == nil {
			continue
		}
		f.done.Go(func() { f.keep(i) })
	}
}

func (f *fronts) keep(front int) {
	wait := resolveEvery
	if f.addresses(front) == nil {
		wait = resolveAgain
	}
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = resolveEvery
		if f.resolve(front) != nil {
			wait = resolveAgain
		}
	}
}

// resolve looks the front up and publishes what it found. Addresses of our own are refused.
func (f *fronts) resolve(front int) error {
	site := f.server.opts.Fronts[front]
	ctx, cancel := context.WithTimeout(f.ctx, resolveTimeout)
	defer cancel()
	list, err := lookup(ctx, site)
	if err != nil {
		f.server.report.frontUnresolved(site, f.addresses(front) != nil, err)
		return err
	}
	f.server.self.refresh()
	for _, a := range list {
		if f.server.self.contains(a) {
			err := fmt.Errorf("front %s resolves to %v: %w", site.Host, a, errLoop)
			f.server.report.frontUnresolved(site, f.addresses(front) != nil, err)
			return err
		}
	}
	list = f.server.opts.Prefer.Arrange(list)
	f.known[front].Store(&list)
	return nil
}

func lookup(ctx context.Context, site Front) ([]netip.AddrPort, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", site.Host)
	if err != nil {
		return nil, err
	}
	list := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		list[i] = netip.AddrPortFrom(a.Unmap(), site.Port)
	}
	return list, nil
}
