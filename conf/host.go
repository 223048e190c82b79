package conf

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxHost is the longest host name a secret can carry, in bytes (PROTOCOL §1).
const maxHost = 182

// maxLabel is the longest part between two dots of a host name (RFC 1035 §2.3.4).
const maxLabel = 63

// A hostError says why a text is not a host name. It never quotes the text: that may be a piece of a secret.
type hostError string

func (e hostError) Error() string { return string(e) }

const (
	errHostEmpty = hostError("has no host name; give that of a web site, such as example.com")
	errHostURL   = hostError("has a URL or a path where a host name belongs; give only the name, such as example.com")
	errHostPort  = hostError("has a port behind the host name; give the name alone, the port of the front goes to [domain-fronting] port")
	errHostIP    = hostError("has an IP address where a host name belongs; TLS clients send names only (RFC 6066 §3), so a hello that names an address stands out")
	errHostLong  = hostError("has a host name longer than the 182 bytes that a secret can carry")
	errHostBad   = hostError("has a host name that is not one: letters, digits, - and _ in parts of at most 63, joined by dots")
)

// ParseHost returns the canonical form of a host name: lower case, ASCII (IDNA names in punycode), without a trailing
// dot, at most 182 bytes. URLs, ports and IP addresses are refused, each with its reason.
func ParseHost(text string) (string, error) {
	text = strings.TrimSpace(text)
	if err := notAName(text); err != nil {
		return "", err
	}
	host, err := toASCII(text)
	if err != nil {
		return "", err
	}
	host = strings.TrimSuffix(host, ".")
	return host, checkHost(host)
}

// notAName recognises what people give in place of a host name.
func notAName(text string) error {
	bare := strings.Trim(text, "[]")
	_, notAddr := netip.ParseAddr(bare)
	switch {
	case text == "":
		return errHostEmpty
	case strings.Contains(text, "/"):
		return errHostURL
	case notAddr == nil:
		return errHostIP
	case strings.Contains(text, ":"):
		return errHostPort
	}
	return nil
}

// toASCII leaves an ASCII name as it is but for its case: the IDNA rules refuse names that exist and work, with an
// underscore or with hyphens in third and fourth place (r3---sn-….googlevideo.com).
func toASCII(text string) (string, error) {
	if isASCII(text) {
		return strings.ToLower(text), nil
	}
	host, err := idna.Lookup.ToASCII(text)
	if err != nil || !utf8.ValidString(text) { // idna replaces what is invalid
		return "", errHostBad
	}
	return host, nil
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// checkHost checks a name that is in lower-case ASCII already.
func checkHost(host string) error {
	if len(host) > maxHost {
		return errHostLong
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !validLabel(label) {
			return errHostBad
		}
	}
	// No top-level domain is a number, but resolvers read 127.1 and 127.0x1 as addresses.
	last := labels[len(labels)-1]
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return errHostIP
	}
	return nil
}

func validLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
