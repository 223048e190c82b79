package tlsfront

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// reply is a reply taken apart by code that shares nothing with the one that made it.
type reply struct {
	random, sessionID []byte
	suite, group      int
	share             []byte
	extensions        []int // in order
	flight            []byte
}

func splitRecord(b []byte) (typ byte, payload, rest []byte, err error) {
	if len(b) < 5 || b[1] != 3 || b[2] != 3 || len(b) < 5+int(b[3])<<8+int(b[4]) {
		return 0, nil, nil, fmt.Errorf("no whole record at % x", b[:min(8, len(b))])
	}
	n := 5 + int(b[3])<<8 + int(b[4])
	return b[0], b[5:n], b[n:], nil
}

// splitReply insists on the three records that clients take and on nothing else.
func splitReply(b []byte) (r reply, err error) {
	typ, hello, rest, err := splitRecord(b)
	if err != nil || typ != 22 {
		return r, fmt.Errorf("record 1: type %d, %w", typ, err)
	}
	typ, body, rest, err := splitRecord(rest)
	if err != nil || typ != 20 || !bytes.Equal(body, []byte{1}) {
		return r, fmt.Errorf("record 2: type %d, body %x, %w", typ, body, err)
	}
	typ, flight, rest, err := splitRecord(rest)
	if err != nil || typ != 23 || len(flight) == 0 || len(rest) > 0 {
		return r, fmt.Errorf("record 3: type %d, %d bytes and %d behind it, %w", typ, len(flight), len(rest), err)
	}
	r.flight = flight
	return r, r.parse(hello)
}

func (r *reply) parse(m []byte) error {
	if len(m) < 39 || m[0] != 2 || int(m[1])<<16|int(m[2])<<8|int(m[3]) != len(m)-4 || m[4] != 3 || m[5] != 3 {
		return fmt.Errorf("ServerHello starts with % x", m[:min(8, len(m))])
	}
	r.random = m[6:38]
	n := int(m[38])
	r.sessionID, m = m[39:39+n], m[39+n:]
	r.suite = int(binary.BigEndian.Uint16(m))
	if m[2] != 0 || int(binary.BigEndian.Uint16(m[3:])) != len(m)-5 {
		return fmt.Errorf("compression and extensions: % x", m[2:5])
	}
	for m = m[5:]; len(m) > 0; {
		typ, n := int(binary.BigEndian.Uint16(m)), int(binary.BigEndian.Uint16(m[2:]))
		body := m[4 : 4+n]
		r.extensions, m = append(r.extensions, typ), m[4+n:]
		switch typ {
		case 43:
			if !bytes.Equal(body, []byte{3, 4}) {
				return fmt.Errorf("supported_versions: % x", body)
			}
		case 51:
			r.group, r.share = int(binary.BigEndian.Uint16(body)), body[4:]
			if int(binary.BigEndian.Uint16(body[2:])) != len(r.share) {
				return fmt.Errorf("key_share: % x", body[:4])
			}
		}
	}
	return nil
}

// provesSecret is the check of a client.
func provesSecret(b []byte, key [16]byte, clientRandom []byte) bool {
	zeroed := bytes.Clone(b)
	copy(zeroed[11:43], make([]byte, 32))
	mac := hmac.New(sha256.New, key[:])
	mac.Write(append(bytes.Clone(clientRandom), zeroed...))
	return hmac.Equal(b[11:43], mac.Sum(nil))
}

// answered accepts raw and returns what AppendReply makes of it when nothing is known of the front.
func answered(t testing.TB, g *Gate, c captured, raw []byte, mss int) []byte {
	t.Helper()
	return answeredLike(t, g, c, raw, mss, nil)
}

func answeredLike(t testing.TB, g *Gate, c captured, raw []byte, mss int, p *Profile) []byte {
	t.Helper()
	h, v := judged(g, raw, c.time)
	if v != Accepted {
		t.Fatalf("%v (%v)", v, h.Reason())
	}
	return g.AppendReply(nil, h, raw, mss, p)
}

