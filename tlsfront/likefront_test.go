package tlsfront

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"slices"
	"testing"
	"time"
)

// realFronts are configurations of crypto/tls, with which a front answers.
func realFronts(t *testing.T) map[string]*tls.Config {
	t.Helper()
	cert := rsaSigned(t)
	config := func(change func(*tls.Config)) *tls.Config {
		c := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
		change(c)
		return c
	}
	return map[string]*tls.Config{
		"Go":                 config(func(c *tls.Config) {}),
		"Go without tickets": config(func(c *tls.Config) { c.SessionTicketsDisabled = true }),
		"Go without ALPN":    config(func(c *tls.Config) { c.NextProtos = nil }),
		"X25519 only":        config(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }),
		"X25519, P-256":      config(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256} }),
		"P-256 only":         config(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256} }),
		"TLS 1.2":            config(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
	}
}

// TestReplyLikeFront: what a profile of crypto/tls makes us answer is what crypto/tls answers, to each kind of hello and
// to the captured ones, in all that an observer can compare: the ServerHello but for its random and share, and the bytes
// of the flight. An RSA key makes the flight's length constant.
func TestReplyLikeFront(t *testing.T) {
	var clients []captured
	for name, raw := range offeredHellos(t) {
		if slices.ContainsFunc(helloKinds, func(k HelloKind) bool { return k.String() == name }) {
			clients = append(clients, captured{name, alice, now, raw})
		}
	}
	clients = append(clients, capturedHellos(t)...)
	for front, config := range realFronts(t) {
		p := seenProfile(t, config)
		for _, c := range clients {
			got := answeredLike(t, gateFor(c.secret), c, c.raw, 1448, p)
			if front == "P-256 only" || front == "TLS 1.2" {
				if p.Flights[HelloHybrid].OK || p.Flights[HelloHybrid].Retry != (front == "P-256 only") {
					t.Fatalf("%s: %+v", front, p.Flights[HelloHybrid])
				}
				if want := answered(t, gateFor(c.secret), c, c.raw, 1448); !bytes.Equal(got, want) {
					t.Errorf("front: %s; client: %s: another reply than without a profile", front, c.name)
				}
				continue
			}
			theirs := frontReply(t, c.raw, config)
			if a, b := withoutSecrets(got), withoutSecrets(theirs); !bytes.Equal(a, b) {
				t.Errorf("front: %s; client: %s: ServerHello\n%x, theirs\n%x", front, c.name, a, b)
			}
			if len(got) != len(theirs) {
				t.Errorf("front: %s; client: %s: %d bytes, theirs %d", front, c.name, len(got), len(theirs))
			}
		}
	}
}

// TestReplyLikeECDSA: the front's flight varies with its signature, and ours stays among the lengths that were seen.
func TestReplyLikeECDSA(t *testing.T) {
	p := seenProfile(t, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
	for name, raw := range offeredHellos(t) {
		h, _ := judged(gateFor(alice), raw, now)
		f := &p.Flights[h.kind()]
		g := gateFor(alice)
		for range 20 {
			r, err := splitReply(answeredLike(t, g, captured{time: now}, raw, 0, p))
			if err != nil {
				t.Fatal(err)
			}
			n := len(r.flight) - finishedLen(uint16(r.suite)) + finishedLen(f.Suite)
			if !slices.ContainsFunc(f.Records, func(records []int) bool { return inOneRecord(records) == n }) {
				t.Fatalf("%s: %d bytes, seen %v", name, len(r.flight), f.Records)
			}
		}
	}
}

// withoutSecrets is a ServerHello record with random and share zeroed.
func withoutSecrets(b []byte) []byte {
	_, payload, _, _ := splitRecord(b)
	hello := bytes.Clone(payload)
	var r reply
	if r.parse(hello) != nil {
		return nil
	}
	clear(r.random)
	clear(r.share)
	return hello
}

// seenProfile makes by hand what a scout would learn of crypto/tls: each kind of hello, eight times.
func seenProfile(t *testing.T, config *tls.Config) *Profile {
	t.Helper()
	p := new(Profile)
	for _, kind := range helloKinds {
		for seed := range byte(8) {
			raw, _ := made(t, kind, alice.Host, nil, fixed(100+seed))
			f := seenFlight(t, frontReply(t, raw, config))
			f.Records = append(p.Flights[kind].Records, f.Records...)
			p.Flights[kind] = f
		}
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// retryRandom is the random that makes a ServerHello a HelloRetryRequest, RFC 8446 §4.1.3.
const retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"

func seenFlight(t *testing.T, b []byte) (f Flight) {
	t.Helper()
	_, hello, rest, err := splitRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(hello, []byte{0, 43, 0, 2, 3, 4}) {
		return Flight{Version: 0x0303}
	}
	if string(hello[6:38]) == retryRandom {
		return Flight{Version: 0x0304, Retry: true}
	}
	var r reply
	if err := r.parse(hello); err != nil {
		t.Fatal(err)
	}
	f = flightOf(uint16(r.suite), uint16(r.group), nil)
	for _, e := range r.extensions {
		f.Extensions = append(f.Extensions, uint16(e))
	}
	f.EchoesSessionID = bytes.Equal(r.sessionID, probeID[:])
	var records []int
	for len(rest) > 0 {
		var typ byte
		var payload []byte
		if typ, payload, rest, err = splitRecord(rest); err != nil {
			t.Fatal(err)
		}
		if typ == 23 {
			records = append(records, len(payload))
		}
	}
	f.Records = [][]int{records}
	return f
}

// frontReply is all that crypto/tls sends to a hello alone.
func frontReply(t *testing.T, raw []byte, config *tls.Config) []byte {
	t.Helper()
	conn := &oneShot{in: bytes.NewReader(raw)}
	if err := tls.Server(conn, config).Handshake(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return conn.out.Bytes()
}

func rsaSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0), DNSNames: []string{alice.Host}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
