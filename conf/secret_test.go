package conf

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

const (
	testHex  = "ee2a1543784dfe1d2b6b18839f19b860d77777772e6578616d706c652e636f6d"
	testHost = "www.example.com"
)

// allSecretErrors is the closed set that ParseSecret draws from.
var allSecretErrors = []error{
	errSecretEmpty, errSecretLink, errSecretNoArg, errSecretText, errSecretOdd, errSecretPadded, errSecretBare,
	errSecretShort, errSecretNoHost, errSecretKind,
	errHostEmpty, errHostURL, errHostPort, errHostIP, errHostLong, errHostBad,
}

func TestParseSecret(t *testing.T) {
	const b64 = "7ioVQ3hN_h0raxiDnxm4YNd3d3cuZXhhbXBsZS5jb20"
	std := strings.ReplaceAll(b64, "_", "/")
	for _, text := range []string{
		testHex,
		strings.ToUpper(testHex),
		"EE" + testHex[2:],
		b64,
		b64 + "=",
		std,
		std + "=",
		"  " + testHex + "\r\n",
		`"` + testHex + `"`,
		"'" + b64 + "'",
		"“" + testHex + "”",
		"„" + testHex + "“",
		"«" + testHex + "»",
		"`" + testHex + "`",
		"<" + testHex + ">",
		"\u200b\ufeff" + testHex + "\u00a0",
		"tg://proxy?server=192.0.2.1&port=443&secret=" + testHex,
		"TG://proxy?secret=" + b64 + "&server=192.0.2.1&port=443",
		"tg:proxy?server=192.0.2.1&port=443&secret=" + testHex,
		"tg://proxy/?server=192.0.2.1&port=443&secret=" + testHex,
		"https://t.me/proxy?server=192.0.2.1&port=443&secret=" + testHex,
		"http://telegram.me/proxy?server=192.0.2.1&port=443&secret=" + testHex,
		"https://www.telegram.dog/proxy/?server=192.0.2.1&port=443&secret=" + testHex,
		"t.me/proxy?server=192.0.2.1&port=443&secret=" + testHex,
		"https://t.me/proxy?server=192.0.2.1&amp;port=443&amp;secret=" + testHex,
		"https://t.me/proxy?secret=" + std + "=",
		"https://t.me/proxy?secret=" + strings.ReplaceAll(std, "/", "%2F") + "%3D",
		" <https://t.me/proxy?server=2001%3Adb8%3A%3A1&port=443&secret=" + testHex + "> ",
		testHex[:34] + strings.ToUpper(testHex[34:]),
		testHex[:34] + fmt.Sprintf("%x", "WWW.Example.Com."),
	} {
		s, err := ParseSecret(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s.Hex() != testHex || s.Host() != testHost {
			t.Errorf("%q: %s", text, s.Hex())
		}
	}
}

// TestParseSecretPlus: a + of base64 survives a link that does not escape it.
func TestParseSecretPlus(t *testing.T) {
	want := Secret{host: "a.example"}
	for i := range want.key {
		want.key[i] = 0xfb // encodes to + and /
	}
	raw := append(append([]byte{prefixTLS}, want.key[:]...), want.host...)
	text := base64.StdEncoding.EncodeToString(raw)
	if !strings.Contains(text, "+") {
		t.Fatal("no + in", text)
	}
	for _, text := range []string{text, "https://t.me/proxy?secret=" + text} {
		if s, err := ParseSecret(text); err != nil || s != want {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
}

func TestParseSecretRefuses(t *testing.T) {
	key := testHex[2:34]
	host := func(name string) string { return "ee" + key + fmt.Sprintf("%x", name) }
	for _, test := range []struct {
		text string
		want error
	}{
		{"", errSecretEmpty},
		{` " " `, errSecretEmpty},
		{key, errSecretBare},
		{"ee" + key[2:], errSecretBare}, // 16 bytes are a classic secret, whatever they begin with
		{"KhVDeE3+HStrGIOfGbhg1w==", errSecretBare},
		{"dd" + key, errSecretPadded},
		{"DD" + strings.ToUpper(key), errSecretPadded},
		{"3SoVQ3hN/h0raxiDnxm4YNc", errSecretPadded},
		{"tg://proxy?secret=dd" + key, errSecretPadded},
		{"ee" + key, errSecretNoHost},
		{"ee" + key[:20], errSecretShort},
		{testHex[:len(testHex)-1], errSecretOdd},
		{"dd" + key + "61", errSecretKind},
		{"00", errSecretKind},
		{"=", errSecretKind},
		{"secret!", errSecretText},
		{testHex[:20] + " " + testHex[20:], errSecretText},
		{testHex[:20] + "\n" + testHex[20:], errSecretText},
		{"tg://proxy?server=192.0.2.1", errSecretNoArg},
		{"tg://socks?server=192.0.2.1&secret=" + testHex, errSecretLink},
		{"https://example.com/proxy?secret=" + testHex, errSecretLink},
		{"https://t.me/joinchat?secret=" + testHex, errSecretLink},
		{"ftp://t.me/proxy?secret=" + testHex, errSecretLink},
		{"tg://proxy?secret=%zz", errSecretNoArg},
		{"tg://%zz", errSecretLink},
		{host("192.0.2.1"), errHostIP},
		{host("2001:db8::1"), errHostIP},
		{host("example.com:443"), errHostPort},
		{host("https://example.com"), errHostURL},
		{host(" "), errHostEmpty},
		{host("a..b"), errHostBad},
		{host("a\x00b"), errHostBad},
		{host("\xff"), errHostBad},
		{host(strings.Repeat("a.", 91) + "a"), errHostLong},
	} {
		if _, err := ParseSecret(test.text); !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.text, err, test.want)
		}
	}
}

func TestParseHost(t *testing.T) {
	long := strings.Repeat("abcdefghi.", 18)
	for _, test := range []struct {
		text, want string
		err        error
	}{
		{"example.com", "example.com", nil},
		{" EXAMPLE.com. ", "example.com", nil},
		{"bücher.example", "xn--bcher-kva.example", nil},
		{"BÜCHER.example", "xn--bcher-kva.example", nil},
		{"пример。рф", "xn--e1afmkfd.xn--p1ai", nil},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", nil},
		{"r3---sn-4g5e.example.com", "r3---sn-4g5e.example.com", nil},
		{"my_site.example", "my_site.example", nil},
		{"localhost", "localhost", nil},
		{"1.example", "1.example", nil},
		{long + "ab", long + "ab", nil},
		{long + "abc", "", errHostLong},
		{"", "", errHostEmpty},
		{"https://example.com/", "", errHostURL},
		{"example.com/", "", errHostURL},
		{"example.com:443", "", errHostPort},
		{"[2001:db8::1]:443", "", errHostPort},
		{"192.0.2.1", "", errHostIP},
		{"192.0.2.1.", "", errHostIP},
		{"[2001:db8::1]", "", errHostIP},
		{"127.1", "", errHostIP},
		{"0x7f.0x1", "", errHostIP},
		{"a b", "", errHostBad},
		{"user@example.com", "", errHostBad},
		{"*.example.com", "", errHostBad},
		{"-a.example", "", errHostBad},
		{"a-.example", "", errHostBad},
		{".example", "", errHostBad},
		{"example..", "", errHostBad},
		{strings.Repeat("a", 64) + ".example", "", errHostBad},
		{"☃️\u202e.example", "", errHostBad},
	} {
		got, err := ParseHost(test.text)
		if !errors.Is(err, test.err) || err == nil && got != test.want {
			t.Errorf("%q: %q, %v; want %q, %v", test.text, got, err, test.want, test.err)
		}
	}
}

func TestNewSecret(t *testing.T) {
	key := bytes.Repeat([]byte{0xab}, keySize)
	s, err := NewSecret(bytes.NewReader(key), "Example.COM")
	if want := "ee" + strings.Repeat("ab", keySize) + fmt.Sprintf("%x", "example.com"); err != nil || s.Hex() != want {
		t.Errorf("%s, %v; want %s", s.Hex(), err, want)
	}
	if _, err := NewSecret(bytes.NewReader(key[1:]), "example.com"); err == nil {
		t.Error("a short key was taken")
	}
	if _, err := NewSecret(bytes.NewReader(key), "example.com:443"); !errors.Is(err, errHostPort) {
		t.Error(err)
	}
}

// TestSecretPrintsNoKey tries every way in which a secret could slip into a log.
func TestSecretPrintsNoKey(t *testing.T) {
	s, err := ParseSecret(testHex)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := mustParse(t, "")
	asJSON, err := json.Marshal(map[string]any{"s": s, "p": &s, "n": c.Secrets, "c": c})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "s", s, "c", c)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "s", s, "c", c)
	printed := []string{string(asJSON), log.String(), s.String(), fmt.Sprint(s), fmt.Sprintln(&s)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%U", "%b", "%08.3f"} {
		printed = append(printed, fmt.Sprintf(verb, s), fmt.Sprintf(verb, &s), fmt.Sprintf(verb, []Secret{s}),
			fmt.Sprintf(verb, c.Secrets), fmt.Sprintf(verb, *c), fmt.Sprintf(verb, map[string]Secret{"a": s}))
	}
	key := s.Key()
	leaks := []string{testHex[2:18], strings.ToUpper(testHex[2:18]), string(key[:4]), "42 21 67 120", "0x2a, 0x15",
		base64.StdEncoding.EncodeToString(key[:])[:12]}
	for _, text := range printed {
		for _, leak := range leaks {
			if strings.Contains(text, leak) {
				t.Errorf("%q has %q", text, leak)
			}
		}
	}
	if got := fmt.Sprint(s); got != "secret for "+testHost {
		t.Errorf("prints as %q", got)
	}
}

// FuzzSecret: what parses has a canonical form that parses to the same; what does not is refused with one of the fixed
// errors, so none can contain the input.
func FuzzSecret(f *testing.F) {
	for _, text := range []string{
		testHex, "7ioVQ3hN_h0raxiDnxm4YNd3d3cuZXhhbXBsZS5jb20=", "dd2a1543784dfe1d2b6b18839f19b860d7",
		"tg://proxy?server=192.0.2.1&port=443&secret=" + testHex, "t.me/proxy?secret=" + testHex,
		"ee0000000000000000000000000000000062c3bc636865722e6578616d706c65",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSecret(text)
		if err != nil {
			if !slices.Contains(allSecretErrors, err) {
				t.Fatalf("an error from outside the set: %v", err)
			}
			return
		}
		again, err := ParseSecret(s.Hex())
		if err != nil || again.key != s.key || again.host != s.host || again.Hex() != s.Hex() {
			t.Fatalf("%q: %s, then %s, %v", text, s.Hex(), again.Hex(), err)
		}
		if n := len(s.Host()); n < 1 || n > maxHost || s.Hex() != strings.ToLower(s.Hex()) {
			t.Fatalf("%q: host of %d bytes, %s", text, n, s.Hex())
		}
	})
}
