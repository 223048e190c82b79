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

// fronts knows the addresses of every front. They are resolved and probed in the background; the loops see
// finished lists only and never wait. When that fails, the last good list stays.
type fronts struct {
	server   *Server
	known    []atomic.Pointer[[]netip.AddrPort] // by front
	starting atomic.Bool                        // the first lists are still being made
	probes   *probes
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup // of the goroutines that stop ends
}

func newFronts(s *Server) *fronts {
	f := &fronts{
		server: s,
		known:  make([]atomic.Pointer[[]netip.AddrPort], len(s.opts.Fronts)),
		probes: newProbes(),
	}
	f.starting.Store(true)
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// addresses returns where the front can be dialled, the preferred family first; none when that is not known.
// The list is shared and must not be changed. pending: ask again in a moment.
func (f *fronts) addresses(front int) (list []netip.AddrPort, pending bool) {
	if list := f.known[front].Load(); list != nil {
		return *list, false
	}
	return nil, f.starting.Load()
}

// errLoop is the answer to a front that leads back to ourselves: every stranger would make the proxy
// connect to itself until no descriptor is left.
var errLoop = errors.New("this leads back to the proxy itself, so that every visitor would be sent in circles; name another site in the secret, or set [domain-fronting] host and port to where the real site is")

// start finds every front once, while the loops serve already. Only a loop is an error: a resolver or a
// front that is down at start may be back when the first stranger comes.
func (f *fronts) start() error {
	defer f.starting.Store(false)
	errs := make([]error, len(f.known))
	var all sync.WaitGroup
	for i := range f.known {
		all.Go(func() {
			if err := f.find(i); errors.Is(err, errLoop) {
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
		f.done.Go(func() { f.keep(i) })
	}
}

func (f *fronts) keep(front int) {
	wait := resolveEvery
	if f.known[front].Load() == nil {
		wait = resolveAgain
	}
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = resolveEvery
		if f.find(front) != nil {
			wait = resolveAgain
		}
	}
}

// errFamily is the answer to a front that prefer-ip leaves no address of.
var errFamily = errors.New("it has no address of the family that prefer-ip allows")

// find looks the front up, leaves out what is the proxy itself, and publishes where the front is.
func (f *fronts) find(front int) error {
	site := f.server.opts.Fronts[front]
	list, err := f.lookup(site)
	if err == nil {
		list, err = f.usable(site, list)
	}
	if errors.Is(err, errLoop) {
		f.known[front].Store(nil)
	}
	if err != nil {
		f.server.report.frontNotFound(site, f.known[front].Load() != nil, err)
		return err
	}
	f.known[front].Store(&list)
	return nil
}

// usable returns the addresses that do not lead back to the proxy, the preferred family first. It fails when
// none is left.
func (f *fronts) usable(site Front, list []netip.AddrPort) ([]netip.AddrPort, error) {
	list = f.server.opts.Prefer.Arrange(list)
	if len(list) == 0 {
		return nil, fmt.Errorf("front %s: %w", site.Host, errFamily)
	}
	f.server.self.refresh()
	loops := make([]bool, len(list))
	var all sync.WaitGroup
	for i, a := range list {
		all.Go(func() { loops[i] = f.server.self.contains(a) || f.leadsBack(site, a) })
	}
	all.Wait()
	var good []netip.AddrPort
	var err error
	for i, a := range list {
		if !loops[i] {
			good = append(good, a)
			continue
		}
		err = fmt.Errorf("front %s at %v: %w", site.Host, a, errLoop)
	}
	if len(good) == 0 {
		return nil, err
	}
	if err != nil {
		f.server.report.frontAvoided(err)
	}
	return good, nil
}

func (f *fronts) lookup(site Front) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(f.ctx, resolveTimeout)
	defer cancel()
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
