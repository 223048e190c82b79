package conf

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Limits of our choosing.
const (
	maxConcurrency = 1 << 20 // two descriptors each: past what a process gets
	maxLoops       = 1024
	maxTime        = 24 * time.Hour
)

// Limits of the kernel: TCP_KEEPIDLE and TCP_KEEPINTVL in seconds, TCP_KEEPCNT, and sizes that fit a C int.
const (
	maxKeepAlive      = 32767 * time.Second
	maxKeepAliveCount = 127
	maxSocketSize     = 1 << 30
)

// minSocketSize and minUserTimeout are the least that is not 0. Less has no use: the kernel counts in pages and
// milliseconds, and what rounds to 0 means something else.
const (
	minSocketSize  = 4 << 10
	minUserTimeout = time.Second
)

// An option is one key that a file may have.
type option struct {
	key string
	set func(*draft, entry) error
}

// apply sets the option to the value of e, or says why not.
func (o option) apply(d *draft, e entry) error {
	if why := whyNotZero[o.key]; why != "" && e.value.isZero() {
		return errors.New("is 0: " + why)
	}
	return o.set(d, e)
}

// whyNotZero holds the options that must not be 0. Elsewhere 0 means what config.example.toml says.
var whyNotZero = map[string]string{
	"concurrency":                  "nobody could connect; take the line out for the default",
	"tolerate-time-skewness":       "no client has so exact a clock; take the line out for the default",
	"domain-fronting.port":         "no site listens there; take the line out for 443",
	"domain-fronting-port":         "no site listens there; take the line out for 443",
	"network.timeout.tcp":          "no connection would come about; take the line out for the default",
	"network.timeout.handshake":    "every client would be taken for a stranger; take the line out for the default",
	"network.timeout.idle":         "every connection would end at once; there is no doing without, write \"24h\" for the longest",
	"network.timeout.linger":       "the last bytes of connections would be lost; take the line out for the default",
	"network.keep-alive.idle":      "to do without keepalive, set disabled = true",
	"network.keep-alive.interval":  "to do without keepalive, set disabled = true",
	"network.keep-alive.count":     "to do without keepalive, set disabled = true",
	"defense.anti-replay.max-size": "nothing would be remembered; to do without, set enabled = false",

	"defense.doppelganger.repeats-per-raid": "nothing would be seen; to do without, set enabled = false",
	"defense.doppelganger.raid-each":        "the site would be fetched without a rest; take the line out for the default",
}

