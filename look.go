package main

import (
	"context"
	"net/netip"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"mtrelay/conf"
	"mtrelay/doppel"
	"mtrelay/doppel/scout"
	"mtrelay/loop"
	"mtrelay/relay"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

// imitate has sessions look like their fronts, by what the scout finds out, until ctx ends. Nothing waits for it: until
// a front was seen, its sessions look like a common server.
func imitate(ctx context.Context, c *conf.Config, server *loop.Server, counters *stats.Stats, log zerolog.Logger) {
	d := &c.Doppelganger
	if !d.Enabled {
		return
	}
	scout.Run(ctx, scout.Options{
		Fronts:   sites(c, server),
		Each:     d.Each,
		Repeats:  d.Repeats,
		DRS:      doppel.DRS(d.DRS),
		StateDir: stateDirectory(c),
		Log:      log,
		Publish: func(front int, seen *scout.Look) {
			look := &relay.Look{TLS: seen.TLS, Shape: shapeOf(seen.Shape, seen.TLS != nil && len(seen.TLS.Tickets) > 0, d)}
			server.SetLook(front, look)
			known := lookSummary(seen, look)
			counters.SetLook(front, known)
			logLook(log, c.Sites()[front], known)
		},
	})
}

// sites are the fronts that sessions imitate: the first ones of the server's.
func sites(c *conf.Config, server *loop.Server) (list []scout.Front) {
	for i, name := range c.Sites() {
		list = append(list, scout.Front{
			ServerName: name,
			Addresses:  func() []netip.AddrPort { return server.FrontAddresses(i) },
			URLs:       c.Doppelganger.URLsOf(name),
		})
	}
	return list
}

// shapeOf returns the model that sessions follow; nil when it has nothing to say, so that they need not ask it.
func shapeOf(m *doppel.Model, tickets bool, d *conf.Doppelganger) *doppel.Model {
	if m == nil {
		return nil
	}
	if q := m.Quality(); q.Starts == 0 && q.Steady == 0 && q.Tail == 0 && d.DRS != conf.DRSOn {
		if tickets { // which have their lengths whatever follows
			return doppel.Default()
		}
		return nil // responses of one record each: their lengths are those of pages, not a server's choice
	}
	return m.Scaled(d.MinRate)
}

// stateDirectory is the configured one, or that of the service: systemd gives the list of StateDirectory=
// (systemd.exec(5)).
func stateDirectory(c *conf.Config) string {
	if c.StateDirectory != "" {
		return c.StateDirectory
	}
	first, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	return first
}

// lookSummary says in the counters' terms what is known of a front.
func lookSummary(seen *scout.Look, look *relay.Look) stats.Look {
	s := stats.Look{
		At: seen.At, Source: stats.LookRaid, Shaped: look.Shape != nil, Problems: len(seen.Problems),
		TLS13: seen.TLS != nil && seen.TLS.Flights[tlsfront.HelloHybrid].OK,
	}
	if seen.Source == scout.SourceState {
		s.Source = stats.LookState
	}
	if seen.Shape != nil {
		q := seen.Shape.Quality()
		s.Connections, s.Bursts, s.Records = q.Connections, q.Bursts, q.Records
	}
	return s
}

func logLook(log zerolog.Logger, front string, s stats.Look) {
	log.Debug().Str("front", front).Stringer("source", s.Source).Time("seen", s.At).Bool("tls13", s.TLS13).Bool("shaped", s.Shaped).
		Int("connections", s.Connections).Int("bursts", s.Bursts).Int("records", s.Records).Int("problems", s.Problems).
		Msg("sessions look like the front now")
}
