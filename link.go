package main

import (
	"fmt"
	"io"

	"mtrelay/conf"
)

type link struct {
	Config string `arg:"" default:"config.toml" help:"Configuration file; ${default} when not given."`
	Secret string `placeholder:"NAME" help:"Only the links of the secret with this name."`
	Host   string `help:"Name or address under which clients reach this machine, in place of the one that is found."`
	Port   uint16 `help:"Port that clients connect to, in place of that of bind-to."`
	QR     bool   `name:"qr" help:"Draw each tg:// link as a QR code, for the camera of a phone."`
}

// Run prints the links and, to standard error, what may keep them from working.
func (l link) Run(on console) error {
	c, _, err := loadConfig(l.Config)
	if err != nil {
		return err
	}
	warnings, err := l.print(on.out, c)
	for _, w := range warnings {
		fmt.Fprintln(on.err, w)
	}
	return err
}

// printLinks writes the links of every secret, as proxy link does without flags. The warnings say why a link may not
// work from outside.
func printLinks(w io.Writer, c *conf.Config) (warnings []string, err error) {
	return link{}.print(w, c)
}

// print writes the links that are asked for, each secret's under its name when there are several.
func (l link) print(w io.Writer, c *conf.Config) (warnings []string, err error) {
	links, warnings, err := c.Links(conf.LocalAddrs(), conf.LinkOptions{Secret: l.Secret, Host: l.Host, Port: l.Port})
	if err != nil {
		return nil, err
	}
	named := len(links) > 0 && links[0].Name != links[len(links)-1].Name
	name := ""
	for _, one := range links {
		if named && one.Name != name {
			name = one.Name
			if _, err := fmt.Fprintf(w, "%s:\n", name); err != nil {
				return warnings, err
			}
		}
		if err := l.printOne(w, one); err != nil {
			return warnings, err
		}
	}
	return warnings, nil
}

func (l link) printOne(w io.Writer, one conf.Link) error {
	if _, err := fmt.Fprintf(w, "%s\n%s\n", one.TG, one.Web); err != nil {
		return err
	}
	// Nobody could use the code of a placeholder, nor see that it is one; a warning tells what to do.
	if !l.QR || !one.Complete {
		return nil
	}
	return drawQR(w, one.TG)
}
