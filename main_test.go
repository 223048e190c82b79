package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mtrelay/conf"
)

// run executes a command line in this process.
func run(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(args, console{&o, &e})
	return code, o.String(), e.String()
}

// writeConfig returns the path of a configuration file with the given contents.
func writeConfig(t *testing.T, contents string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGenerateSecret(t *testing.T) {
	for _, test := range []struct{ host, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.com.", "example.com"},
		{"bücher.example", "xn--bcher-kva.example"},
	} {
		code, out, errs := run(t, "generate-secret", test.host)
		s, err := conf.ParseSecret(out)
		if code != 0 || errs != "" || err != nil || s.Host() != test.want || out != s.Hex()+"\n" {
			t.Errorf("%s: exit %d, %q, %q, %v", test.host, code, out, errs, err)
		}
	}
	_, first, _ := run(t, "generate-secret", "example.com")
	if _, second, _ := run(t, "generate-secret", "example.com"); first == second {
		t.Error("the same secret twice")
	}
}

// TestGenerateConfig: what the flag prints is a configuration that loads, without a warning.
func TestGenerateConfig(t *testing.T) {
	code, out, errs := run(t, "generate-secret", "--config", "example.com")
	c, warnings, err := conf.Parse("config.toml", []byte(out))
	if code != 0 || errs != "" || err != nil || len(warnings) > 0 || c.Secrets[0].Host() != "example.com" {
		t.Errorf("exit %d, %q, %q, %v, %q", code, out, errs, err, warnings)
	}
}

func TestGenerateSecretRefuses(t *testing.T) {
	for _, test := range []struct{ host, why string }{
		{"example.com:443", "has a port"},
		{"https://example.com", "has a URL"},
		{"192.0.2.1", "has an IP address"},
		{"2001:db8::1", "has an IP address"},
		{"", "has no host name"},
	} {
		code, out, errs := run(t, "generate-secret", test.host)
		if code != exitError || out != "" || !strings.Contains(errs, test.why) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q", test.host, code, out, errs)
		}
	}
}

const twoSecrets = `
bind-to = "0.0.0.0:8443"
public-ipv4 = "203.0.113.7"
public-ipv6 = "2001:db8::7"
secret = "ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d"
secrets.alice = "ee000000000000000000000000000000007777772e6578616d706c652e636f6d"
`

func TestLink(t *testing.T) {
	code, out, errs := run(t, "link", writeConfig(t, twoSecrets))
	const want = `default:
tg://proxy?server=203.0.113.7&port=8443&secret=ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d
https://t.me/proxy?server=203.0.113.7&port=8443&secret=ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d
tg://proxy?server=2001%3Adb8%3A%3A7&port=8443&secret=ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d
https://t.me/proxy?server=2001%3Adb8%3A%3A7&port=8443&secret=ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d
alice:
tg://proxy?server=203.0.113.7&port=8443&secret=ee000000000000000000000000000000007777772e6578616d706c652e636f6d
https://t.me/proxy?server=203.0.113.7&port=8443&secret=ee000000000000000000000000000000007777772e6578616d706c652e636f6d
tg://proxy?server=2001%3Adb8%3A%3A7&port=8443&secret=ee000000000000000000000000000000007777772e6578616d706c652e636f6d
https://t.me/proxy?server=2001%3Adb8%3A%3A7&port=8443&secret=ee000000000000000000000000000000007777772e6578616d706c652e636f6d
`
	if code != 0 || out != want || errs != "" {
		t.Errorf("exit %d, %q\n%swant\n%s", code, errs, out, want)
	}
}

// TestLinkWarns: links that work on this machine only are printed, the doubt goes to standard error.
func TestLinkWarns(t *testing.T) {
	contents := strings.Replace(twoSecrets[:strings.Index(twoSecrets, "secrets.")], "public-ipv4 = \"203.0.113.7\"\npublic-ipv6 = \"2001:db8::7\"\n", "", 1)
	code, out, errs := run(t, "link", writeConfig(t, strings.Replace(contents, "0.0.0.0", "127.0.0.1", 1)))
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, "tg://proxy?server=127.0.0.1&port=8443&") ||
		!strings.Contains(errs, "127.0.0.1 is no public address") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestLinkFlags(t *testing.T) {
	file := writeConfig(t, twoSecrets)
	code, out, errs := run(t, "link", file, "--secret", "alice", "--host", "proxy.example.org", "--port", "993")
	const want = `tg://proxy?server=proxy.example.org&port=993&secret=ee000000000000000000000000000000007777772e6578616d706c652e636f6d
https://t.me/proxy?server=proxy.example.org&port=993&secret=ee000000000000000000000000000000007777772e6578616d706c652e636f6d
`
	if code != 0 || out != want || errs != "" {
		t.Errorf("exit %d, %q\n%swant\n%s", code, errs, out, want)
	}

	// A code follows each link, under the name.
	_, out, _ = run(t, "link", file, "--host", "192.0.2.1", "--qr")
	parts := strings.Split(out, "tg://")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "default:\n") || !strings.HasSuffix(parts[1], "alice:\n") {
		t.Fatal(out)
	}
	for _, part := range parts[1:] {
		if !strings.Contains(part, darkOnLight) {
			t.Errorf("no code behind tg://%s", part)
		}
	}

	code, out, errs = run(t, "link", file, "--secret", "bob")
	if code != exitError || out != "" || errs != "no secret is named \"bob\"; there are default, alice\n" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

