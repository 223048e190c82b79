package conf

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestLinks(t *testing.T) {
	local := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("10.0.0.5"),
		netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fd00::1"),
		netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8"),
	}
	for _, test := range []struct {
		name, bindTo, more string
		local              []netip.Addr
		want               []string // server:port
		warnings           int
	}{
		{"public addresses win", `["192.0.2.1:443", "[::]:8443"]`, "public-ipv4 = \"203.0.113.1\"\npublic-ipv6 = \"2001:db8::1\"", local,
			[]string{"203.0.113.1:443", "[2001:db8::1]:8443"}, 0},
		{"public IPv6 before an IPv4 listener", `"0.0.0.0:443"`, "public-ipv6 = \"2001:db8::1\"", local, []string{"[2001:db8::1]:443"}, 0},
		{"bind-to is specific", `["192.0.2.1:443", "0.0.0.0:8443", "[2001:db8::2]:444"]`, "", local, []string{"192.0.2.1:443", "[2001:db8::2]:444"}, 0},
		{"bind-to is private", `"10.0.0.5:443"`, "", local, []string{"10.0.0.5:443"}, 1},
		{"bind-to is loopback", `"127.0.0.1:443"`, "", local, []string{"127.0.0.1:443"}, 1},
		{"all IPv4", `"0.0.0.0:443"`, "", local, []string{"198.51.100.7:443"}, 0},
		{"all addresses", `":443"`, "", local, []string{"[2001:db8::7]:443", "198.51.100.7:443"}, 0},
		{"a port for each family", `["0.0.0.0:443", "[::]:8443"]`, "", local, []string{"[2001:db8::7]:8443", "198.51.100.7:443"}, 0},
		{"behind translation", `"0.0.0.0:443"`, "", local[:6], []string{"YOUR-SERVER-ADDRESS:443"}, 1},
		{"no interfaces", `"[::]:443"`, "", nil, []string{"YOUR-SERVER-ADDRESS:443"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := strings.Replace(minimal, `"0.0.0.0:443"`, test.bindTo, 1) + test.more
			c, _, err := Parse("f", []byte(file))
			if err != nil {
				t.Fatal(err)
			}
			links, warnings, err := c.Links(test.local, LinkOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range links {
				got = append(got, serverOf(t, l))
			}
			if !slices.Equal(got, test.want) || len(warnings) != test.warnings {
				t.Errorf("got %q with warnings %q, want %q and %d", got, warnings, test.want, test.warnings)
			}
		})
	}
}

// serverOf checks that both forms of a link parse, agree and carry the secret, and returns server:port.
func serverOf(t *testing.T, l Link) string {
	t.Helper()
	query, ok := strings.CutPrefix(l.TG, "tg://proxy?")
	if !ok || l.Web != "https://t.me/proxy?"+query {
		t.Errorf("links differ: %s, %s", l.TG, l.Web)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{l.TG, l.Web} {
		if s, err := ParseSecret(link); err != nil || s.Hex() != values.Get("secret") {
			t.Errorf("%s: %v", link, err)
		}
	}
	host := values.Get("server")
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + values.Get("port")
}

func TestLinksOfAllSecrets(t *testing.T) {
	c, _ := mustParse(t, "public-ipv4 = \"203.0.113.1\"\npublic-ipv6 = \"2001:db8::1\"\n"+
		"secrets.alice = \"ee000000000000000000000000000000007777772e6578616d706c652e636f6d\"")
	links, _, err := c.Links(nil, LinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	if want := []string{"default", "default", "alice", "alice"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if want := "tg://proxy?server=2001%3Adb8%3A%3A1&port=443&secret=" + testHex; links[1].TG != want {
		t.Errorf("got %s, want %s", links[1].TG, want)
	}
}

func TestLinkOptions(t *testing.T) {
	const alice = "secrets.alice = \"ee000000000000000000000000000000007777772e6578616d706c652e636f6d\"\n"
	for _, test := range []struct {
		name, bindTo string
		options      LinkOptions
		want         []string // secret and server:port
		warnings     int
	}{
		{"a name", `"0.0.0.0:443"`, LinkOptions{Host: "Proxy.Example.org."}, []string{"default proxy.example.org:443", "alice proxy.example.org:443"}, 0},
		{"a name beyond ASCII", `":8443"`, LinkOptions{Host: "bücher.example", Secret: "alice"}, []string{"alice xn--bcher-kva.example:8443"}, 0},
		{"an address", `["0.0.0.0:443", "[::]:8443"]`, LinkOptions{Host: "2001:db8::1", Secret: "default"}, []string{"default [2001:db8::1]:8443"}, 0},
		{"an address in brackets", `":443"`, LinkOptions{Host: "[2001:db8::1]", Secret: "default"}, []string{"default [2001:db8::1]:443"}, 0},
		{"a port", `["192.0.2.1:443", "192.0.2.1:8443"]`, LinkOptions{Port: 993, Secret: "alice"}, []string{"alice 192.0.2.1:993"}, 0},
		{"both", `"127.0.0.1:443"`, LinkOptions{Host: "192.0.2.1", Port: 993, Secret: "alice"}, []string{"alice 192.0.2.1:993"}, 0},
		{"a private address", `":443"`, LinkOptions{Host: "10.0.0.1", Secret: "alice"}, []string{"alice 10.0.0.1:443"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _, err := Parse("f", []byte(strings.Replace(minimal, `"0.0.0.0:443"`, test.bindTo, 1)+alice))
			if err != nil {
				t.Fatal(err)
			}
			links, warnings, err := c.Links(nil, test.options)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range links {
				got = append(got, l.Name+" "+serverOf(t, l))
			}
			if !slices.Equal(got, test.want) || len(warnings) != test.warnings || !links[0].Complete {
				t.Errorf("got %q with warnings %q, want %q and %d", got, warnings, test.want, test.warnings)
			}
		})
	}
}

func TestLinkOptionsRefused(t *testing.T) {
	c, _ := mustParse(t, "secrets.alice = \"ee000000000000000000000000000000007777772e6578616d706c652e636f6d\"")
	for _, test := range []struct {
		options LinkOptions
		want    string
	}{
		{LinkOptions{Secret: "bob"}, `no secret is named "bob"; there are default, alice`},
		{LinkOptions{Secret: testHex}, `no secret is named "…"; there are default, alice`},
		{LinkOptions{Host: "192.0.2.1:443"}, `"192.0.2.1:443" has a port behind the host; give the port by itself`},
		{LinkOptions{Host: "https://example.com/"}, `"https://example.com/" has a URL or a path where a host name belongs; give only the name, such as example.com`},
		{LinkOptions{Host: "my server"}, `"my server" has a host name that is not one: letters, digits, - and _ in parts of at most 63, joined by dots`},
	} {
		if links, _, err := c.Links(nil, test.options); err == nil || err.Error() != test.want || links != nil {
			t.Errorf("%+v: %v\nwant %s", test.options, err, test.want)
		}
	}
}

// TestEnumerate: a file with a thousand secrets does not fill the screen.
func TestEnumerate(t *testing.T) {
	names := strings.Split(strings.Repeat("x ", 999)+"x", " ")
	if got, want := Enumerate(names), "x, x, x, x, x, x, x, x, x, x and 990 more"; got != want {
		t.Errorf("got %q", got)
	}
}

// TestLocalAddrs: the machine has a loopback interface at least.
func TestLocalAddrs(t *testing.T) {
	if !slices.ContainsFunc(LocalAddrs(), netip.Addr.IsLoopback) {
		t.Errorf("no loopback among %v", LocalAddrs())
	}
}
