package scout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// scout looks at one front, again and again.
type scout struct {
	o     *Options
	front Front
	index int
	lim   limits
	turn  chan struct{} // holds a token per raid that is going on
	log   zerolog.Logger

	look   *Look // the last one published; nil before the first
	failed int   // raids since the last that lacked nothing
}

func newScout(o *Options, index int, lim limits, turn chan struct{}) *scout {
	f := o.Fronts[index]
	return &scout{
		o: o, front: f, index: index, lim: lim, turn: turn,
		log: o.Log.With().Str("front", f.ServerName).Logger(),
	}
}

// run publishes what an earlier process knew, then raids until ctx ends.
func (s *scout) run(ctx context.Context) {
	if n := len(s.front.ServerName); n == 0 || n > 255 {
		s.log.Warn().Msg("the front has no name to ask for, so it cannot be looked at")
		return
	}
	s.load()
	for wait := time.Duration(0); rest(ctx, wait); {
		if !s.raid(ctx) {
			return
		}
		wait = s.untilNext()
	}
}

// untilNext is short after a failure, but longer after each.
func (s *scout) untilNext() time.Duration {
	wait := s.o.Each
	if wait <= 0 {
		wait = defaultEach
	}
	if s.failed > 0 {
		wait = min(wait, retryMost, s.lim.retryFirst<<min(s.failed-1, 10))
	}
	return spread(wait, wait/10)
}

// raid looks once and publishes what it found; false when ctx ended.
func (s *scout) raid(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-s.turn }()
	limited, cancel := context.WithTimeout(ctx, s.lim.raidTime)
	defer cancel()

	r := raid{scout: s, addresses: s.front.Addresses()}
	err := r.run(limited)
	if ctx.Err() != nil {
		return false
	}
	if r.fruitful() {
		s.publish(r.sumUp(time.Now()))
		s.save()
	}
	s.count(err)
	return true
}

// count counts a raid that failed, be it in part, and says so when that begins and ends.
func (s *scout) count(err error) {
	switch {
	case err == nil && s.failed > 0:
		s.log.Info().Int("failures", s.failed).Msg("the front could be looked at again")
	case err != nil && s.failed == 0:
		s.log.Warn().Err(err).Bool("known", s.look != nil).
			Msg("the front could not be looked at, or only in part; what was known of the rest stays in use")
	case err != nil:
		s.log.Debug().Err(err).Msg("the front could not be looked at again")
	}
	if s.failed++; err == nil {
		s.failed = 0
	}
}

// publish hands a look out, and tells the operator what is new about it.
func (s *scout) publish(look *Look) {
	for _, p := range look.Problems {
		if s.look == nil || !slices.Contains(s.look.Problems, p) {
			s.log.Warn().Str("problem", p).Msg("the front has a flaw")
		}
	}
	s.look = look
	s.o.Publish(s.index, look)
}

// raid is one of them.
type raid struct {
	*scout
	findings
	addresses []netip.AddrPort // the one in use first
	failures  int              // in a row
	records   int              // of the downlink, in all traces
}

// errGivenUp ends a raid on a front that keeps failing.
var errGivenUp = errors.New("given up")

// run makes all observations, one connection at a time. What was found before an error is good.
func (r *raid) run(ctx context.Context) error {
	if len(r.addresses) == 0 {
		return errors.New("its address is not known")
	}
	r.addresses = r.addresses[:min(len(r.addresses), maxAddresses)]
	urls, follow := r.urls()
	for i := range max(r.o.Repeats, 1) {
		for k := range tlsfront.NumHelloKinds {
			if err := r.probe(ctx, tlsfront.HelloKind(k)); err != nil {
				return err
			}
		}
		if err := r.visit(ctx, turned(urls, i), follow, i, r.lim.pauses[i%len(r.lim.pauses)]); err != nil {
			return err
		}
		if r.look == nil && r.fruitful() { // better something early
			r.publish(r.sumUp(time.Now()))
		}
	}
	if len(r.traces) == 0 {
		return errors.New("nothing could be fetched")
	}
	return nil
}

// probe observes the answer to one hello.
func (r *raid) probe(ctx context.Context, kind tlsfront.HelloKind) error {
	return r.attempt(ctx, func(address netip.AddrPort) error {
		f, err := probeFlight(ctx, address, r.front.ServerName, kind, r.lim)
		if err == nil {
			r.flights[kind] = append(r.flights[kind], f)
		}
		return err
	})
}

