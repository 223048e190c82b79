package conf

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the .want files in testdata")

const minimal = `
secret = "ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d"
bind-to = "0.0.0.0:443"
`

// mustParse returns the Config of minimal and more.
func mustParse(t *testing.T, more string) (*Config, []string) {
	t.Helper()
	c, warnings, err := Parse("config.toml", []byte(minimal+more))
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, _, err := Parse(filepath.Base(file), data)
			var list *Error
			if !errors.As(err, &list) || c != nil {
				t.Fatalf("Parse = %v, %v; want an *Error", c, err)
			}
			golden(t, strings.TrimSuffix(file, "toml")+"want", err.Error()+"\n")
			if bytes.IndexByte(data, 0) >= 0 {
				return // UTF-16
			}
			// The same from an editor on Windows.
			data = append([]byte("\xef\xbb\xbf"), bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))...)
			if _, _, other := Parse(filepath.Base(file), data); other == nil || other.Error() != err.Error() {
				t.Errorf("with BOM and CRLF:\n%v\nwithout:\n%v", other, err)
			}
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestDefaults(t *testing.T) {
	got, warnings := mustParse(t, "")
	if len(warnings) != 0 {
		t.Errorf("warnings: %q", warnings)
	}
	want := defaults()
	want.Secrets, want.BindTo = got.Secrets, got.BindTo
	want.DomainFronting.MaxConnections = 2048
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

// TestExample holds config.example.toml to its promise: every option of ours, at its default, and nothing else.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../config.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte("\nsecret = \"\"\n"), []byte(minimal[:strings.Index(minimal, "bind-to")]), 1)
	got, warnings, err := Parse("config.example.toml", data)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if want, _ := mustParse(t, ""); !reflect.DeepEqual(got, want) {
		t.Errorf("the example sets  %+v\nthe defaults are %+v", got, want)
	}

	var inFile []string
	for _, e := range read(data).entries {
		inFile = append(inFile, e.key())
	}
	for _, o := range options {
		if !slices.Contains(inFile, o.key) {
			t.Errorf("%s is missing in the example", o.key)
		}
	}
	for table := range openTables {
		if !slices.Contains(inFile, table) {
			t.Errorf("[%s] is missing in the example", table)
		}
	}
	for _, o := range mtgOptions {
		if slices.Contains(inFile, o.key) {
			t.Errorf("%s, which is mtg's only, is in the example", o.key)
		}
	}
}

// TestLineEnds writes one file in the ways of Windows editors: same Config, same lines in errors.
func TestLineEnds(t *testing.T) {
	plain := minimal + "\n[network.timeout]\nidle = \"7m\"\n"
	wrong := plain + "tcp = 5\n"
	want, _ := mustParse(t, "\n[network.timeout]\nidle = \"7m\"\n")
	_, _, wantErr := Parse("f", []byte(wrong))
	if wantErr == nil || !strings.HasPrefix(wantErr.Error(), "f:7: network.timeout.tcp: ") {
		t.Fatal(wantErr)
	}
	for _, bom := range []string{"", "\xef\xbb\xbf"} {
		for _, end := range []string{"\n", "\r\n"} {
			c, _, err := Parse("f", []byte(bom+strings.ReplaceAll(plain, "\n", end)))
			if err != nil || !reflect.DeepEqual(c, want) {
				t.Errorf("BOM %q, line end %q: %+v, %v", bom, end, c, err)
			}
			_, _, err = Parse("f", []byte(bom+strings.ReplaceAll(wrong, "\n", end)))
			if err == nil || err.Error() != wantErr.Error() {
				t.Errorf("BOM %q, line end %q: %v, want %v", bom, end, err, wantErr)
			}
		}
	}
}

func TestBindTo(t *testing.T) {
	for _, test := range []struct {
		value string
		want  []string
	}{
		{`"0.0.0.0:443"`, []string{"0.0.0.0:443"}},
		{`":443"`, []string{"[::]:443"}},
		{`["0.0.0.0:443", "[::]:443"]`, []string{"0.0.0.0:443", "[::]:443"}},
		{`"[::ffff:192.0.2.1]:8443"`, []string{"192.0.2.1:8443"}},
	} {
		c, _, err := Parse("f", []byte(strings.Replace(minimal, `"0.0.0.0:443"`, test.value, 1)))
		if err != nil {
			t.Errorf("%s: %v", test.value, err)
			continue
		}
		var got []string
		for _, a := range c.BindTo {
			got = append(got, a.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.value, got, test.want)
		}
	}
}

