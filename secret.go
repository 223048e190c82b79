package main

import (
	"crypto/rand"
	"fmt"

	"mtrelay/conf"
)

type generateSecret struct {
	Host   string `arg:"" help:"Name of the web site to look like, such as example.com."`
	Config bool   `help:"Print a configuration file that serves the secret, ready to run."`
}

// Run prints the secret alone, so that a script can take it, or a file that contains it.
func (g generateSecret) Run(on console) error {
	s, err := conf.NewSecret(rand.Reader, g.Host)
	if err != nil {
		return fmt.Errorf("%q %w", g.Host, err)
	}
	format := "%s\n"
	if g.Config {
		format = configFile
	}
	_, err = fmt.Fprintf(on.out, format, s.Hex())
	return err
}

// configFile is the least that proxy run needs.
const configFile = `# All options with their defaults: config.example.toml.
secret = "%s"
bind-to = "0.0.0.0:443"
`
