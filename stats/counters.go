// Package stats holds every number that an operator can watch and serves them over HTTP: /metrics for
// Prometheus, /stats as JSON, /healthz for supervisors.
//
// Counters are made once, in New, and counted through pointers and slices indexed by enumeration values: a
// count is one atomic addition and allocates nothing. Label values come from closed sets that New is given,
// never from a peer, so the number of series does not grow while the proxy runs.
package stats

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Labels are the closed sets of label values. The index in a set is the value of the caller's enumeration.
// A reason named "" is counted but not shown; it is for a zero value such as "not ended".
type Labels struct {
	States       []string // of a session; the one named "relay" makes a connection count as relayed
	FrontReasons []string // why a client went to the front
	EndReasons   []string // why a session ended
	DCs          []string // "1" … "5", "203", and whatever stands for the rest
	Secrets      []string // as the operator named them
	Fronts       []string // hosts, as the configuration names them, that sessions are to look like; none when they look like no front
}

// relayState is the state in which a connection is what the operator is here for.
const relayState = "relay"

// Limit is a cap that refuses a new connection.
type Limit uint8

const (
	Concurrency Limit = iota // connections in all
	Unproven                 // connections that have not yet proven to hold a secret
	Fronted                  // connections spliced to the front
	numLimits
)

var limitNames = [numLimits]string{"concurrency", "unproven", "fronted"}

// String returns the metric label.
func (l Limit) String() string { return limitNames[l] }

// acceptErrnos are the errors of accept that are told apart; the rest count as "other".
var acceptErrnos = map[syscall.Errno]string{
	syscall.EMFILE:       "EMFILE",
	syscall.ENFILE:       "ENFILE",
	syscall.ENOBUFS:      "ENOBUFS",
	syscall.ENOMEM:       "ENOMEM",
	syscall.ECONNABORTED: "ECONNABORTED",
	syscall.EPERM:        "EPERM", // a firewall rule
}

// otherErrno is none that a system call returns.
const otherErrno syscall.Errno = 0

// dialBuckets are upper bounds in seconds, from a DC next door to a connect deadline.
var dialBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// Upstream counts what goes to one DC, or to the front.
type Upstream struct {
	Up, Down     *metrics.Counter // bytes from the client to the upstream, and from there to the client
	DialFailures *metrics.Counter // addresses that refused or did not answer in time
	DialSeconds  *metrics.PrometheusHistogram
}

// Dialed counts an attempt to connect to one address that ended after took.
func (u *Upstream) Dialed(took time.Duration, ok bool) {
	if !ok {
		u.DialFailures.Inc()
		return
	}
	u.DialSeconds.Update(took.Seconds())
}

// Stats holds the counters of one process. The exported fields are set by New and must not be replaced; what
// they point to is safe for concurrent use.
type Stats struct {
	Accepted    *metrics.Counter            // connections taken from a listener and let in
	Refused     [numLimits]*metrics.Counter // not let in, or ended later, by Limit
	Connections []*metrics.Gauge            // open ones by state; see Move

	Handshakes       *metrics.Counter   // ClientHellos accepted
	ToFront          []*metrics.Counter // clients sent to the front, by reason
	FrontUnreachable *metrics.Counter   // clients for whom no address of the front answered
	Ended            []*metrics.Counter // sessions by the reason of their end
	Dozed            *metrics.Counter   // times that a quiet session gave up its ciphers

	DCs     []Upstream // by DC
	Front   Upstream
	Secrets []*Secret // by secret

	version      string
	looks        []atomic.Pointer[Look] // by front
	labels       Labels
	relayed      int // index of relayState
	acceptErrors map[syscall.Errno]*metrics.Counter
	set          *metrics.Set
	now          func() time.Time
	start        time.Time
	memory       memory
	base         usage // see Baseline
	server       *http.Server
}

// New makes all counters. It panics when l has no state named "relay" or a name twice.
func New(version string, l Labels) *Stats {
	return newStats(version, l, memory{root: os.DirFS("/"), pageSize: os.Getpagesize()}, time.Now)
}

