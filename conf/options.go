package conf

import (
	"fmt"
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
	maxSocketSize     = 1<<31 - 1
)

// An option is one key that a file may have.
type option struct {
	key string
	set func(*draft, entry) error
}

// options are all keys but those of the open tables.
var options = []option{
	{key: "debug", set: toggle(func(d *draft) *bool { return &d.Debug })},
	{key: "secret", set: setSecret},
	{key: "bind-to", set: setBindTo},
	{key: "reuse-port", set: toggle(func(d *draft) *bool { return &d.ReusePort })},
	{key: "loops", set: number(0, maxLoops, func(d *draft) *int { return &d.Loops })},
	{key: "concurrency", set: number(0, maxConcurrency, func(d *draft) *int { return &d.Concurrency })},
	{key: "prefer-ip", set: setPreferIP},
	{key: "tolerate-time-skewness", set: span(time.Second, time.Hour, func(d *draft) *time.Duration { return &d.TolerateTimeSkewness })},
	{key: "allow-fallback-on-unknown-dc", set: toggle(func(d *draft) *bool { return &d.AllowFallbackOnUnknownDC })},
	{key: "public-ipv4", set: public("IPv4", netip.Addr.Is4, func(d *draft) *netip.Addr { return &d.PublicIPv4 })},
	{key: "public-ipv6", set: public("IPv6", isIPv6, func(d *draft) *netip.Addr { return &d.PublicIPv6 })},

	{key: "domain-fronting.host", set: host(func(d *draft) *string { return &d.DomainFronting.Host })},
	{key: "domain-fronting.port", set: port(func(d *draft) *uint16 { return &d.DomainFronting.Port })},
	{key: "domain-fronting.default", set: host(func(d *draft) *string { return &d.DomainFronting.Default })},
	{key: "domain-fronting.max-connections", set: number(0, maxConcurrency, func(d *draft) *int { return &d.DomainFronting.MaxConnections })},

	{key: "relay.downlink", set: setDownlink},

	{key: "network.tcp-user-timeout", set: span(0, maxTime, func(d *draft) *time.Duration { return &d.Network.UserTimeout })},
	{key: "network.tcp-not-sent-lowat", set: size(0, maxSocketSize, func(d *draft) *int { return &d.Network.NotSentLowat })},
	{key: "network.tcp-window-clamp", set: size(0, maxSocketSize, func(d *draft) *int { return &d.Network.WindowClamp })},
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

	{key: "stats.enabled", set: statsEnabled},
	{key: "stats.bind-to", set: statsBindTo},
}

// openTables take keys of the owner's choosing.
var openTables = map[string]func(*draft, entry) error{
	"secrets": setNamedSecret,
	"dc":      setDC,
}

// The indexes of the above, made once: every known option by key, all keys and tables, and the parts that keys are
// made of.
var (
	optionByKey = map[string]option{}
	tables      []string
	knownKeys   []string
	optionParts []string
)

func init() {
	for table := range openTables {
		tables = append(tables, table)
	}
	for _, o := range slices.Concat(options, mtgOptions) {
		optionByKey[o.key] = o
		knownKeys = append(knownKeys, o.key)
		parts := strings.Split(o.key, ".")
		optionParts = append(optionParts, parts...)
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
	if len(e.path) == 2 && openTables[e.path[0]] != nil {
		return option{set: openTables[e.path[0]]}, true
	}
	return option{}, false
}

// inUnknownTable reports whether e belongs to a table that was refused already: one problem is enough for it.
func (d *draft) inUnknownTable(e entry) bool {
	for i := 1; i < len(e.path); i++ {
		if d.unknownTables[joinKey(e.path[:i])] {
			return true
		}
	}
	return false
}

// unknown reports a key that is none of ours, with the one that was probably meant.
func (d *draft) unknown(e entry) {
	key, what := e.key(), "option"
	if e.isTable() {
		what = "table"
		d.unknownTables[key] = true
	}
	if len(d.problems) >= maxShown {
		d.problem(e.line, key, "") // counted, not shown: a file that is something else need not take long
		return
	}
	if slices.Contains(tables, key) {
		d.problem(e.line, key, fmt.Sprintf("is a table; write its keys below a line [%s]", key))
		return
	}
	d.problem(e.line, key, fmt.Sprintf("is no known %s; %s", what, advice(key, e.isTable())))
}

func advice(key string, isTable bool) string {
	option, table := nearest(key, knownKeys), nearest(key, tables)
	switch {
	case !isTable && option != "" && option == lastPart(key):
		return fmt.Sprintf("%s belongs above the first [table]", option)
	case !isTable && option != "":
		return "nearest: " + option
	case table != "":
		return fmt.Sprintf("nearest: [%s]", table)
	}
	return "take it out"
}
