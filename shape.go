package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/conf"
	"mtrelay/doppel"
	"mtrelay/doppel/compare"
	"mtrelay/doppel/compare/rehearse"
	"mtrelay/loop"
)

type shape struct {
	Config   string        `arg:"" default:"config.toml" help:"Configuration file; ${default} when not given."`
	Front    string        `placeholder:"HOST[:PORT]" help:"Look at this site in place of the configuration's; then the file may be missing."`
	Faithful bool          `help:"Keep the front's gaps as they are, as with min-rate = 0."`
	Time     time.Duration `default:"30s" help:"How long it may take, all fronts together; ${default} when not given."`
	JSON     bool          `help:"Print the report as JSON, a list with an element for each front."`
	SVG      string        `placeholder:"FILE" help:"Draw the distributions of record sizes and gaps."`
}

// leastTime is what the hellos to one front and two visits take.
const leastTime = 10 * time.Second

// Run looks at the fronts and at what the proxy makes of them, and prints both side by side. It starts a proxy of its own,
// which nobody but this process reaches; one that runs is not touched. It fails when a front cannot be reached.
func (s shape) Run(on console) error {
	c, err := s.config(on)
	if err != nil {
		return err
	}
	fronts, err := s.fronts(c)
	if err != nil {
		return err
	}
	share := s.Time / time.Duration(len(fronts))
	if share < leastTime {
		return fmt.Errorf("--time: %s is too short for %d front(s), which take %s at least", s.Time, len(fronts), leastTime*time.Duration(len(fronts)))
	}
	if !c.Doppelganger.Enabled {
		fmt.Fprintln(on.err, "warning: [defense.doppelganger] is off; this is how it would be")
	}
	stage, err := rehearse.Open(stageOptions(c, on), fronts)
	if err != nil {
		return err
	}
	defer stage.Close()

	var reports []*compare.Report
	var failed []error
	for i, f := range fronts {
		r, err := stage.Measure(context.Background(), i, s.imitation(&c.Doppelganger, f.ServerName), share)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		reports = append(reports, r)
	}
	return errors.Join(s.show(on, reports), errors.Join(failed...))
}

// config reads the file. With --front it may be missing, and everything is as it is by default.
func (s shape) config(on console) (*conf.Config, error) {
	c, warnings, err := loadConfig(s.Config)
	if _, missing := os.Stat(s.Config); s.Front != "" && errors.Is(missing, fs.ErrNotExist) {
		host, _ := splitPort(s.Front)
		secret, err := conf.NewSecret(rand.Reader, host)
		if err != nil {
			return nil, fmt.Errorf("--front %q %w", host, err)
		}
		c, _, err = conf.Parse(s.Config, fmt.Appendf(nil, configFile, secret.Hex()))
		return c, err
	}
	for _, w := range warnings {
		fmt.Fprintln(on.err, "warning:", w)
	}
	return c, err
}

// fronts returns what is to be looked at: what sessions imitate, where fronting finds it, or the site of --front.
func (s shape) fronts(c *conf.Config) (list []loop.Front, err error) {
	if s.Front != "" {
		return s.front(c)
	}
	for _, name := range c.Sites() {
		f := loop.Front{ServerName: name, Host: name, Port: c.DomainFronting.Port}
		if c.DomainFronting.Host != "" {
			f.Host = c.DomainFronting.Host
		}
		list = append(list, f)
	}
	return list, nil
}

func (s shape) front(c *conf.Config) ([]loop.Front, error) {
	host, port := splitPort(s.Front)
	name, err := conf.ParseHost(host)
	if err != nil {
		return nil, fmt.Errorf("--front %q %w", host, err)
	}
	f := loop.Front{ServerName: name, Host: name, Port: c.DomainFronting.Port}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("--front: %q is no port", port)
		}
		f.Port = uint16(n)
	}
	return []loop.Front{f}, nil
}

// splitPort returns a port that follows the host, else "".
func splitPort(text string) (host, port string) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		return host, port
	}
	return text, ""
}

// stageOptions are the loop's as in service, as far as they are not those of one address or of memory.
func stageOptions(c *conf.Config, on console) loop.Options {
	changed := *c
	changed.AntiReplay.Enabled = false
	return options(&changed, nil, newLog(on, false).Level(zerolog.WarnLevel))
}

// imitation says how the proxy imitates a site.
func (s shape) imitation(d *conf.Doppelganger, site string) rehearse.Shape {
	changed := *d
	if s.Faithful {
		changed.MinRate = 0
	}
	return rehearse.Shape{
		URLs: d.URLsOf(site), DRS: doppel.DRS(d.DRS), MinRate: changed.MinRate,
		Model: func(m *doppel.Model) *doppel.Model { return shapeOf(m, true, &changed) },
	}
}

func (s shape) show(on console, reports []*compare.Report) error {
	if s.JSON {
		if err := writeJSON(on, reports); err != nil {
			return err
		}
	} else {
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(on.out)
			}
			r.Write(on.out)
		}
	}
	if s.SVG == "" || len(reports) == 0 {
		return nil
	}
	return writeSVG(s.SVG, reports)
}

func writeJSON(on console, reports []*compare.Report) error {
	if reports == nil {
		reports = []*compare.Report{}
	}
	e := json.NewEncoder(on.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(reports)
}

func writeSVG(path string, reports []*compare.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(compare.WriteSVG(f, reports), f.Close())
}
