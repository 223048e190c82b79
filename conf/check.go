package conf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// minIdle is what clients need: those in the background ping every 30 to 60 s and give up after 135 (PROTOCOL §4).
const minIdle = 5 * time.Minute

// What every file needs.
const (
	requiredSecret = "secret" // or a table of them
	requiredBindTo = "bind-to"
)

// check judges what only the whole file can tell, and fills in what depends on something else.
func (d *draft) check(doc document) {
	d.adopt()
	d.checkRequired(doc)
	if len(doc.broken) == 0 {
		d.checkFronts()
	}
	d.checkDoppelganger()
	d.checkStats()
	if d.DomainFronting.MaxConnections == 0 {
		d.DomainFronting.MaxConnections = max(minFronted, d.Concurrency/frontedShare)
	}
	if key := "network.timeout.idle"; d.Network.Timeout.Idle < minIdle {
		d.warn(d.lines[key], key, fmt.Sprintf("is less than %s: clients in the background will be cut off and reconnect", brief(minIdle)))
	}
	d.warnIdle()
}

func (d *draft) checkRequired(doc document) {
	if d.lacks(doc, requiredSecret) {
		d.problem(d.lines[requiredSecret], requiredSecret, `is missing; make one with "proxy generate-secret HOST", HOST being the web site to look like`)
	}
	if d.lacks(doc, requiredBindTo) {
		d.problem(d.lines[requiredBindTo], requiredBindTo, `is missing; write  bind-to = "0.0.0.0:443"  for all IPv4 addresses`+d.otherBindTo())
	}
}

// lacks reports whether a required key is missing for certain: not when it may be in what could not be read.
func (d *draft) lacks(doc document, key string) bool {
	return !d.tried[key] && !slices.ContainsFunc(doc.unread, func(text string) bool { return strings.Contains(text, key) })
}

// otherBindTo points out a key of that name in a table, which may have been meant to stand above it.
func (d *draft) otherBindTo() string {
	for _, table := range []string{"stats", "stats.prometheus"} {
		if line := d.lines[table+"."+requiredBindTo]; line != 0 {
			return fmt.Sprintf(", above the first [table]: that in line %d belongs to [%s]", line, table)
		}
	}
	return ""
}

// checkFronts demands a front for strangers when the secrets name several.
func (d *draft) checkFronts() {
	hosts, _ := d.Fronts()
	if len(hosts) < 2 || d.DomainFronting.Default != "" {
		return
	}
	first := d.Secrets[0]
	for _, s := range d.Secrets {
		if s.host != first.host {
			d.problem(d.lines["domain-fronting"], "domain-fronting.default", fmt.Sprintf(
				"is missing: secrets %s and %s name different sites, so say which one, or which other, strangers are sent to; or set domain-fronting.host for all",
				first.Name, s.Name))
			return
		}
	}
}

func (d *draft) checkStats() {
	if d.legacy.statsOff {
		d.Stats.BindTo = netip.AddrPort{}
	}
	a := d.Stats.BindTo.Addr()
	if a.IsValid() && !a.IsLoopback() && !a.IsPrivate() {
		key := "stats.bind-to"
		d.warn(d.lines[key], key, fmt.Sprintf("is %s: whoever can reach it sees that this is a proxy; keep it on loopback or behind a firewall", d.Stats.BindTo))
	}
}
