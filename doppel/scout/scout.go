// Package scout looks at the fronts from outside, as a visitor does: how each answers a Telegram client's ClientHello,
// and how it sizes and spaces the records of its pages. What it finds is handed out as finished, immutable Looks.
//
// It runs errands (sockets, files, goroutines) beside the loops, which never wait for it. A front is a stranger here:
// whatever it sends is bounded in bytes, records and time, and at worst yields no look.
package scout

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// Front is a site to be looked at.
type Front struct {
	ServerName string                  // the SNI, and the host of the URLs; 1 to 255 bytes
	Addresses  func() []netip.AddrPort // where fronting would dial now, the preferred first; empty when unknown. Called at each raid
	URLs       []string                // what to fetch, absolute (https, the same host) or a path; empty: the root page and, when it is small, what it shows
}

// Options say what to look at and how often. Each and Repeats below 1 are taken for hourly and once.
type Options struct {
	Fronts   []Front
	Each     time.Duration // between two raids on a front
	Repeats  int           // of every observation in a raid
	DRS      doppel.DRS
	StateDir string // where looks outlive the process; "" for nowhere
	Log      zerolog.Logger
	// Publish gets each new look, one call at a time for a front, calls for different fronts at once.
	Publish func(front int, look *Look)
}

// Look is what is known of a front. Immutable.
type Look struct {
	TLS      *tlsfront.Profile
	Shape    *doppel.Model // nil when nothing could be learned
	Source   string        // SourceRaid or SourceState
	At       time.Time     // when the front was seen so
	Problems []string      // what an operator should know, a sentence each
}

// Sources of a Look.
const (
	SourceRaid  = "raid"
	SourceState = "state" // stored by an earlier process
)

// Run looks at all fronts until ctx ends: at once, and then again and again. It returns when nothing of it runs any more.
func Run(ctx context.Context, o Options) {
	run(ctx, o, defaultLimits)
}

func run(ctx context.Context, o Options, lim limits) {
	turn := make(chan struct{}, maxRaids)
	var all sync.WaitGroup
	for i := range o.Fronts {
		s := newScout(&o, i, lim, turn)
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
}
