package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"mtrelay/conf"
	"mtrelay/loop"
	"mtrelay/relay"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

type serve struct {
	Config string `arg:"" optional:"" default:"config.toml" help:"Configuration file."`
	Links  bool   `help:"Print the links even if standard output is not a terminal."`
}

// Run serves until SIGINT or SIGTERM, then lets the sessions finish for a while. A second signal ends at once.
func (s serve) Run(on console) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)

	c, warnings, err := loadConfig(s.Config)
	if err != nil {
		return err
	}
	log := newLog(on, c.Debug)
	for _, w := range warnings {
		log.Warn().Msg(w)
	}
	tuneMemory()
	running, err := startUnless(signals, c, log)
	if running == nil {
		return err
	}
	server, counters := running.server, running.counters
	ctx, stopLooking := context.WithCancel(context.Background())
	defer stopLooking()
	var looking sync.WaitGroup
	looking.Go(func() { imitate(ctx, c, server, counters, log) })
	looking.Go(func() { running.accepted.keep(ctx) })
	if err := s.announce(on, c, server, log); err != nil {
		return err
	}
	received := <-signals
	log.Info().Stringer("signal", received).Int("clients", server.Clients()).Stringer("limit", c.Network.Timeout.Drain).
		Msg("stopping: no new clients, the present ones may finish; a second signal ends at once")
	go func() {
		<-signals
		server.Close()
	}()
	stopLooking()
	server.Drain(c.Network.Timeout.Drain)
	looking.Wait()
	running.accepted.finish()
	return counters.Close()
}

// service is what runs while the proxy serves.
type service struct {
	server   *loop.Server
	counters *stats.Stats
	accepted *replayFile
}

// startUnless is start, which may have to wait for a front, but for a signal that comes meanwhile: then there is
// neither a service nor an error.
func startUnless(signals <-chan os.Signal, c *conf.Config, log zerolog.Logger) (*service, error) {
	type started struct {
		service *service
		err     error
	}
	result := make(chan started, 1)
	go func() {
		service, err := start(c, log)
		result <- started{service, err}
	}()
	select {
	case r := <-result:
		return r.service, r.err
	case s := <-signals:
		log.Info().Stringer("signal", s).Msg("stopped before it served")
		return nil, nil
	}
}

// start serves clients, and the counters if the configuration wants them served.
func start(c *conf.Config, log zerolog.Logger) (*service, error) {
	counters := stats.New(versionText(), labels(c))
	ln, err := listenStats(c)
	if err != nil {
		return nil, err
	}
	o := options(c, counters, log)
	accepted := openReplay(stateDirectory(c), o.Replay, log)
	server, err := loop.Start(o)
	if err != nil {
		return nil, err
	}
	counters.Baseline()
	go tidyMemory(counters.Dozed.Get)
	if ln != nil {
		go func() {
			if err := counters.Serve(ln, c.Stats.MetricsPath, server.Healthy); err != nil {
				log.Error().Err(err).Msg("the counters are not served any more")
			}
		}()
	}
	return &service{server, counters, accepted}, nil
}

// labels are the closed sets of the counters' labels.
func labels(c *conf.Config) stats.Labels {
	l := loop.StatsLabels(secrets(c))
	if c.Doppelganger.Enabled {
		l.Fronts = c.Sites()
	}
	return l
}

func listenStats(c *conf.Config) (net.Listener, error) {
	if !c.Stats.BindTo.IsValid() {
		return nil, nil
	}
	ln, err := net.Listen("tcp", c.Stats.BindTo.String())
	if err != nil {
		return nil, fmt.Errorf("[stats] bind-to: %w: choose another address, or set it to \"\"", err)
	}
	return ln, nil
}

// Of all connections one in unprovenShare, but at least minUnproven, may not have shown yet what they are. A
// client needs a round trip for it, so that this many let thousands in per second.
const (
	unprovenShare = 4
	minUnproven   = 64
)