func TestDC(t *testing.T) {
	c, _ := mustParse(t, `[dc]
2 = ["192.0.2.1:443", "[2001:db8::1]:443"]
"-3" = "192.0.2.3:80"
10002 = "192.0.2.4:80"
"*" = ["127.0.0.1:17001"]
`)
	a := netip.MustParseAddrPort
	want := DC{
		Addresses: map[int][]netip.AddrPort{
			2:     {a("192.0.2.1:443"), a("[2001:db8::1]:443")},
			-3:    {a("192.0.2.3:80")},
			10002: {a("192.0.2.4:80")},
		},
		Rest: []netip.AddrPort{a("127.0.0.1:17001")},
	}
	if !reflect.DeepEqual(c.DC, want) {
		t.Errorf("got %v, want %v", c.DC, want)
	}
}

func TestSecrets(t *testing.T) {
	c, _ := mustParse(t, `domain-fronting.default = "C.example"
[secrets]
zoe = "ee00000000000000000000000000000000612e6578616d706c65"
"a.b@c" = "ee00000000000000000000000000000001622e6578616d706c65"
"Мария" = "ee00000000000000000000000000000002622e6578616d706c65"
`)
	var got []string
	for _, s := range c.Secrets {
		got = append(got, s.Name+" "+s.Host())
	}
	want := []string{"default www.example.com", "zoe a.example", "a.b@c b.example", "Мария b.example"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	hosts, fallback := c.Fronts()
	if !slices.Equal(hosts, []string{"www.example.com", "a.example", "b.example", "c.example"}) || fallback != 3 {
		t.Errorf("Fronts() = %q, %d", hosts, fallback)
	}
}

func TestFronts(t *testing.T) {
	for _, test := range []struct {
		more     string
		hosts    []string
		fallback int
	}{
		{"", []string{"www.example.com"}, 0},
		{`domain-fronting.host = "192.0.2.1"`, []string{"192.0.2.1"}, 0},
		{`domain-fronting.default = "www.example.com"`, []string{"www.example.com"}, 0},
		{"domain-fronting.default = \"a.example\"\nsecrets.a = \"ee00000000000000000000000000000000612e6578616d706c65\"",
			[]string{"www.example.com", "a.example"}, 1},
		{"domain-fronting.host = \"f.example\"\nsecrets.a = \"ee00000000000000000000000000000000612e6578616d706c65\"",
			[]string{"f.example"}, 0},
	} {
		c, _ := mustParse(t, test.more)
		if hosts, fallback := c.Fronts(); !slices.Equal(hosts, test.hosts) || fallback != test.fallback {
			t.Errorf("%q: %q, %d; want %q, %d", test.more, hosts, fallback, test.hosts, test.fallback)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct{ more, want string }{
		{`network.timeout.idle = "1m"`, "config.toml:4: network.timeout.idle: is less than 5m: clients in the background will be cut off and reconnect"},
		{`stats.bind-to = "0.0.0.0:3129"`, "config.toml:4: stats.bind-to: is 0.0.0.0:3129: whoever can reach it sees that this is a proxy; keep it on loopback or behind a firewall"},
		{"stats.enabled = false\nstats.bind-to = \"0.0.0.0:3129\"", ""},
		{`stats.bind-to = "10.1.2.3:3129"`, ""},
		{"[stats.statsd]\nenabled = true\naddress = \"127.0.0.1:1\"", "config.toml: accepted, without effect so far: stats.statsd.enabled, stats.statsd.address"},
		{"[stats.statsd]\naddress = \"127.0.0.1:1\"\nenabled = false", ""},
		{"domain-fronting.host = \"a.example\"\ndomain-fronting.ip = \"192.0.2.1\"", "config.toml: accepted, without effect so far: domain-fronting.ip (host is set)"},
		// The host in this secret is bücher.example in UTF-8.
		{"secrets.a = \"ee0000000000000000000000000000000062c3bc636865722e6578616d706c65\"\ndomain-fronting.default = \"b.example\"",
			"config.toml:4: secrets.a: spells its host in Unicode, as clients do that were given it so: their hellos will not match; hand out the link that \"proxy link\" prints"},
	} {
		_, warnings := mustParse(t, test.more)
		if got := strings.Join(warnings, "\n"); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.more, got, test.want)
		}
	}
}

func TestLoad(t *testing.T) {
	if _, _, err := Load("testdata/nowhere.toml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, _, err := Load("testdata"); err == nil {
		t.Error("a directory was loaded")
	}
	big := filepath.Join(t.TempDir(), "big.toml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("#\n"), maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(big); err == nil || !strings.Contains(err.Error(), "larger than 256 KiB") {
		t.Errorf("big file: %v", err)
	}
}

// TestManyProblems: a file that is something else does not fill the screen.
func TestManyProblems(t *testing.T) {
	_, _, err := Parse("f", []byte(strings.Repeat("x = 1\n", 1000)))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxShown+1 || lines[maxShown] != "f: and 952 more problems" {
		t.Errorf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
}

// TestNoLeak puts a secret where it does not belong: no error or warning may repeat it.
func TestNoLeak(t *testing.T) {
	secrets := []string{
		"ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d",
		"EE2A1543784DFE1D2B6B18839F19B860D77777772E6578616D706C652E636F6D",
		"7ioVQ3hN_h0raxiDnxm4YNd3d3cuZXhhbXBsZS5jb20=",
		"KhVDeE3+HStrGIOfGbhg1w==",
		"dd2a1543784dfe1d2b6b18839f19b860d7",
		"tg://proxy?server=192.0.2.1&port=443&secret=ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d",
	}
	for _, s := range secrets {
		files := []string{
			"secret = " + s,
			"secret = \"" + s,
			"secret = [\"" + s + "\"]",
			"secret = \"" + s[:len(s)-3] + "\"",
			"secret = \"" + s + "%\"",
			"\"" + s + "\" = 1",
			"secrets.\"" + s + "\" = 1",
			"secrets.\"" + s + "\" = \"" + s + "\"",
			"secrets = { \"" + s + "\" = true, \"" + s + "\" = true }",
			"[\"" + s + "\"]",
			"[[\"" + s + "\"]]\n[\"" + s + "\"]",
			"[secrets.\"" + s + "\"]\n[secrets.\"" + s + "\"]",
			"dc.\"" + s + "\" = \"" + s + "\"",
		}
		for _, o := range slices.Concat(options, mtgOptions) {
			files = append(files, o.key+" = \""+s+"\"", o.key+" = [\""+s+"\"]", o.key+" = [\"0.0.0.0:"+s+"\"]", o.key+s+" = 1")
		}
		for _, file := range files {
			_, warnings, err := Parse("f", []byte(file))
			said := strings.Join(warnings, "\n")
			if err != nil {
				said += err.Error()
			}
			noPiece(t, file, said, s)
		}
	}
}

// noPiece fails when said holds 8 characters in a row of the secret part of s.
func noPiece(t *testing.T, file, said, s string) {
	t.Helper()
	const piece = 8
	s = strings.ToLower(s[strings.LastIndexByte(s, '=')+1:] + s[:strings.IndexByte(s+":", ':')])
	for i := 0; i+piece <= len(s); i++ {
		if strings.Contains(strings.ToLower(said), s[i:i+piece]) {
			t.Fatalf("for %q the text has %q:\n%s", file, s[i:i+piece], said)
		}
	}
}

// hostileFiles are as large as a file may be, in shapes that cost a careless reader the square of it.
func hostileFiles() (files [][]byte) {
	var tables, keys, secrets bytes.Buffer
	for i := 0; tables.Len() < maxFile-20; i++ {
		fmt.Fprintf(&tables, "[t%d]\n", i)
	}
	for i := 0; keys.Len() < maxFile-20; i++ {
		fmt.Fprintf(&keys, "k%d=1\n", i)
	}
	secrets.WriteString("bind-to = \":443\"\n[secrets]\n")
	for i := 0; secrets.Len() < maxFile-80; i++ {
		fmt.Fprintf(&secrets, "s%d = \"ee%032x612e6578616d706c65\"\n", i, i)
	}
	files = append(files, tables.Bytes(), keys.Bytes(), secrets.Bytes())
	for _, shape := range []struct{ head, repeat string }{
		{"a=", "["}, {"", "a={"}, {"", "a."}, {"[", "a."}, {"a=[", "1,"}, {"bind-to=[", "1,"}, {"bind-to=[", "\":443\","},
		{"[" + strings.Repeat("a.", maxFile/2-200) + "a]\n", "b=1\n"}, {"secret=\"", "ee"}, {"", "\n"}, {"", "["},
	} {
		n := max(1, (maxFile-len(shape.head))/len(shape.repeat))
		files = append(files, []byte(shape.head+strings.Repeat(shape.repeat, n)))
	}
	return files
}

func TestHostileFiles(t *testing.T) {
	for i, file := range hostileFiles() {
		if len(file) > maxFile {
			t.Errorf("file %d has %d bytes", i, len(file))
		}
		c, _, err := Parse("f", file)
		if (c == nil) != (err != nil) {
			t.Errorf("file %d: Config %v with error %v", i, c, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.toml")
	for _, file := range append(files, "../config.example.toml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, file := range hostileFiles() {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Parse("f", data)
		if (c == nil) != (err != nil) {
			t.Fatalf("Config %v with error %v", c, err)
		}
		if err != nil && strings.Count(err.Error(), "\n") > maxShown {
			t.Fatalf("an error of %d lines", strings.Count(err.Error(), "\n")+1)
		}
		if c != nil {
			if _, _, err := c.Links(nil, LinkOptions{}); err != nil {
				t.Fatal(err)
			}
			hosts, _ := c.Fronts()
			for i, site := range c.Sites() {
				if c.DomainFronting.Host == "" && hosts[i] != site {
					t.Fatalf("site %d is %q, its front %q", i, site, hosts[i])
				}
				c.Doppelganger.URLsOf(site)
			}
		}
	})
}