// options are all keys but those of the open tables.
var options = []option{
	{key: "debug", set: toggle(func(d *draft) *bool { return &d.Debug })},
	{key: "secret", set: setSecret},
	{key: "bind-to", set: setBindTo},
	{key: "reuse-port", set: toggle(func(d *draft) *bool { return &d.ReusePort })},
	{key: "loops", set: number(0, maxLoops, func(d *draft) *int { return &d.Loops })},
	{key: "concurrency", set: number(1, maxConcurrency, func(d *draft) *int { return &d.Concurrency })},
	{key: "prefer-ip", set: setPreferIP},
	{key: "tolerate-time-skewness", set: span(time.Second, time.Hour, func(d *draft) *time.Duration { return &d.TolerateTimeSkewness })},
	{key: "allow-fallback-on-unknown-dc", set: toggle(func(d *draft) *bool { return &d.AllowFallbackOnUnknownDC })},
	{key: "public-ipv4", set: public("IPv4", netip.Addr.Is4, func(d *draft) *netip.Addr { return &d.PublicIPv4 })},
	{key: "public-ipv6", set: public("IPv6", isIPv6, func(d *draft) *netip.Addr { return &d.PublicIPv6 })},
	{key: "state-directory", set: setStateDirectory},

	{key: "domain-fronting.host", set: host(func(d *draft) *string { return &d.DomainFronting.Host })},
	{key: "domain-fronting.port", set: port(func(d *draft) *uint16 { return &d.DomainFronting.Port })},
	{key: "domain-fronting.default", set: host(func(d *draft) *string { return &d.DomainFronting.Default })},
	{key: "domain-fronting.max-connections", set: number(0, maxConcurrency, func(d *draft) *int { return &d.DomainFronting.MaxConnections })},

	{key: "relay.downlink", set: setDownlink},

	{key: "network.tcp-user-timeout", set: orZero(span, zeroIsKernel, minUserTimeout, maxTime, func(d *draft) *time.Duration { return &d.Network.UserTimeout })},
	{key: "network.tcp-not-sent-lowat", set: orZero(size, zeroIsKernel, minSocketSize, maxSocketSize, func(d *draft) *int { return &d.Network.NotSentLowat })},
	{key: "network.tcp-window-clamp", set: orZero(size, zeroIsKernel, minSocketSize, maxSocketSize, func(d *draft) *int { return &d.Network.WindowClamp })},
	{key: "network.timeout.tcp", set: span(100*time.Millisecond, 5*time.Minute, func(d *draft) *time.Duration { return &d.Network.Timeout.Dial })},
	{key: "network.timeout.handshake", set: span(time.Second, 5*time.Minute, func(d *draft) *time.Duration { return &d.Network.Timeout.Handshake })},
	{key: "network.timeout.idle", set: span(time.Second, maxTime, func(d *draft) *time.Duration { return &d.Network.Timeout.Idle })},
	{key: "network.timeout.linger", set: span(time.Second, maxTime, func(d *draft) *time.Duration { return &d.Network.Timeout.Linger })},
	{key: "network.timeout.drain", set: span(0, maxTime, func(d *draft) *time.Duration { return &d.Network.Timeout.Drain })},
	{key: "network.keep-alive.disabled", set: toggle(func(d *draft) *bool { return &d.Network.KeepAlive.Disabled })},
	{key: "network.keep-alive.idle", set: span(time.Second, maxKeepAlive, func(d *draft) *time.Duration { return &d.Network.KeepAlive.Idle })},
	{key: "network.keep-alive.interval", set: span(time.Second, maxKeepAlive, func(d *draft) *time.Duration { return &d.Network.KeepAlive.Interval })},
	{key: "network.keep-alive.count", set: number(1, maxKeepAliveCount, func(d *draft) *int { return &d.Network.KeepAlive.Count })},

	{key: "defense.anti-replay.enabled", set: toggle(func(d *draft) *bool { return &d.AntiReplay.Enabled })},
	{key: "defense.anti-replay.max-size", set: size(64<<10, 1<<30, func(d *draft) *int { return &d.AntiReplay.MaxSize })},

	{key: "defense.doppelganger.enabled", set: toggle(func(d *draft) *bool { return &d.Doppelganger.Enabled })},
	{key: "defense.doppelganger.urls", set: setURLs},
	{key: "defense.doppelganger.repeats-per-raid", set: number(1, maxRepeats, func(d *draft) *int { return &d.Doppelganger.Repeats })},
	{key: "defense.doppelganger.raid-each", set: span(time.Second, maxEach, func(d *draft) *time.Duration { return &d.Doppelganger.Each })},
	{key: "defense.doppelganger.drs", set: setDRS},
	{key: "defense.doppelganger.min-rate", set: orZero(size, zeroIsSite, lowestRate, maxRate, func(d *draft) *int { return &d.Doppelganger.MinRate })},

	{key: "stats.enabled", set: statsEnabled},
	{key: "stats.bind-to", set: statsBindTo},
}

// openTables take keys of the owner's choosing.
var openTables = map[string]func(*draft, entry) error{
	"secrets": setNamedSecret,
	"dc":      setDC,
}

// The indexes of the above, made once: every known option by key, all keys and tables, the keys outside of tables, and
// the parts that keys are made of.
var (
	optionByKey = map[string]option{}
	tables      []string
	knownKeys   []string
	topKeys     []string
	optionParts []string
)

func init() {
	for table := range openTables {
		tables = append(tables, table)
	}
	for table := range mtgTables {
		tables = append(tables, table)
	}
	for _, o := range slices.Concat(options, mtgOptions) {
		optionByKey[o.key] = o
		knownKeys = append(knownKeys, o.key)
		parts := strings.Split(o.key, ".")
		optionParts = append(optionParts, parts...)
		if len(parts) == 1 {
			topKeys = append(topKeys, o.key)
		}
		for i := 1; i < len(parts); i++ {
			tables = append(tables, strings.Join(parts[:i], "."))
		}
	}
	slices.Sort(tables)
	tables = slices.Compact(tables)
}

func optionFor(e entry) (option, bool) {
	if o, ok := optionByKey[e.key()]; ok {
		return o, true
	}
	if set := setterInOpenTable(e); set != nil {
		return option{set: set}, true
	}
	return option{}, false
}

// setterInOpenTable is for keys of the owner's choosing; nil for any other.
func setterInOpenTable(e entry) func(*draft, entry) error {
	if len(e.path) != 2 {
		return nil
	}
	if set := openTables[e.path[0]]; set != nil {
		return set
	}
	return mtgTables[e.path[0]]
}

func (e entry) isInOpenTable() bool { return setterInOpenTable(e) != nil }
