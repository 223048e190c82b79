package loop

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/stats"
)

// A reporter counts and logs for all loops: the sessions and the loops say what happened, only this
// file says how it is shown. Safe for concurrent use.
type reporter struct {
	log      zerolog.Logger
	stats    *stats.Stats
	limits   limits
	refusals refusals

	mu     sync.Mutex
	paused map[netip.AddrPort]int // listeners that do not accept, with the number of loops concerned
}

func newReporter(o *Options) *reporter {
	return &reporter{log: o.Log, stats: o.Stats, refusals: newRefusals(), paused: make(map[netip.AddrPort]int)}
}

// A topic is what a rate-limited line is about. The set is closed, so that peers cannot grow it.
type topic uint8

const (
	topicAccept topic = iota
	topicDialDC
	topicDialFront
	topicSelfLoop
	topicUnresolved
	topicRefused // and one for each limit behind it
	topics       = topicRefused + topic(stats.Fronted) + 1
)

// limitEvery is how often a line on one topic is printed at most; the next one tells how many were not.
const limitEvery = 10 * time.Second

type limits struct {
	mu         sync.Mutex
	last       [topics]time.Time
	suppressed [topics]int
}

// allow tells whether a line on t is due, and how many were suppressed since the last.
func (l *limits) allow(t topic, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last[t]) < limitEvery {
		l.suppressed[t]++
		return 0, false
	}
	suppressed, l.suppressed[t], l.last[t] = l.suppressed[t], 0, now
	return suppressed, true
}

// warn returns a line on t, or nil, which zerolog takes for a line not to be written.
func (r *reporter) warn(t topic) *zerolog.Event {
	suppressed, ok := r.limits.allow(t, time.Now())
	if !ok {
		return nil
	}
	e := r.log.Warn()
	if suppressed > 0 {
		e = e.Int("more", suppressed)
	}
	return e
}

// limitTexts say to an operator what was refused, and what it is that limits it.
var limitTexts = map[stats.Limit]string{
	stats.Concurrency: "refused a connection: as many are open as concurrency allows",
	stats.Unproven:    "refused a connection: too many have not shown yet whether they hold a secret",
	stats.Fronted:     "refused a visitor of the front: as many are there as [domain-fronting] max-connections allows",
}

// concurrencyLowered tells that there are fewer descriptors than concurrency takes.
func (r *reporter) concurrencyLowered(to int, needed uint64) {
	r.log.Warn().Int("concurrency", to).Uint64("needed", needed).
		Msg("concurrency is lowered to what the limit of open files allows; raise that (ulimit -n, or LimitNOFILE= in the unit file) to what is needed")
}

// refused tells of a client that got RST because of a limit.
func (r *reporter) refused(by stats.Limit, client netip.AddrPort, limit int) {
	r.stats.Refused[by].Inc()
	r.warn(topicRefused+topic(by)).Stringer("client", client).Int("limit", limit).Msg(limitTexts[by])
}

func (r *reporter) acceptFailed(err error) {
	errno, _ := err.(syscall.Errno)
	r.stats.AcceptError(errno)
	r.warn(topicAccept).Err(err).Msg("a connection could not be accepted")
}

// watchFailed tells that the poller took a descriptor no more (fs.epoll.max_user_watches).
func (r *reporter) watchFailed(err error) {
	r.warn(topicAccept).Err(err).Msg("a connection could not be watched")
}

// listenerPaused keeps what healthy reports.
func (r *reporter) listenerPaused(address netip.AddrPort, paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if paused {
		r.paused[address]++
	} else if r.paused[address]--; r.paused[address] == 0 {
		delete(r.paused, address)
	}
}

// healthy returns an error that names a listener which does not accept at the moment.
func (r *reporter) healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for address := range r.paused {
		return fmt.Errorf("%v does not accept connections at the moment; the log says why", address)
	}
	return nil
}

func (r *reporter) dialFailed(p *pair, target netip.AddrPort, took time.Duration, err error) {
	p.counted().Dialed(took, false)
	if p.fronted {
		r.warn(topicDialFront).Stringer("address", target).Err(err).Msg("the front did not answer")
		return
	}
	r.warn(topicDialDC).Int("dc", p.session.DC()).Stringer("address", target).Err(err).Msg("a DC did not answer")
}

func (r *reporter) selfLoop(target netip.AddrPort) {
	r.warn(topicSelfLoop).Stringer("address", target).Msg("not dialled: this address is the proxy itself")
}

func (r *reporter) frontNotFound(f Front, known bool, err error) {
	what := "the front cannot be found: its visitors are turned away until it can"
	if known {
		what = "the front cannot be found: its last known addresses stay in use"
	}
	r.warn(topicUnresolved).Str("front", f.Host).Err(err).Msg(what)
}

func (r *reporter) frontAvoided(err error) {
	r.warn(topicSelfLoop).Err(err).Msg("an address of the front is left out")
}

func (r *reporter) loopFailed(err error) {
	r.log.Error().Err(err).Msg("an event loop ended by itself")
}

// pollerLog hands what gnet's poller has to say to our log; it would write to standard output.
type pollerLog struct{ log zerolog.Logger }

func (p pollerLog) Debugf(format string, args ...any) { p.log.Debug().Msgf(format, args...) }
func (p pollerLog) Infof(format string, args ...any)  { p.log.Debug().Msgf(format, args...) }
func (p pollerLog) Warnf(format string, args ...any)  { p.log.Warn().Msgf(format, args...) }
func (p pollerLog) Errorf(format string, args ...any) { p.log.Error().Msgf(format, args...) }
func (p pollerLog) Fatalf(format string, args ...any) { p.log.Error().Msgf(format, args...) }