func TestReply(t *testing.T) {
	for _, c := range capturedHellos(t) {
		t.Run(c.name, func(t *testing.T) {
			g := gateFor(bob, c.secret)
			cut := recut(c.raw, 0x0303, 100, 200, 1000%len(c.raw))
			for i, raw := range [][]byte{c.raw, cut} {
				raw = bytes.Clone(raw)
				b := answered(t, g, c, raw, 1448)
				scribble(raw) // nothing may point into it
				r, err := splitReply(b)
				if err != nil {
					t.Fatal(err)
				}
				if !provesSecret(b, c.secret.Key, c.raw[11:43]) {
					t.Fatalf("%d: a client would not believe it", i)
				}
				if !bytes.Equal(r.sessionID, c.raw[44:76]) {
					t.Fatalf("%d: session id % x", i, r.sessionID)
				}
				group, length := 0x001d, 32
				if len(c.raw) > 1000 {
					group, length = 0x11ec, 1120
				}
				if r.suite != 0x1301 || r.group != group || len(r.share) != length || !slices.Equal(r.extensions, []int{43, 51}) {
					t.Fatalf("%d: suite %04x, group %04x, share of %d, extensions %v", i, r.suite, r.group, len(r.share), r.extensions)
				}
				if n := len(r.flight); n < minUnknownFlight || n > maxUnknownFlight+2 {
					t.Fatalf("%d: flight of %d", i, n)
				}
			}
		})
	}
}

// TestReplyGolden fixes every byte. Rewritten by -update.
func TestReplyGolden(t *testing.T) {
	for _, c := range capturedHellos(t) {
		file := filepath.Join("testdata/reply", c.name+".txt")
		got := answered(t, gateFor(c.secret), c, c.raw, 0)
		if *update {
			writeGolden(t, file, fmt.Sprintf("hello: %s\nrandom: chacha8 01\nmss: 0\n", c.name), got)
		}
		if _, want := readGolden(t, file); !bytes.Equal(got, want) {
			t.Errorf("%s: the reply differs; review, then -update", c.name)
		}
	}
}

// TestReplyAppends: dst keeps what it holds.
func TestReplyAppends(t *testing.T) {
	c := capturedHellos(t)[0]
	want := answered(t, gateFor(c.secret), c, c.raw, 0)
	g := gateFor(c.secret)
	h, _ := judged(g, c.raw, c.time)
	if got := g.AppendReply([]byte("before"), h, c.raw, 0, nil); string(got) != "before"+string(want) {
		t.Fatal("not appended")
	}
}

// TestReplyLikeGo compares our ServerHello with the one that crypto/tls sends to the same client: everything that an
// observer can compare is equal.
func TestReplyLikeGo(t *testing.T) {
	cert := selfSigned(t)
	for _, c := range capturedHellos(t) {
		var info *tls.ClientHelloInfo
		theirs := goServerHello(t, c.raw, &tls.Config{
			Certificates:       []tls.Certificate{cert},
			GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) { info = i; return nil, nil },
		})
		h, _ := judged(gateFor(c.secret), c.raw, c.time)
		ours, err := splitReply(answered(t, gateFor(c.secret), c, c.raw, 0))
		if err != nil {
			t.Fatal(err)
		}
		if info.ServerName != h.ServerName() || !slices.Contains(info.CipherSuites, uint16(ours.suite)) {
			t.Errorf("%s: crypto/tls reads %q %x", c.name, info.ServerName, info.CipherSuites)
		}
		if theirs.group != ours.group || len(theirs.share) != len(ours.share) ||
			!bytes.Equal(theirs.sessionID, ours.sessionID) || !slices.Equal(theirs.extensions, ours.extensions) {
			t.Errorf("%s: crypto/tls answers with group %04x, share of %d, session id %x, extensions %v",
				c.name, theirs.group, len(theirs.share), theirs.sessionID, theirs.extensions)
		}
	}
}

