package conf

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

// placeholder stands where nothing tells the address under which clients reach this machine.
const placeholder = "YOUR-SERVER-ADDRESS"

// A Link is what the owner of a proxy hands to a person. It contains the secret.
type Link struct {
	Name string // of the secret
	TG   string // tg://proxy?…, opened by the application
	Web  string // https://t.me/proxy?…, for where only web links can be pressed
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

// Links returns the links of every secret: for public-ipv4 and public-ipv6 when set, else for what bind-to names, else
// for the first public address of each family among local, else for a placeholder. No network is asked. The warnings
// say why a link may not work from outside.
func (c *Config) Links(local []netip.Addr) (links []Link, warnings []string) {
	servers, warnings := c.servers(local)
	for _, s := range c.Secrets {
		for _, at := range servers {
			links = append(links, newLink(s, at))
		}
	}
	return links, warnings
}

func newLink(s NamedSecret, at server) Link {
	query := fmt.Sprintf("proxy?server=%s&port=%d&secret=%s", url.QueryEscape(at.host), at.port, s.Hex())
	return Link{Name: s.Name, TG: "tg://" + query, Web: "https://t.me/" + query}
}

func (c *Config) servers(local []netip.Addr) (found []server, warnings []string) {
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
			"; set public-ipv4 or public-ipv6 to the address under which clients reach it",
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
		if !isPublic(b.Addr()) {
			warnings = append(warnings, fmt.Sprintf("%s is no public address; if clients come from outside, set public-ipv4 or public-ipv6", b.Addr()))
		}
	}
	return found, warnings
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