// visit fetches all URLs, with as many connections as that takes: one ends when it has brought enough. Every other visit
// is ended by the server.
func (r *raid) visit(ctx context.Context, urls []*url.URL, follow bool, number int, pause time.Duration) error {
	for len(urls) > 0 {
		limit := min(r.lim.fetchBytes, r.lim.raidBytes-r.bytes)
		if limit < leastBytes {
			return nil
		}
		var f fetched
		err := r.attempt(ctx, func(address netip.AddrPort) (err error) {
			f, err = fetch(ctx, address, r.front.ServerName, plan{urls, follow, limit, pause, number%2 == 1}, r.lim)
			return err
		})
		if err != nil {
			return err
		}
		r.take(&f)
		if f.urls == 0 {
			return nil
		}
		urls = urls[f.urls:]
	}
	return nil
}

func (r *raid) take(f *fetched) {
	r.bytes += f.bytes
	for _, p := range f.problems {
		r.problem(p)
	}
	for _, b := range f.trace.Bursts {
		r.records += len(b.Records)
	}
	r.endings = append(r.endings, f.ending)
	if len(f.trace.Bursts) > 0 && r.records <= raidRecords {
		r.traces = append(r.traces, f.trace)
		r.tickets = append(r.tickets, f.tickets)
	}
}

// attempt makes one connection, at the next address when the first cannot be reached, and rests. A failure is noted; the
// error that ends the raid is returned when there were too many, or no more time.
func (r *raid) attempt(ctx context.Context, connect func(netip.AddrPort) error) error {
	err := connect(r.addresses[0])
	for errors.Is(err, errUnreachable) && len(r.addresses) > 1 && ctx.Err() == nil {
		r.addresses = r.addresses[1:]
		err = connect(r.addresses[0])
	}
	if !rest(ctx, spread(r.lim.between, r.lim.between/2)) {
		return ctx.Err()
	}
	if err == nil {
		r.failures = 0
		return nil
	}
	r.problem(withoutPort(err))
	if r.failures++; r.failures >= maxFailures {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return nil
}

// withoutPort leaves our own address out of an error, by which the same would look new each time.
func withoutPort(err error) string {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Source != nil {
		text = strings.ReplaceAll(text, op.Source.String()+"->", "")
	}
	return text
}

// problem notes one, once. Peers have a say in these texts, so they are made harmless.
func (f *findings) problem(text string) {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return '?'
		}
		return c
	}, text)
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	if len(f.problems) < maxProblems && !slices.Contains(f.problems, text) {
		f.problems = append(f.problems, text)
	}
}

// fruitful reports whether the raid saw anything of the front.
func (f *findings) fruitful() bool {
	return len(f.traces) > 0 || slices.ContainsFunc(f.flights[:], func(l []tlsfront.Flight) bool { return len(l) > 0 })
}

// sumUp makes a look. Of what the raid could not see, the previous look's part stays.
func (r *raid) sumUp(at time.Time) *Look {
	l := &Look{Source: SourceRaid, At: at}
	var before *tlsfront.Profile
	if r.look != nil {
		before, l.Shape = r.look.TLS, r.look.Shape
	}
	l.TLS = r.profile(before)
	if m := doppel.Learn(r.traces, r.o.DRS); m != nil {
		l.Shape = m
	}
	for _, p := range judge(l.TLS) {
		r.problem(p)
	}
	l.Problems = slices.Clone(r.problems)
	return l
}

// urls returns what to fetch, and whether to fetch what the page shows as well.
func (r *raid) urls() (list []*url.URL, follow bool) {
	root := &url.URL{Scheme: "https", Host: authority(r.front.ServerName), Path: "/"}
	for _, raw := range r.front.URLs {
		u, err := root.Parse(raw)
		switch {
		case err != nil:
			r.problem(fmt.Sprintf("urls: %v", err))
		case !sameSite(u, r.front.ServerName):
			r.problem(fmt.Sprintf("urls: %s is not on https://%s, so the front has no such thing", u.Redacted(), root.Host))
		case len(list) < maxURLs:
			list = append(list, u)
		}
	}
	if len(list) == 0 {
		return []*url.URL{root}, true
	}
	return list, false
}

// authority is a host as a URL has it.
func authority(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		return "[" + host + "]"
	}
	return host
}

// turned returns the list from its element i on, and then those before.
func turned[T any](list []T, i int) []T {
	i %= len(list)
	return slices.Concat(list[i:], list[:i])
}

// spread draws a duration of mean d, at most by away from it.
func spread(d, by time.Duration) time.Duration {
	return d - by + rand.N(2*by+1)
}

// rest waits, and reports whether ctx goes on.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