// newStats is New with what it asks of the system.
func newStats(version string, l Labels, m memory, now func() time.Time) *Stats {
	set := metrics.NewSet()
	s := &Stats{
		version: version, labels: l, relayed: slices.Index(l.States, relayState),
		set: set, now: now, start: now(), server: newServer(), memory: m,

		Accepted:         set.NewCounter("mtrelay_accepted_total"),
		Handshakes:       set.NewCounter(series("mtrelay_handshakes_total", "verdict", "accepted")),
		FrontUnreachable: set.NewCounter("mtrelay_front_unreachable_total"),
		ToFront:          counters(set, l.FrontReasons, "mtrelay_handshakes_total", "reason", "verdict", "front"),
		Dozed:            set.NewCounter("mtrelay_sessions_dozed_total"),
		Ended:            counters(set, l.EndReasons, "mtrelay_sessions_ended_total", "reason"),
		Front:            newUpstream(set, "traffic", "front"),
		Secrets:          newSecrets(set, l.Secrets),

		looks: make([]atomic.Pointer[Look], len(l.Fronts)),
	}
	if s.relayed < 0 {
		panic("stats: internal error: no state is named " + relayState)
	}
	copy(s.Refused[:], counters(set, limitNames[:], "mtrelay_refused_total", "limit"))
	for _, state := range l.States {
		s.Connections = append(s.Connections, set.NewGauge(series("mtrelay_connections", "state", state), nil))
	}
	for _, dc := range l.DCs {
		s.DCs = append(s.DCs, newUpstream(set, "traffic", "relay", "dc", dc))
	}
	s.acceptErrors = newAcceptErrors(set)
	s.set.NewGauge(series("mtrelay_info", "version", version), func() float64 { return 1 })
	s.set.NewGauge("mtrelay_start_time_seconds", func() float64 { return float64(s.start.Unix()) })
	s.Baseline()
	return s
}

func newUpstream(set *metrics.Set, labels ...string) Upstream {
	direction := func(d string) string {
		return series("mtrelay_bytes_total", append([]string{"direction", d}, labels...)...)
	}
	return Upstream{
		Up:           set.NewCounter(direction("up")),
		Down:         set.NewCounter(direction("down")),
		DialFailures: set.NewCounter(series("mtrelay_dial_failures_total", labels...)),
		DialSeconds:  set.NewPrometheusHistogramExt(series("mtrelay_dial_seconds", labels...), dialBuckets),
	}
}

func newAcceptErrors(set *metrics.Set) map[syscall.Errno]*metrics.Counter {
	m := map[syscall.Errno]*metrics.Counter{
		otherErrno: set.NewCounter(series("mtrelay_accept_errors_total", "errno", "other")),
	}
	for errno, name := range acceptErrnos {
		m[errno] = set.NewCounter(series("mtrelay_accept_errors_total", "errno", name))
	}
	return m
}

// counters makes a counter for each of names, the values of label.
func counters(set *metrics.Set, names []string, metric, label string, more ...string) []*metrics.Counter {
	all := make([]*metrics.Counter, len(names))
	for i, name := range names {
		if name == "" {
			all[i] = new(metrics.Counter)
			continue
		}
		all[i] = set.NewCounter(series(metric, append(slices.Clip(more), label, name)...))
	}
	return all
}

// series returns a metric's name with its labels, given as pairs of name and value.
func series(metric string, pairs ...string) string {
	var labels []string
	for pair := range slices.Chunk(pairs, 2) {
		labels = append(labels, pair[0]+"="+strconv.Quote(pair[1]))
	}
	return metric + "{" + strings.Join(labels, ",") + "}"
}

// Move counts a connection that went from one state to another. The new one is entered first, so that a
// total read in between is never too low.
func (s *Stats) Move(from, to int) {
	s.Connections[to].Inc()
	s.Connections[from].Dec()
}

// AcceptError counts a failed accept.
func (s *Stats) AcceptError(errno syscall.Errno) {
	c, ok := s.acceptErrors[errno]
	if !ok {
		c = s.acceptErrors[otherErrno]
	}
	c.Inc()
}

// WatchReplay shows the size of the replay window. Both functions are called on each scrape, from any
// goroutine. To be called at most once.
func (s *Stats) WatchReplay(entries, bytes func() int) {
	s.set.NewGauge("mtrelay_replay_entries", gauge(entries))
	s.set.NewGauge("mtrelay_replay_bytes", gauge(bytes))
}

func gauge(f func() int) func() float64 { return func() float64 { return float64(f()) } }
