package conf

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDoppelganger(t *testing.T) {
	for _, test := range []struct {
		file string
		want Doppelganger
	}{
		{"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 20 << 20}},
		{"enabled = false", Doppelganger{false, nil, 10, 6 * time.Hour, DRSAuto, 20 << 20}},
		{"repeats-per-raid = 3\nraid-each = \"168h\"", Doppelganger{true, nil, 3, 168 * time.Hour, DRSAuto, 20 << 20}},
		{"drs = true", Doppelganger{true, nil, 10, 6 * time.Hour, DRSOn, 20 << 20}},
		{"drs = false", Doppelganger{true, nil, 10, 6 * time.Hour, DRSOff, 20 << 20}},
		{"drs = \"Auto\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 20 << 20}},
		{"drs = \"on\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSOn, 20 << 20}},
		{"drs = \"off\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSOff, 20 << 20}},
		{"drs = \"\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 20 << 20}},
		{"min-rate = 0", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 0}},
		{"min-rate = \"0b\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 0}},
		{"min-rate = \"1.5 MB\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 3 << 19}},
		{"min-rate = 5_000_000", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 5_000_000}},
		{"urls = \"/a.js\"", Doppelganger{true, []string{"/a.js"}, 10, 6 * time.Hour, DRSAuto, 20 << 20}},
		{"urls = \"\"", Doppelganger{true, nil, 10, 6 * time.Hour, DRSAuto, 20 << 20}},
	} {
		c, _ := mustParse(t, "[defense.doppelganger]\n"+test.file)
		got, want := c.Doppelganger, test.want
		if !slices.Equal(got.URLs, want.URLs) {
			t.Errorf("%s: urls %q, want %q", test.file, got.URLs, want.URLs)
		}
		got.URLs, want.URLs = nil, nil
		if got.Enabled != want.Enabled || got.Repeats != want.Repeats || got.Each != want.Each || got.DRS != want.DRS || got.MinRate != want.MinRate {
			t.Errorf("%s: got %+v, want %+v", test.file, got, want)
		}
	}
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"/":                                 "/",
		"/a/b.js?v=1#top":                   "/a/b.js?v=1",
		"https://www.example.com":           "https://www.example.com",
		"https://WWW.example.com.:8443/x":   "https://www.example.com:8443/x",
		"HTTPS://bücher.example/":           "https://xn--bcher-kva.example/",
		"https://[2001:DB8::1]/":            "https://[2001:db8::1]/",
		"https://[2001:db8::1]:8443/":       "https://[2001:db8::1]:8443/",
		"/" + strings.Repeat("a", maxURL-1): "/" + strings.Repeat("a", maxURL-1),
	} {
		got, err := value{kind: kindText, text: text}.siteURL()
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestSites: who is shown a look is a client, and it is the look of the site that the client asks for.
func TestSites(t *testing.T) {
	const more = "secrets.a = \"ee00000000000000000000000000000000612e6578616d706c65\"\n"
	for _, test := range []struct {
		file string
		want []string
	}{
		{"", []string{"www.example.com"}},
		{"domain-fronting.default = \"b.example\"\n" + more, []string{"www.example.com", "a.example"}}, // b.example is for strangers
		{"domain-fronting.host = \"192.0.2.1\"\n" + more, []string{"www.example.com"}},
	} {
		c, _ := mustParse(t, test.file+"defense.doppelganger.urls = [\"/all.js\", \"https://A.example/a.js\", \"https://www.example.com\"]")
		if got := c.Sites(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.file, got, test.want)
		}
		if got, want := c.Doppelganger.URLsOf("a.example"), []string{"/all.js", "https://a.example/a.js"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", test.file, got, want)
		}
	}
}

func TestDoppelgangerWarnings(t *testing.T) {
	const foreign = "defense.doppelganger.urls = [\"/\", \"https://www.example.com/\", \"https://cdn.example/1\", \"https://cdn.example/2\", \"https://192.0.2.1\"]\n"
	for _, test := range []struct{ file, want string }{
		{foreign, "config.toml:4: defense.doppelganger.urls: leads to cdn.example, 192.0.2.1, which no secret names: not fetched, since an observer compares with the site that the client asked for"},
		{foreign + "defense.doppelganger.drs = false\ndefense.doppelganger.enabled = false", ""},
		{"defense.doppelganger.drs = \"off\"", ""}, // a choice
	} {
		_, warnings := mustParse(t, test.file)
		if got := strings.Join(warnings, "\n"); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.file, got, test.want)
		}
	}
}

func TestStateDirectory(t *testing.T) {
	c, _ := mustParse(t, "state-directory = \"/var/lib//mtrelay/\"")
	if c.StateDirectory != "/var/lib/mtrelay" {
		t.Errorf("got %q", c.StateDirectory)
	}
}
