package conf

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMTG loads a file as an operator of mtg would have it: it runs, one warning names what does nothing, and one what
// mtg's example chose for its reader.
func TestMTG(t *testing.T) {
	c, warnings, err := Load("testdata/mtg/used.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"testdata/mtg/used.toml:41: defense.doppelganger.drs: is false, as in mtg's example: if the records of the site grow, " +
			"ours will not; \"auto\" does as the site does",
		"testdata/mtg/used.toml: accepted, without effect so far: tcp-buffer, network.dns, network.timeout.http, " +
			"defense.anti-replay.error-rate, stats.prometheus.metric-prefix",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("got  %q\nwant %q", warnings, want)
	}
	expected := defaults()
	expected.Secrets = c.Secrets
	expected.BindTo = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:3128")}
	expected.Concurrency = 4096
	expected.PreferIP = PreferIPv4
	expected.TolerateTimeSkewness = 5 * time.Second
	expected.AllowFallbackOnUnknownDC = true
	expected.PublicIPv4 = netip.MustParseAddr("203.0.113.7")
	expected.DomainFronting = DomainFronting{Host: "198.51.100.20", Port: 8443, MaxConnections: 1024}
	expected.Network.Timeout.Dial = 7 * time.Second
	expected.Network.Timeout.Idle = 10 * time.Minute
	expected.Network.Timeout.Handshake = 15 * time.Second
	expected.Network.KeepAlive = KeepAlive{Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 3}
	expected.AntiReplay.MaxSize = 1 << 20
	expected.Doppelganger.DRS = DRSOff
	expected.Stats = Stats{BindTo: netip.MustParseAddrPort("127.0.0.1:3130"), MetricsPath: "/"}
	if !reflect.DeepEqual(*c, expected) {
		t.Errorf("got  %+v\nwant %+v", *c, expected)
	}
	if s := c.Secrets; len(s) != 1 || s[0].Name != "default" || s[0].Host() != "www.example.com" {
		t.Errorf("secrets: %v", s)
	}
}

// TestMTGExample: mtg's example file has its block list on, which is refused until there are such lists. That is all that
// keeps it from running.
func TestMTGExample(t *testing.T) {
	const file = "testdata/mtg/example.toml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, warnings, err := Parse(filepath.Base(file), data)
	if err == nil {
		t.Fatal("the block list was taken")
	}
	golden(t, "testdata/mtg/example.refused", strings.Join(append(warnings, err.Error()), "\n")+"\n")

	on, off := []byte("[defense.blocklist]\nenabled = true"), []byte("[defense.blocklist]\nenabled = false")
	if !bytes.Contains(data, on) {
		t.Fatal("the file has no block list")
	}
	c, warnings, err := Parse(filepath.Base(file), bytes.Replace(data, on, off, 1))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/mtg/example.want", strings.Join(warnings, "\n")+"\n")
	want := defaults()
	want.Secrets, want.Debug = c.Secrets, true
	want.BindTo = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:3128")}
	want.TolerateTimeSkewness = 5 * time.Second
	want.DomainFronting.MaxConnections = 2048
	want.AntiReplay.MaxSize = 1 << 20
	want.Doppelganger.DRS = DRSOff
	want.Stats.MetricsPath = "/"
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("got  %+v\nwant %+v", *c, want)
	}
}

// TestMTGMulti loads a file for the fork that gives every person a secret.
func TestMTGMulti(t *testing.T) {
	c, warnings, err := Load("testdata/mtg/multi.toml")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/mtg/multi.want", strings.Join(warnings, "\n")+"\n")
	var names []string
	for _, s := range c.Secrets {
		names = append(names, s.Name+" "+s.Host())
	}
	if want := []string{"alice static.example.com", "bob static.example.com"}; !slices.Equal(names, want) {
		t.Errorf("secrets %q, want %q", names, want)
	}
	want := defaults()
	want.Secrets = c.Secrets
	want.BindTo = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:443"), netip.MustParseAddrPort("[::]:443")}
	want.PreferIP = PreferIPv4
	want.PublicIPv4 = netip.MustParseAddr("203.0.113.7")
	want.TolerateTimeSkewness = 5 * time.Second
	want.DomainFronting = DomainFronting{Host: "10.10.10.11", Port: 8443, MaxConnections: 2048}
	want.Network.NotSentLowat = 1 << 20
	want.Network.KeepAlive.Disabled = true
	want.AntiReplay.MaxSize = 1 << 20
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("got  %+v\nwant %+v", *c, want)
	}
}

// TestMTGKeys: every key that an operator may have found commented out in those examples is known.
func TestMTGKeys(t *testing.T) {
	for _, file := range []string{"example", "multi"} {
		data, err := os.ReadFile("testdata/mtg/" + file + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = Parse("f", bytes.ReplaceAll(data, []byte("\n# "), []byte("\n")))
		for line := range strings.Lines(fmt.Sprint(err)) {
			// mtg's example shows that one below the wrong header, where mtg ignores it.
			if strings.Contains(line, "no known") && !strings.Contains(line, "nearest: network.tcp-not-sent-lowat") {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}
