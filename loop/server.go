// Package loop owns every socket: listeners, clients and upstreams. One loop per processor moves bytes
// between the kernel and the sessions of package relay, which decide and never touch a socket.
//
// A turn of the loop is one event of the poller: the clock is read, the event's owner acts (accepts,
// takes a dial result, or moves a pair's bytes as far as both sides allow), the timer is armed for the
// next deadline. What is left over is on the ready list and continues in the next batch of events.
package loop

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/logging"

	"mtrelay/relay"
	"mtrelay/relay/chunk"
	"mtrelay/tlsfront"
)

// places are what a limit counts, over all loops.
type places struct{ taken atomic.Int64 }

// take takes a place and tells whether one was free.
func (p *places) take(limit int) bool {
	if p.taken.Add(1) > int64(limit) {
		p.taken.Add(-1)
		return false
	}
	return true
}

func (p *places) leave() { p.taken.Add(-1) }

// A Server is a running proxy: its loops and what they share.
type Server struct {
	opts    Options
	report  *reporter
	fronts  *fronts
	self    *ownAddresses
	looks   []atomic.Pointer[relay.Look] // by front; what the scout has seen of it
	frontOf []int                        // by secret
	loops   []*loop
	sockets table // of all loops
	bound   []netip.AddrPort

	clients  places // connected
	unproven places // of those, without a verdict yet
	fronted  places // connections to fronts

	running sync.WaitGroup
	mu      sync.Mutex // held while loops are told something, so that none is told anything after stop
	stopped bool
	closed  sync.Once
}

// Start binds every address and serves. It fails when an address cannot be bound or when a front leads
// back to ourselves, and leaves nothing behind then.
func Start(opts Options) (*Server, error) {
	s := &Server{opts: opts, report: newReporter(&opts)}
	logging.SetDefaultLoggerAndFlusher(pollerLog{opts.Log}, nil)
	if s.opts.Loops == 0 {
		s.opts.Loops = runtime.GOMAXPROCS(0)
	}
	bound, err := bindAll(&s.opts)
	if err != nil {
		return nil, err
	}
	if err := s.open(bound); err != nil {
		bound.close()
		s.abandon()
		return nil, err
	}
	if needed := s.opts.fitDescriptors(); needed > 0 {
		s.report.concurrencyLowered(s.opts.MaxConnections, needed)
	}
	for _, l := range s.loops {
		s.running.Go(l.run)
	}
	if err := s.fronts.start(); err != nil {
		s.Close()
		return nil, err
	}
	s.fronts.refresh()
	return s, nil
}

// open makes the loops and hands each its share of the listeners.
func (s *Server) open(bound boundSockets) error {
	s.bound = bound.addresses
	s.self = newOwnAddresses(s.bound, s.opts.Public)
	s.fronts = newFronts(s)
	s.mapFronts()
	for i := range s.opts.Loops {
		l, err := newLoop(s)
		if err != nil {
			return fmt.Errorf("open event loop: %w", err)
		}
		s.loops = append(s.loops, l)
		for j, fd := range bound.perLoop[i] {
			bound.perLoop[i] = bound.perLoop[i][1:] // this one is the loop's now
			if err := l.listen(fd, s.bound[j]); err != nil {
				return fmt.Errorf("listen on %v: %w", s.bound[j], err)
			}
		}
	}
	return nil
}

// mapFronts finds the front of each secret, and gives it a look that knows nothing.
func (s *Server) mapFronts() {
	s.looks = make([]atomic.Pointer[relay.Look], len(s.opts.Fronts))
	for i := range s.looks {
		s.looks[i].Store(new(relay.Look))
	}
	names := s.frontNames()
	byName := relay.NewFronts(names, s.opts.DefaultFront)
	for _, secret := range s.opts.Secrets {
		s.frontOf = append(s.frontOf, byName.Index(secret.Host))
	}
}

func (s *Server) frontNames() []string {
	names := make([]string, len(s.opts.Fronts))
	for i, f := range s.opts.Fronts {
		names[i] = f.ServerName
	}
	return names
}

// abandon closes what open made before it failed.
func (s *Server) abandon() {
	for _, l := range s.loops {
		l.closeAll()
		_ = l.poller.Close()
	}
	s.fronts.stop()
}

// earlyFront is how long a client may be silent before its front is connected (DESIGN: a silent probe is to
// end when the site would end it).
const earlyFront = time.Second

// newEnv returns what the sessions of one loop share.
func (s *Server) newEnv(chunks *chunk.Pool) relay.Env {
	o := &s.opts
	secrets := append(slices.Clip(o.Secrets), s.fronts.probes.secret())
	return relay.Env{
		Secrets:   secrets,
		Probe:     len(o.Secrets),
		Gate:      tlsfront.NewGate(secrets, o.Tolerance, o.Replay, rand.Reader),
		Chunks:    chunks,
		DCs:       o.DCs,
		Fronts:    relay.NewFronts(s.frontNames(), o.DefaultFront),
		Rand:      rand.Reader,
		Random:    mathrand.New(mathrand.NewPCG(seed(), seed())),
		Look:      s.lookOf,
		Reencrypt: o.Reencrypt,
		Early:     earlyFront,
		Handshake: o.Handshake,
		Idle:      o.Idle,
		Linger:    o.Linger,
	}
}

func seed() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// lookOf returns what the holders of a secret are shown.
func (s *Server) lookOf(secret int) *relay.Look { return s.looks[s.frontOf[secret]].Load() }

// SetLook has sessions follow what has been seen of a front, those that are under way too. Safe for concurrent use.
func (s *Server) SetLook(front int, look *relay.Look) { s.looks[front].Store(look) }

// FrontAddresses returns where a front is at present; none when that is not known.
func (s *Server) FrontAddresses(front int) []netip.AddrPort {
	list, _ := s.fronts.addresses(front)
	return list
}

// Addresses returns what is listened on, in the order of Options.Listen; a port 0 there is resolved here.
func (s *Server) Addresses() []netip.AddrPort { return s.bound }

// Clients returns the number of connected clients.
func (s *Server) Clients() int { return int(s.clients.taken.Load()) }

// Healthy returns an error that names a listener which does not accept at the moment.
func (s *Server) Healthy() error { return s.report.healthy() }

// Drain stops accepting, lets sessions end by themselves until the time is up, and closes the rest.
// It returns when every loop has ended. Close may be called meanwhile to cut it short.
func (s *Server) Drain(limit time.Duration) {
	s.tell((*loop).drain)
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for _, l := range s.loops {
		select {
		case <-l.empty:
		case <-timeout.C:
			s.Close()
			return
		}
	}
	s.Close()
}

// Close ends everything at once and returns when every loop has ended.
func (s *Server) Close() {
	s.fronts.stop()
	s.stopLoops()
	s.running.Wait()
	s.fronts.done.Wait()
	// The pollers outlive their loops: one that was being told to stop may have ended before the wake-up
	// was written to it.
	s.closed.Do(func() {
		for _, l := range s.loops {
			_ = l.poller.Close()
		}
	})
}

// tell has every loop run f, unless they were stopped.
func (s *Server) tell(f func(*loop)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	for _, l := range s.loops {
		l.call(f)
	}
}

func (s *Server) stopLoops() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	for _, l := range s.loops {
		l.stop()
	}
}