// options says in the loop's terms what the configuration says.
func options(c *conf.Config, counters *stats.Stats, log zerolog.Logger) loop.Options {
	prefer := relay.Prefer(c.PreferIP)
	fronts, fallback := fronts(c)
	n := &c.Network
	return loop.Options{
		Listen:         c.BindTo,
		Public:         publicAddresses(c),
		ReusePort:      c.ReusePort,
		Loops:          c.Loops,
		MaxConnections: c.Concurrency,
		MaxUnproven:    max(minUnproven, c.Concurrency/unprovenShare),
		MaxFronted:     c.DomainFronting.MaxConnections,
		Secrets:        secrets(c),
		Tolerance:      c.TolerateTimeSkewness,
		Replay:         replay(c, counters),
		Fronts:         fronts,
		DefaultFront:   fallback,
		DCs:            relay.NewDCTable(c.DC.Addresses, c.DC.Rest, prefer, c.AllowFallbackOnUnknownDC),
		Prefer:         prefer,
		Reencrypt:      c.Reencrypt,
		Handshake:      n.Timeout.Handshake,
		Connect:        n.Timeout.Dial,
		Idle:           n.Timeout.Idle,
		Linger:         n.Timeout.Linger,
		Socket: loop.SocketOptions{
			KeepAlive:         !n.KeepAlive.Disabled,
			KeepAliveIdle:     n.KeepAlive.Idle,
			KeepAliveInterval: n.KeepAlive.Interval,
			KeepAliveCount:    n.KeepAlive.Count,
			UserTimeout:       n.UserTimeout,
			NotSentLowat:      n.NotSentLowat,
			WindowClamp:       n.WindowClamp,
		},
		Stats: counters,
		Log:   log,
	}
}

func publicAddresses(c *conf.Config) (public []netip.Addr) {
	for _, a := range []netip.Addr{c.PublicIPv4, c.PublicIPv6} {
		if a.IsValid() {
			public = append(public, a)
		}
	}
	return public
}

func secrets(c *conf.Config) []tlsfront.Secret {
	list := make([]tlsfront.Secret, len(c.Secrets))
	for i, s := range c.Secrets {
		list[i] = tlsfront.Secret{Name: s.Name, Host: s.Host(), Key: s.Key()}
	}
	return list
}

func fronts(c *conf.Config) ([]loop.Front, int) {
	hosts, fallback := c.Fronts()
	list := make([]loop.Front, len(hosts))
	for i, h := range hosts {
		list[i] = loop.Front{ServerName: h, Host: h, Port: c.DomainFronting.Port}
	}
	return list, fallback
}

// announce says what is served. Links hold secrets, so they go to standard output, and only to a person.
func (s serve) announce(on console, c *conf.Config, server *loop.Server, log zerolog.Logger) error {
	hosts, _ := c.Fronts()
	e := log.Info().Str("version", versionText()).Stringers("listen", stringers(server.Addresses())).
		Int("secrets", len(c.Secrets)).Str("front", strings.Join(hosts, ", "))
	if c.Stats.BindTo.IsValid() {
		e = e.Stringer("stats", c.Stats.BindTo)
	}
	e.Msg("serving")
	if !s.Links && !terminal(on.out) {
		log.Info().Msgf("`proxy link %s` prints the links to share", s.Config)
		return nil
	}
	warnings, err := printLinks(on.out, c)
	for _, w := range warnings {
		log.Warn().Msg(w)
	}
	return err
}

func stringers(addresses []netip.AddrPort) []fmt.Stringer {
	list := make([]fmt.Stringer, len(addresses))
	for i, a := range addresses {
		list[i] = a
	}
	return list
}

// newLog writes lines for a person to read; a journal adds its own time stamps.
func newLog(on console, verbose bool) zerolog.Logger {
	w := zerolog.ConsoleWriter{Out: on.err, NoColor: !terminal(on.err), TimeFormat: time.RFC3339}
	if os.Getenv("JOURNAL_STREAM") != "" {
		w.PartsExclude = []string{zerolog.TimestampFieldName}
	}
	level := zerolog.InfoLevel
	if verbose {
		level = zerolog.DebugLevel
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// terminal tells whether w is one.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
