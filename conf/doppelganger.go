package conf

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Doppelganger says how the site behind a secret is studied, and what sessions take over from it.
type Doppelganger struct {
	Enabled bool

	// URLs are what is fetched: absolute ones (https, the host in its canonical form) or paths, which count for every
	// site; empty for the root page. See URLsOf.
	URLs []string

	Repeats int           // of every observation in a raid, 1 or more
	Each    time.Duration // from one raid to the next
	DRS     DRS
	MinRate int // bytes/s that the site's gaps leave a download at least; 0: as slow as the site
}

// DRS says whether record sizes grow from one segment on.
type DRS uint8

const (
	DRSAuto DRS = iota // as the site's do
	DRSOn
	DRSOff
)

var drsNames = []string{"auto", "on", "off"}

// Limits of our choosing.
const (
	maxURLs    = 64
	maxURL     = 2048 // bytes of one
	maxPath    = 1024 // bytes of a directory's
	maxRepeats = 100
	maxEach    = 7 * 24 * time.Hour
	lowestRate = 64 << 10 // less is a forgotten unit: a single picture would take a minute
	maxRate    = 1 << 30
)

// Sites returns the names under which clients ask for the fronts that they are shown, in the order of Fronts, of which
// they are the first. A front that only strangers are sent to is none of them.
func (c *Config) Sites() (names []string) {
	for _, s := range c.Secrets {
		if !slices.Contains(names, s.Host()) {
			names = append(names, s.Host())
		}
	}
	if c.DomainFronting.Host != "" {
		return names[:min(1, len(names))] // one place for all; what its look is for most is that of the first
	}
	return names
}

// URLsOf returns those URLs that a site has.
func (d *Doppelganger) URLsOf(site string) (list []string) {
	for _, u := range d.URLs {
		if host := hostOf(u); host == "" || host == site {
			list = append(list, u)
		}
	}
	return list
}

// hostOf returns the host of a URL that was checked, "" for a path.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func setURLs(d *draft, e entry) error {
	if e.value.isEmptyText() {
		return nil
	}
	items := e.value.items()
	if len(items) > maxURLs {
		return fmt.Errorf("names %d URLs; %d are enough", len(items), maxURLs)
	}
	var wrong []problem
	for _, item := range items {
		u, err := item.siteURL()
		if err != nil {
			wrong = append(wrong, problem{line: item.line, text: err.Error()})
			continue
		}
		d.Doppelganger.URLs = append(d.Doppelganger.URLs, u)
	}
	d.all(e.key(), wrong)
	return nil
}

const wantURL = `an https URL or a path in quotes, such as "https://example.com/app.js" or "/app.js"`

// siteURL returns what can be fetched from a site: an absolute URL with its host in canonical form, or a path.
func (v value) siteURL() (string, error) {
	u, err := url.Parse(v.text)
	if v.kind != kindText || err != nil || len(v.text) > maxURL {
		return "", mustBe(wantURL, v)
	}
	u.Fragment, u.RawFragment = "", ""
	switch {
	case u.User != nil:
		return "", errors.New("has a user name or a password; only what every visitor sees is looked at")
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return u.String(), nil
	case u.Scheme == "http":
		return "", errors.New("is an http URL; records are only to be seen over https")
	case u.Scheme != "https" || u.Hostname() == "":
		return "", mustBe(wantURL, v)
	}
	host, err := value{kind: kindText, text: u.Hostname()}.frontHost()
	if err != nil {
		return "", err
	}
	u.Host = authority(host, u.Port())
	return u.String(), nil
}

// authority is a host as a URL has it.
func authority(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return host
}

// setDRS takes mtg's true and false as well.
func setDRS(d *draft, e entry) error {
	if e.value.isEmptyText() {
		return nil
	}
	if on, err := e.value.boolean(); err == nil {
		d.Doppelganger.DRS = DRSOff
		if on {
			d.Doppelganger.DRS = DRSOn
		}
		d.legacy.drsFalse = !on
		return nil
	}
	i, err := e.value.choice(drsNames)
	d.Doppelganger.DRS = DRS(i) //nolint:gosec // three of them
	return err
}

func setStateDirectory(d *draft, e entry) error {
	text := e.value.text
	switch {
	case e.value.isEmptyText():
		return nil
	case e.value.kind != kindText || !filepath.IsAbs(text) || len(text) > maxPath || strings.ContainsRune(text, 0):
		return mustBe(`a directory in quotes, with its whole path, such as "/var/lib/mtrelay"`, e.value)
	}
	d.StateDirectory = filepath.Clean(text)
	return nil
}

// checkDoppelganger warns of what is taken from mtg's files and does not do what was hoped for.
func (d *draft) checkDoppelganger() {
	const table = "defense.doppelganger."
	if !d.Doppelganger.Enabled {
		return
	}
	if d.legacy.drsFalse {
		key := table + "drs"
		d.warn(d.lines[key], key, `is false, as in mtg's example: if the records of the site grow, ours will not; "auto" does as the site does`)
	}
	sites := d.Sites()
	var others []string
	for _, u := range d.Doppelganger.URLs {
		if host := hostOf(u); host != "" && !slices.Contains(sites, host) && !slices.Contains(others, shorten(host)) {
			others = append(others, shorten(host))
		}
	}
	if len(others) > 0 && len(sites) > 0 {
		key := table + "urls"
		d.warn(d.lines[key], key, fmt.Sprintf("leads to %s, which no secret names: not fetched, since an observer compares with the site that the client asked for",
			Enumerate(others)))
	}
}
