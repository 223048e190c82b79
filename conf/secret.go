package conf

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// The shape of a secret (PROTOCOL §1).
const (
	keySize   = 16
	prefixTLS = 0xee // then the key, then the host name
	prefixPad = 0xdd // then the key: padded, but not TLS
)

// Secret is the key and the host name that an ee… string carries. Whoever prints one, through fmt, JSON or a log, gets
// its host only: the key comes out through Key and Hex and nowhere else.
type Secret struct {
	key  [keySize]byte
	host string // canonical, see ParseHost

	// wasUnicode: the secret as pasted carries its host in another spelling than host. Clients send what their link
	// says, so that link will not work here.
	wasUnicode bool
}

// Key returns the 16 bytes that sign a ClientHello.
func (s Secret) Key() [keySize]byte { return s.key }

// Host returns the name of the site that the secret imitates: lower-case ASCII, 1 to 182 bytes.
func (s Secret) Host() string { return s.host }

// Hex returns the canonical form, lower-case ee…: it gives the secret away.
func (s Secret) Hex() string {
	return hex.EncodeToString(append(append([]byte{prefixTLS}, s.key[:]...), s.host...))
}

// Format writes the same for every verb, %x and %#v included, so that no format string can print a key.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns a text without the key.
func (s Secret) String() string { return "secret for " + s.host }

// MarshalText keeps the key out of JSON, TOML and structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// NewSecret makes a secret for host with a key read from rnd. The error is that of ParseHost or of rnd.
func NewSecret(rnd io.Reader, host string) (Secret, error) {
	name, err := ParseHost(host)
	if err != nil {
		return Secret{}, err
	}
	s := Secret{host: name}
	_, err = io.ReadFull(rnd, s.key[:])
	return s, err
}

// A secretError says what is wrong with a secret. All of them stand below, so none can quote what was pasted.
type secretError string

func (e secretError) Error() string { return string(e) }

const (
	errSecretEmpty  = secretError(`is empty; make one with "proxy generate-secret HOST"`)
	errSecretLink   = secretError("is a link, but not to a proxy: tg://proxy?… or https://t.me/proxy?… expected")
	errSecretNoArg  = secretError("is a link to a proxy without a secret in it")
	errSecretText   = secretError("is neither hexadecimal nor base64; paste it whole, without anything between")
	errSecretOdd    = secretError("has an odd number of hexadecimal digits: one is missing or too many")
	errSecretPadded = secretError("is a dd secret: it asks for padding without TLS, which anyone can tell from a web site; make an ee one with \"proxy generate-secret HOST\"")
	errSecretBare   = secretError("is a bare 16-byte secret: it asks for the classic transport without TLS, which anyone can tell from a web site; make an ee one with \"proxy generate-secret HOST\"")
	errSecretShort  = secretError("begins like an ee secret but ends before its 16-byte key does; paste it whole")
	errSecretNoHost = secretError("is an ee secret without a host name behind its key; make one with \"proxy generate-secret HOST\"")
	errSecretKind   = secretError("is no Telegram proxy secret: one begins with ee in hexadecimal, with 7 in base64")
)

// ParseSecret reads a secret in every form that people paste: hexadecimal in either case, base64 and base64url with or
// without padding, a tg:// or https://t.me/proxy link, each with quotes and blanks around it. The error comes from a
// fixed set and contains nothing of text.
func ParseSecret(text string) (Secret, error) {
	text = strings.TrimFunc(text, isWrapping)
	if text == "" {
		return Secret{}, errSecretEmpty
	}
	if isLink(text) {
		var err error
		if text, err = secretOfLink(text); err != nil {
			return Secret{}, err
		}
	}
	raw, err := decodeSecret(text)
	if err != nil {
		return Secret{}, err
	}
	return secretOfBytes(raw)
}

// isWrapping reports what comes along when a secret is copied out of a chat or a page: blanks, invisible characters
// and quotation marks of any kind.
func isWrapping(r rune) bool {
	return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Pi, r) || unicode.Is(unicode.Pf, r) ||
		strings.ContainsRune("\"'`<>„‚", r)
}

// linkHosts are the names under which Telegram serves proxy links.
var linkHosts = []string{"t.me", "telegram.me", "telegram.dog"}

func isLink(text string) bool {
	return strings.Contains(text, ":") || strings.Contains(text, "?")
}

// secretOfLink returns the value of secret= in a link to a proxy.
func secretOfLink(link string) (string, error) {
	// A link out of a web page's source has its & escaped.
	link = strings.ReplaceAll(link, "&amp;", "&")
	if !strings.Contains(link, ":") {
		link = "https://" + link
	}
	u, err := url.Parse(link)
	if err != nil || !isProxyLink(u) {
		return "", errSecretLink
	}
	// A + of base64 that nobody escaped has become a blank.
	secret := strings.ReplaceAll(u.Query().Get("secret"), " ", "+")
	if secret = strings.TrimFunc(secret, isWrapping); secret == "" {
		return "", errSecretNoArg
	}
	return secret, nil
}

func isProxyLink(u *url.URL) bool {
	switch u.Scheme {
	case "tg":
		return strings.Trim(u.Host+u.Path+u.Opaque, "/") == "proxy"
	case "http", "https":
		host := strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.")
		return slices.Contains(linkHosts, host) && strings.Trim(u.Path, "/") == "proxy"
	}
	return false
}

// decodeSecret takes a text that is hexadecimal throughout as hexadecimal: base64 of 0xee begins with 7 and one of g to
// v, so no text can be an ee secret in both.
func decodeSecret(text string) ([]byte, error) {
	if isHex(text) {
		raw, err := hex.DecodeString(text)
		if err != nil {
			return nil, errSecretOdd
		}
		return raw, nil
	}
	// The decoder would skip line ends, wherever they are.
	if strings.ContainsAny(text, "\r\n") {
		return nil, errSecretText
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errSecretText
	}
	return raw, nil
}

func isHex(text string) bool {
	return strings.Trim(text, "0123456789abcdefABCDEF") == ""
}

func secretOfBytes(raw []byte) (Secret, error) {
	switch {
	case len(raw) == keySize: // even one that begins with ee or dd
		return Secret{}, errSecretBare
	case len(raw) == 1+keySize && raw[0] == prefixPad:
		return Secret{}, errSecretPadded
	case len(raw) == 0 || raw[0] != prefixTLS:
		return Secret{}, errSecretKind
	case len(raw) < 1+keySize:
		return Secret{}, errSecretShort
	case len(raw) == 1+keySize:
		return Secret{}, errSecretNoHost
	}
	pasted := string(raw[1+keySize:])
	host, err := ParseHost(pasted)
	if err != nil {
		return Secret{}, err
	}
	s := Secret{host: host, wasUnicode: !isASCII(pasted)}
	copy(s.key[:], raw[1:])
	return s, nil
}