// TestGoClients lets crypto/tls generate hellos and compares what we read with how they were asked for.
func TestGoClients(t *testing.T) {
	tests := []struct {
		host   string
		curves []tls.CurveID
		offer  offer
	}{
		{"www.example.com", nil, offer{x25519: true, hybrid: true}},
		{"Mixed.Example.ORG", []tls.CurveID{tls.X25519}, offer{x25519: true}},
		{"a.example", []tls.CurveID{tls.X25519MLKEM768}, offer{hybrid: true}},
		{"b.example", []tls.CurveID{tls.CurveP256, tls.CurveP384}, offer{}},
		{"", []tls.CurveID{tls.CurveP384}, offer{}},
	}
	for _, tt := range tests {
		raw := goClientHello(t, &tls.Config{ServerName: tt.host, CurvePreferences: tt.curves, InsecureSkipVerify: true})
		for cut := range raw {
			h := new(Hello)
			if v := feedIn(h, raw, cut); v != Whole || h.Len() != len(raw) {
				t.Fatalf("%q: %v (%v)", tt.host, v, h.Reason())
			}
			want := tt.offer
			want.serverName, want.tls13 = canonicalHost([]byte(tt.host)), true
			want.seen, want.suite, want.suites = h.offer.seen, h.offer.suite, 0b111
			if h.offer != want || h.offer.suite>>8 != 0x13 {
				t.Fatalf("%q: %+v, want %+v", tt.host, h.offer, want)
			}
		}
	}
}

func TestSuiteChoice(t *testing.T) {
	tests := []struct {
		offer []byte
		want  int
	}{
		{words(0x1a1a, 0x1301, 0x1302, 0x1303), 0x1301},
		{words(0x1302, 0x1303, 0x1301, 0xc02c), 0x1302}, // Apple
		{words(0xc02b, 0xcca9, 0x1303), 0x1303},
		{words(0x1304, 0x1301), 0x1301},
	}
	for _, tt := range tests {
		p := plainParts()
		p.suites = vector(2, tt.offer)
		raw := signHello(p.record(), alice.Key, now)
		g := gateFor(alice)
		r, err := splitReply(answered(t, g, captured{time: now}, raw, 0))
		if err != nil || r.suite != tt.want {
			t.Errorf("%x: %04x, %v", tt.offer, r.suite, err)
		}
		more := 0 // a Finished of SHA-384
		if tt.want == 0x1302 {
			more = 16
		}
		if n := len(r.flight) - g.secrets[0].flight; n < more || n > more+2 {
			t.Errorf("suite %04x: flight %+d", r.suite, n)
		}
	}
}

// TestGroupByMSS: no segment may end in the 11 bytes behind the ServerHello if the client lets us choose.
func TestGroupByMSS(t *testing.T) {
	both := keyShareExtension(share(groupX25519MLKEM768, 1216), share(groupX25519, 32))
	hybrid := keyShareExtension(share(groupX25519MLKEM768, 1216))
	sessionID := vector(1, make([]byte, 32))
	tests := []struct {
		name              string
		mss               int
		sessionID, shares []byte
		group             int
	}{
		{"unknown", 0, sessionID, both, groupX25519MLKEM768},
		{"Ethernet", 1448, sessionID, both, groupX25519MLKEM768},
		{"IPv6 with the smallest MTU", 1220, sessionID, both, groupX25519},
		{"the same with timestamps", 1208, sessionID, both, groupX25519MLKEM768},
		{"one byte short", 1214, sessionID, both, groupX25519MLKEM768},
		{"at the end of the record", 1215, sessionID, both, groupX25519},
		{"before the last byte", 1225, sessionID, both, groupX25519},
		{"behind the last header", 1226, sessionID, both, groupX25519MLKEM768},
		{"second segment", 612, sessionID, both, groupX25519},
		{"second segment behind", 613, sessionID, both, groupX25519MLKEM768},
		{"no choice", 1220, sessionID, hybrid, groupX25519MLKEM768},
		{"no session id", 1220, []byte{0}, both, groupX25519MLKEM768},
		{"no session id, shorter", 1183, []byte{0}, both, groupX25519},
	}
	for _, tt := range tests {
		p := plainParts()
		p.sessionID = tt.sessionID
		p.extensions = vector(2, join(serverNameExtension(alice.Host), extension(43, vector(1, words(0x0304))), tt.shares))
		raw := signHello(p.record(), alice.Key, now)
		b := answered(t, gateFor(alice), captured{time: now}, raw, tt.mss)
		r, err := splitReply(b)
		if err != nil || r.group != tt.group {
			t.Errorf("%s: group %04x, %v", tt.name, r.group, err)
		}
	}
}

