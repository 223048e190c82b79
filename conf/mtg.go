package conf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// legacy holds what mtg spells otherwise, until the whole file is known: our own spelling wins whatever comes first.
type legacy struct {
	frontPort uint16 // domain-fronting-port
	frontIP   string // domain-fronting.ip, or domain-fronting-ip
	drsFalse  bool   // defense.doppelganger.drs = false

	statsOff   bool // stats.enabled = false; stats.prometheus.enabled = false
	prometheus prometheus
}

type prometheus struct {
	enabled bool
	set     bool // enabled stands in the file
	bindTo  netip.AddrPort
	path    string
}

// mtgOptions are keys that a file for mtg, or for its forks with several secrets, may have and ours needs not.
var mtgOptions = slices.Concat(
	[]option{
		{key: "domain-fronting-port", set: port(func(d *draft) *uint16 { return &d.legacy.frontPort })},
		{key: "domain-fronting-ip", set: frontIP},
		{key: "domain-fronting.ip", set: frontIP},
		{key: "stats.prometheus.enabled", set: prometheusEnabled},
		{key: "stats.prometheus.bind-to", set: prometheusBindTo},
		{key: "stats.prometheus.http-path", set: prometheusPath},
	},
	without(withoutEffect, "auto-update", "tcp-buffer",
		"network.dns", "network.doh-ip", "network.timeout.http",
		"defense.anti-replay.error-rate",
		"defense.blocklist.download-concurrency", "defense.blocklist.urls", "defense.blocklist.update-each",
		"defense.allowlist.download-concurrency", "defense.allowlist.urls", "defense.allowlist.update-each",
		"defense.pending-handshakes.dry-run",
		"network.client-mss-bulk",
		"stats.prometheus.metric-prefix",
		"stats.statsd.enabled", "stats.statsd.address", "stats.statsd.metric-prefix", "stats.statsd.tag-format"),
	without(withoutEffect, // mtg-multi's
		"api-bind-to", "api-token", "ad-tag",
		"throttle.max-connections", "throttle.check-interval",
		"secured.enabled", "secured.frame-timeout",
		"dc-pool.enabled", "dc-pool.size", "dc-pool.dcs",
		"web.bind-to", "web.host", "web.secret-mode", "web.decoy-dir", "web.max-sessions", "web.max-pending",
		"web.max-sessions-per-user", "web.max-pending-per-user", "web.diag"),
	without(refuse("going around a proxy would show this machine's own address; take the line out to connect directly"),
		"network.proxies"),
	without(refuse("every client would begin with a header that is not read yet; let the balancer send plain TCP"),
		"proxy-protocol-listener"),
	without(refuse("the front would wait for a header that is not sent yet; have it accept plain TLS"),
		"domain-fronting.proxy-protocol", "domain-fronting-proxy-protocol"),
	without(refuse("addresses that it keeps out would come in; set it to false to do without"),
		"defense.blocklist.enabled", "defense.allowlist.enabled"),
	without(refuse("whoever it keeps off would not be kept off; set it to 0 to do without"),
		"defense.pending-handshakes.max-per-ip"),
	without(refuse("what it hides from an observer would be seen; switch it off to do without"),
		"dpi-desync", "network.client-mss"),
)

// mtgTables take keys of the owner's choosing that only mtg's forks read: the names of secrets.
var mtgTables = map[string]func(*draft, entry) error{"secret-ad-tags": withoutEffect}

// mtgExampleKey is the key of the secret in mtg's example file, which runs as it is.
var mtgExampleKey = [keySize]byte{0x36, 0x7a, 0x18, 0x9a, 0xee, 0x18, 0xfa, 0x31, 0xc1, 0x90, 0x05, 0x4e, 0xfd, 0x4a, 0x8e, 0x95}

// without makes options of keys whose feature does not exist yet.
func without(set func(*draft, entry) error, keys ...string) (list []option) {
	for _, key := range keys {
		list = append(list, option{key: key, set: set})
	}
	return list
}

// withoutEffect takes a harmless key; all of them are named in one warning.
func withoutEffect(d *draft, e entry) error {
	if !e.value.isOff() {
		d.idle = append(d.idle, e.key())
	}
	return nil
}

// refuse takes a key only as long as it is off: doing without it would weaken or bypass something.
func refuse(why string) func(*draft, entry) error {
	return func(_ *draft, e entry) error {
		if e.value.isOff() {
			return nil
		}
		return errors.New("is not built yet: " + why)
	}
}

func frontIP(d *draft, e entry) error {
	if e.value.isEmptyText() {
		return nil
	}
	a, err := e.value.address("IP", netip.Addr.IsValid)
	if err != nil {
		return err
	}
	// The table's own key counts more than the older one outside it, as in mtg.
	if d.legacy.frontIP == "" || len(e.path) == 2 {
		d.legacy.frontIP = a.Unmap().String()
	}
	return nil
}

func prometheusEnabled(d *draft, e entry) (err error) {
	d.legacy.prometheus.set = true
	d.legacy.prometheus.enabled, err = e.value.boolean()
	return err
}

func prometheusBindTo(d *draft, e entry) (err error) {
	if !e.value.isEmptyText() {
		d.legacy.prometheus.bindTo, err = e.value.listener()
	}
	return err
}

func prometheusPath(d *draft, e entry) error {
	if e.value.kind != kindText {
		return mustBe("a path in quotes, such as \"/metrics\"", e.value)
	}
	path := "/" + strings.Trim(e.value.text, "/")
	if strings.ContainsFunc(path, notInPath) {
		return errors.New("has characters that do not belong in a path")
	}
	d.legacy.prometheus.path = path
	return nil
}

// notInPath keeps to what a path holds as it is, and out of the patterns of net/http.
func notInPath(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("{}?#%\"<>\\^`|", r)
}

// adopt moves what stands only in mtg's places to ours.
func (d *draft) adopt() {
	if !d.has("domain-fronting.port") && d.legacy.frontPort != 0 {
		d.DomainFronting.Port = d.legacy.frontPort
	}
	if d.legacy.frontIP != "" {
		if d.DomainFronting.Host == "" {
			d.DomainFronting.Host = d.legacy.frontIP
		} else {
			d.idle = append(d.idle, "domain-fronting.ip (host is set)")
		}
	}
	d.adoptPrometheus()
}

// adoptPrometheus follows [stats.prometheus] where [stats] itself says nothing. Its address counts only when it is
// enabled: mtg would not have opened it otherwise.
func (d *draft) adoptPrometheus() {
	p := d.legacy.prometheus
	switch {
	case p.set && !p.enabled && !d.has("stats.enabled") && !d.has("stats.bind-to"):
		d.legacy.statsOff = true
	case p.enabled && p.bindTo.IsValid() && !d.has("stats.bind-to"):
		d.Stats.BindTo = p.bindTo
	}
	if p.enabled && p.path != "" {
		d.Stats.MetricsPath = p.path
	}
}

// has reports whether the file sets an option.
func (d *draft) has(key string) bool { return d.lines[key] != 0 }

// warnIdle names everything that is set and does nothing, but for what belongs to a table that is switched off.
func (d *draft) warnIdle() {
	var names []string
	for _, key := range d.idle {
		table := key[:max(0, strings.LastIndexByte(key, '.'))]
		if !slices.Contains(d.off, table) {
			names = append(names, key)
		}
	}
	if len(names) > 0 {
		d.warn(0, "", fmt.Sprintf("accepted, without effect so far: %s", strings.Join(names, ", ")))
	}
}
