package main

import (
	"fmt"
	"io"

	"mtrelay/conf"
)

type link struct {
	Config string `arg:"" default:"config.toml" help:"Configuration file; ${default} when not given."`
}

// Run prints the links and, to standard error, what may keep them from working.
func (l link) Run(on console) error {
	c, _, err := loadConfig(l.Config)
	if err != nil {
		return err
	}
	warnings, err := printLinks(on.out, c)
	for _, w := range warnings {
		fmt.Fprintln(on.err, w)
	}
	return err
}

// printLinks writes the links of every secret, under its name when there are several. The warnings say why a link may
// not work from outside.
func printLinks(w io.Writer, c *conf.Config) (warnings []string, err error) {
	links, warnings := c.Links(conf.LocalAddrs())
	name := ""
	for _, l := range links {
		if len(c.Secrets) > 1 && l.Name != name {
			name = l.Name
			if _, err := fmt.Fprintf(w, "%s:\n", name); err != nil {
				return warnings, err
			}
		}
		if _, err := fmt.Fprintf(w, "%s\n%s\n", l.TG, l.Web); err != nil {
			return warnings, err
		}
	}
	return warnings, nil
}