// TestFlightLength: a host's length is its own but for the two bytes by which ECDSA signatures vary, in the proportion
// 1 : 2 : 1, and all secrets of a host share it.
func TestFlightLength(t *testing.T) {
	other := alice
	other.Key = [16]byte{99}
	secrets := []Secret{alice, bob, other}
	g := gateFor(secrets...)
	base := g.secrets[0].flight
	if base != g.secrets[2].flight || base == g.secrets[1].flight || base < minUnknownFlight || base > maxUnknownFlight {
		t.Fatal(base, g.secrets[1].flight, g.secrets[2].flight)
	}
	if again := gateFor(secrets...); again.secrets[0].flight != base {
		t.Fatal("another length at the next start")
	}
	raw := signed(alice.Key, now, alice.Host)
	var counts [3]int
	for range 2000 {
		r, err := splitReply(answered(t, g, captured{time: now}, raw, 0))
		if err != nil {
			t.Fatal(err)
		}
		counts[len(r.flight)-base]++
	}
	if counts[0] < 400 || counts[1] < 888 || counts[2] < 400 { // 500, 1000, 500 less 5 sigma
		t.Fatal(counts)
	}
}

func TestReplyAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range capturedHellos(t) {
		g := NewGate([]Secret{c.secret}, tolerance, nil, rand.Reader)
		h, _ := judged(g, c.raw, c.time)
		dst := make([]byte, 0, 4900)
		if n := testing.AllocsPerRun(50, func() { g.AppendReply(dst, h, c.raw, 0, nil) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func TestReplyFitsItsPromise(t *testing.T) {
	const others = serverHelloLen + maxSessionIDLen + hybridShareLen + behindServerHello
	const longestUnknown = maxUnknownFlight + 16 + 2 // a Finished of SHA-384, a signature
	if others+longestUnknown > 4900 || longestUnknown > maxFlight || others+maxFlight > 11500 {
		t.Fatal(others)
	}
}

func TestReplyTooEarly(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	raw := signed(bob.Key, now, bob.Host)
	g := gateFor(alice)
	h, _ := judged(g, raw, now)
	g.AppendReply(nil, h, raw, 0, nil)
}

// oneShot is a connection that delivers in, then nothing more, and keeps what is written.
type oneShot struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *oneShot) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *oneShot) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *oneShot) Close() error                { return nil }

func goServerHello(t *testing.T, clientHello []byte, config *tls.Config) (r reply) {
	t.Helper()
	conn := &oneShot{in: bytes.NewReader(clientHello)}
	if err := tls.Server(conn, config).Handshake(); err == nil {
		t.Fatal("a handshake with a hello alone")
	}
	typ, hello, _, err := splitRecord(conn.out.Bytes())
	if err != nil || typ != 22 {
		t.Fatal(typ, err)
	}
	if err := r.parse(hello); err != nil {
		t.Fatal(err)
	}
	return r
}

func goClientHello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	conn := &oneShot{in: bytes.NewReader(nil)}
	if err := tls.Client(conn, config).Handshake(); err == nil {
		t.Fatal("a handshake with nobody")
	}
	n := 5 + int(binary.BigEndian.Uint16(conn.out.Bytes()[3:]))
	return conn.out.Bytes()[:n]
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0), DNSNames: []string{"www.example.com"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
