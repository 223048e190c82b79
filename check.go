package main

import (
	"fmt"
	"net/netip"

	"mtrelay/conf"
)

type check struct {
	Config string `arg:"" default:"config.toml" help:"Configuration file; ${default} when not given."`
}

// Run prints, to standard error, everything that is wrong with a configuration and what its owner should know, and, when
// nothing is wrong, what it would serve. It starts nothing and asks nobody.
func (c check) Run(on console) error {
	config, warnings, err := loadConfig(c.Config)
	for _, w := range warnings {
		fmt.Fprintln(on.err, "warning:", w)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(on.out, "ok:", summary(config))
	return err
}

// summary says in a line what a configuration would serve. It gives no secret away.
func summary(c *conf.Config) string {
	hosts, fallback := c.Fronts()
	text := fmt.Sprintf("would listen on %s for %s; strangers go to %s", addresses(c.BindTo), owners(c.Secrets), conf.Enumerate(hosts))
	if len(hosts) > 1 {
		text += fmt.Sprintf(" as they ask, else to %s", hosts[fallback])
	}
	text += fmt.Sprintf(", port %d", c.DomainFronting.Port)
	if c.Stats.BindTo.IsValid() {
		text += fmt.Sprintf("; counters on %s", c.Stats.BindTo)
	}
	return text
}

func addresses(all []netip.AddrPort) string {
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = a.String()
	}
	return conf.Enumerate(names)
}

func owners(all []conf.NamedSecret) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	if len(names) == 1 {
		return "one secret"
	}
	return fmt.Sprintf("%d secrets (%s)", len(names), conf.Enumerate(names))
}
