package conf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// placeholder stands where nothing tells the address under which clients reach this machine.
const placeholder = "YOUR-SERVER-ADDRESS"

// A Link is what the owner of a proxy hands to a person. It contains the secret.
type Link struct {
	Name     string // of the secret
	TG       string // tg://proxy?…, opened by the application
	Web      string // https://t.me/proxy?…, for where only web links can be pressed
	Complete bool   // false: it holds a placeholder in place of the server's address
}

// LinkOptions say what Links cannot know. The zero value says nothing.
type LinkOptions struct {
	Secret string // name of the only secret to make links for
	Host   string // a host name or IP address under which clients reach this machine
	Port   uint16 // that clients connect to, when something forwards it to ours
}

// A server is where clients are told to connect.
type server struct {
	host string
	port uint16
}

// LocalAddrs returns the addresses of this machine's interfaces, none when the system does not tell.
func LocalAddrs() (addrs []netip.Addr) {
	known, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range known {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs
}

// Links returns the links of every secret: for the host in the options, else for public-ipv4 and public-ipv6 when set,
// else for what bind-to names, else for the first public address of each family among local, else for a placeholder. No
// network is asked. The warnings say why a link may not work from outside; the error says what is wrong with the options
// and contains no secret.
func (c *Config) Links(local []netip.Addr, o LinkOptions) (links []Link, warnings []string, err error) {
	secrets, err := c.secretsNamed(o.Secret)
	if err != nil {
		return nil, nil, err
	}
	servers, warnings, err := c.servers(local, o)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range secrets {
		for _, at := range servers {
			links = append(links, newLink(s, at))
		}
	}
	return links, warnings, nil
}

func newLink(s NamedSecret, at server) Link {
	query := fmt.Sprintf("proxy?server=%s&port=%d&secret=%s", url.QueryEscape(at.host), at.port, s.Hex())
	return Link{Name: s.Name, TG: "tg://" + query, Web: "https://t.me/" + query, Complete: at.host != placeholder}
}

// secretsNamed returns the secret of a name, all of them for "".
func (c *Config) secretsNamed(name string) ([]NamedSecret, error) {
	if name == "" {
		return c.Secrets, nil
	}
	var names []string
	for i, s := range c.Secrets {
		if s.Name == name {
			return c.Secrets[i : i+1], nil
		}
		names = append(names, s.Name)
	}
	// The name may be a secret that was pasted in its place.
	return nil, fmt.Errorf("no secret is named %q; there are %s", shorten(name), Enumerate(names))
}

// Enumerate joins names for a message, but not a thousand of them.
func Enumerate(names []string) string {
	const limit = 10
	if more := len(names) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (c *Config) servers(local []netip.Addr, o LinkOptions) (found []server, warnings []string, err error) {
	found, warnings = c.knownServers(local)
	if o.Host != "" {
		if found, warnings, err = c.serversAt(o.Host); err != nil {
			return nil, nil, err
		}
	}
	if o.Port != 0 {
		for i := range found {
			found[i].port = o.Port
		}
	}
	// Two listeners on one address are the same behind one forwarded port.
	return slices.Compact(found), warnings, nil
}

// serversAt returns the one server that the owner names.
func (c *Config) serversAt(host string) (found []server, warnings []string, err error) {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		a = a.Unmap().WithZone("") // a zone means nothing on another machine
		return []server{{a.String(), c.portFor(a)}}, doubts(a), nil
	}
	name, err := ParseHost(host)
	switch {
	case errors.Is(err, errHostPort):
		return nil, nil, fmt.Errorf("%q has a port behind the host; give the port by itself", shorten(host))
	case err != nil:
		return nil, nil, fmt.Errorf("%q %w", shorten(host), err)
	}
	return []server{{name, c.BindTo[0].Port()}}, nil, nil
}

func (c *Config) knownServers(local []netip.Addr) (found []server, warnings []string) {
	if found = c.publicServers(); len(found) > 0 {
		return found, nil
	}
	if found, warnings = c.boundServers(); len(found) > 0 {
		return found, warnings
	}
	if found = c.localServers(local); len(found) > 0 {
		return found, nil
	}
	return []server{{placeholder, c.BindTo[0].Port()}}, []string{
		"this machine has no public address of its own, so the links hold " + placeholder +
			"; set public-ipv4 or public-ipv6 to the address under which clients reach it, or give it to \"proxy link --host\"",
	}
}

func (c *Config) publicServers() (found []server) {
	for _, a := range []netip.Addr{c.PublicIPv4, c.PublicIPv6} {
		if a.IsValid() {
			found = append(found, server{a.String(), c.portFor(a)})
		}
	}
	return found
}

// boundServers returns the addresses that bind-to itself names.
func (c *Config) boundServers() (found []server, warnings []string) {
	for _, b := range c.BindTo {
		if b.Addr().IsUnspecified() {
			continue
		}
		found = append(found, server{b.Addr().String(), b.Port()})
		warnings = append(warnings, doubts(b.Addr())...)
	}
	return found, warnings
}

// doubts says whether clients may fail to reach an address.
func doubts(a netip.Addr) []string {
	if isPublic(a) {
		return nil
	}
	return []string{fmt.Sprintf("%s is no public address; if clients come from outside, set public-ipv4 or public-ipv6", a)}
}

// localServers returns the first public address of each family that a listener takes.
func (c *Config) localServers(local []netip.Addr) (found []server) {
	var have4, have6 bool
	for _, a := range local {
		have := &have6
		if a = a.Unmap(); a.Is4() {
			have = &have4
		}
		if *have || !isPublic(a) || !c.takes(a) {
			continue
		}
		*have = true
		found = append(found, server{a.String(), c.portFor(a)})
	}
	return found
}

// takes reports whether a listener on all addresses accepts connections to a.
func (c *Config) takes(a netip.Addr) bool {
	for _, b := range c.BindTo {
		if accepts(b.Addr(), a) {
			return true
		}
	}
	return false
}

// portFor returns the port of the first listener for a's family, else of the first one: behind a translator of
// addresses the two families need not agree.
func (c *Config) portFor(a netip.Addr) uint16 {
	for _, b := range c.BindTo {
		if accepts(b.Addr(), a) || !b.Addr().IsUnspecified() && b.Addr().Is4() == a.Is4() {
			return b.Port()
		}
	}
	return c.BindTo[0].Port()
}

// accepts reports whether a listener on the unspecified address all takes connections to a; [::] takes both families.
func accepts(all, a netip.Addr) bool {
	return all.IsUnspecified() && (all.Is6() || a.Is4())
}

// sharedSpace is what providers with too few addresses hand out (RFC 6598); netip counts it as global unicast.
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !sharedSpace.Contains(a)
}