// TestCheck: problems make it fail, warnings do not, and both are told.
func TestCheck(t *testing.T) {
	file := writeConfig(t, twoSecrets)
	code, out, errs := run(t, "check", file)
	const ok = "ok: would listen on 0.0.0.0:8443 for 2 secrets (default, alice); strangers go to www.example.com, port 443; counters on 127.0.0.1:3129\n"
	if code != 0 || out != ok || errs != "" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}

	const warned = "\nnetwork.timeout.idle = \"1m\"\nstats.bind-to = \"\"\ndomain-fronting.host = \"192.0.2.1\"\n"
	file = writeConfig(t, minimalConfig+warned)
	code, out, errs = run(t, "check", file)
	if code != 0 || out != "ok: would listen on 0.0.0.0:443 for one secret; strangers go to 192.0.2.1, port 443\n" ||
		errs != "warning: "+file+":4: network.timeout.idle: is less than 5m: clients in the background will be cut off and reconnect\n" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}

	const wrong = "concurency = 1\nloops = \"x\"\n"
	file = writeConfig(t, minimalConfig+warned+wrong)
	code, out, errs = run(t, "check", file)
	if code != exitError || out != "" || !strings.HasPrefix(errs, "warning: ") || strings.Count(errs, "\n") != 3 ||
		!strings.Contains(errs, "\n"+file+":7: concurency: is no known option; nearest: concurrency\n") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

// TestCheckSeveralFronts: whoever asks for none of the sites goes to the default.
func TestCheckSeveralFronts(t *testing.T) {
	file := writeConfig(t, minimalConfig+"\ndomain-fronting.default = \"b.example\"\n")
	code, out, errs := run(t, "check", file)
	if code != 0 || !strings.Contains(out, "strangers go to www.example.com, b.example as they ask, else to b.example, port 443;") || errs != "" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

const minimalConfig = `secret = "ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d"
bind-to = "0.0.0.0:443"
`

// TestMissingFile: every command that reads a configuration says how to make one.
func TestMissingFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config.toml")
	for _, command := range []string{"run", "check", "link"} {
		code, out, errs := run(t, command, missing)
		if code != exitError || out != "" || !strings.HasPrefix(errs, missing+": there is no such file; `umask 077; proxy generate-secret --config HOST > ") ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q", command, code, out, errs)
		}
	}
}

func TestLinkRefuses(t *testing.T) {
	wrong := writeConfig(t, "debug = 1\n")
	code, out, errs := run(t, "link", wrong)
	if code != exitError || out != "" || !strings.HasPrefix(errs, wrong+":1: debug: ") || strings.Count(errs, "\n") != 3 {
		t.Errorf("wrong file: exit %d, %q, %q", code, out, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"nonsense"}, {"generate-secret"}, {"link", "a", "b"}, {"link", "--port", "70000"}, {"check", "a", "b"}, {"version", "--loud"}} {
		code, out, errs := run(t, args...)
		if code != exitUsage || out != "" || !strings.HasSuffix(errs, "; see proxy --help\n") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
}

// TestBinary builds the program as the Makefile does and asks for its version and its help.
func TestBinary(t *testing.T) {
	proxy := filepath.Join(t.TempDir(), "proxy")
	if out, err := exec.Command("go", "build", "-ldflags", "-X main.version=1.2.3", "-o", proxy, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []struct {
		arg  string
		want string
	}{
		{"version", `^proxy 1\.2\.3 \(go1\.\d+\S*, \w+/\w+\)\n$`},
		{"--help", `(?s)^Usage: proxy .*check \[<config>\].*generate-secret <host>.*link \[<config>\].*version`},
	} {
		out, err := exec.Command(proxy, test.arg).Output()
		if err != nil || !regexp.MustCompile(test.want).Match(out) {
			t.Errorf("%s: %v\n%s", test.arg, err, out)
		}
	}
	code, out, _ := run(t, "version")
	if code != 0 || !regexp.MustCompile(`^proxy \S+ \(go1\.`).MatchString(out) {
		t.Errorf("not from the linker: exit %d, %q", code, out)
	}
}
