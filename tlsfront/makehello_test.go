package tlsfront

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
)

var helloKinds = []HelloKind{HelloHybrid, HelloX25519, HelloAES256, HelloClassic}

var probeID = [32]byte{0xa1, 31: 0xb2}

func made(t testing.TB, kind HelloKind, host string, key *[16]byte, rnd io.Reader) ([]byte, helloFields) {
	t.Helper()
	raw := AppendClientHello(nil, kind, host, probeID, key, now, rnd)
	f, err := splitHello(raw)
	if err != nil {
		t.Fatalf("%v: %v", kind, err)
	}
	return raw, f
}

// TestMadeLikeCaptured: each captured hello is one that we make too, but for what a client draws anew for each.
func TestMadeLikeCaptured(t *testing.T) {
	kinds := map[string]HelloKind{
		"tdlib-1.8.65-1": HelloHybrid, "tdlib-1.8.65-2": HelloHybrid,
		"gotd-0.161.0-1": HelloHybrid, "mtcute-0.30.3-1": HelloHybrid,
		"tdlib-1.8.29": HelloClassic,
	}
	ours := make(map[string]HelloKind) // by structure
	for _, kind := range helloKinds {
		rnd := fixed(byte(kind))
		for range 100 {
			_, f := made(t, kind, "www.example.com", nil, rnd)
			ours[strings.Join(sortShuffled(f.structure()), "\n")] = kind
		}
	}
	for _, c := range capturedHellos(t) {
		want, ok := kinds[c.name]
		if !ok {
			continue // of another shape: TDLib 1.8.0 in a fixed order, 1.8.58 with an ECH draft
		}
		f, err := splitHello(c.raw)
		if err != nil {
			t.Fatal(c.name, err)
		}
		theirs := strings.Join(sortShuffled(f.structure()), "\n")
		if kind, ok := ours[theirs]; !ok || kind != want {
			t.Errorf("%s is not of kind %v:\n%s", c.name, want, theirs)
		}
		delete(kinds, c.name)
	}
	if len(kinds) > 0 {
		t.Errorf("not captured: %v", kinds)
	}
}

// TestMadeX25519: the hybrid shape less one group and its share, padded when that makes it short.
func TestMadeX25519(t *testing.T) {
	_, hybrid := made(t, HelloHybrid, "www.example.com", nil, fixed(1))
	rnd := fixed(2)
	padded := 0
	for range 100 {
		raw, f := made(t, HelloX25519, "www.example.com", nil, rnd)
		want := sortShuffled(hybrid.structure())
		for i, line := range want {
			switch {
			case strings.HasPrefix(line, "000a"):
				want[i] = "000a+10 0008 [0a0a 001d 0017 0018]"
			case strings.HasPrefix(line, "0033"):
				want[i] = "0033+43 [0a0a]=00 [001d]+32 "
			case strings.HasPrefix(line, "fe0d"):
				ech := f.body(0xfe0d)
				want[i] = fmt.Sprintf("fe0d+%d 0000010001 0020 %x", len(ech), ech[40:42])
			}
		}
		if len(f.body(0xfe0d)) == 186 {
			want = append(want, "0015+10 00000000000000000000")
			padded++
		}
		if got := sortShuffled(f.structure()); !slices.Equal(got, want) {
			t.Fatalf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := len(raw); n != 517 && n != 535 && n != 567 && n != 599 {
			t.Fatal(n)
		}
	}
	if padded == 0 || padded == 100 {
		t.Fatal(padded, "of 100 padded")
	}
}

// TestMadeAES256 spells out what Apple's builds send, in its order.
func TestMadeAES256(t *testing.T) {
	raw, f := made(t, HelloAES256, "www.example.com", nil, fixed(1))
	want := []string{
		"suites [0a0a 1302 1303 1301 c02c c02b cca9 c030 c02f cca8 c00a c009 c014 c013 009d 009c 0035 002f c008 c012 000a]",
		"0a0a+0 ",
		"0000+20 001200000f7777772e6578616d706c652e636f6d",
		"0017+0 ",
		"ff01+1 00",
		"000a+14 000c [0a0a 11ec 001d 0017 0018 0019]",
		"000b+2 0100",
		"0010+14 000c02683208687474702f312e31",
		"0005+5 0100000000",
		"000d+22 00140403080404010503080508050501080606010201",
		"0012+0 ",
		"0033+1263 [0a0a]=00 [11ec]+1216 [001d]+32 ",
		"002d+2 0101",
		"002b+7 06 [0a0a 0304 0303]",
		"001b+3 020001",
		"0a0a+1 00",
	}
	if got := f.structure(); !slices.Equal(got, want) || len(raw) != 1538 {
		t.Fatalf("%d bytes:\n%s", len(raw), strings.Join(got, "\n"))
	}
}

// TestMadeLengths: every length of name that a secret can carry, and the longest that DNS and TLS know.
func TestMadeLengths(t *testing.T) {
	// but for name and padding
	shortest := map[HelloKind]int{HelloHybrid: 1710, HelloX25519: 488, HelloAES256: 1523, HelloClassic: 298}
	for _, kind := range helloKinds {
		rnd := fixed(3)
		for n := 1; n <= maxServerNameLen; n++ {
			host := strings.Repeat("a", n)
			raw, f := made(t, kind, host, &alice.Key, rnd)
			more := 0
			if ech := f.body(0xfe0d); ech != nil {
				more = len(ech) - 186
			}
			want := shortest[kind] + n + more
			if padding := slices.Contains(f.types(), 21); padding != (want < 513) {
				t.Fatalf("%v: padding %v at %d bytes", kind, padding, want)
			} else if padding {
				want = 517
			}
			if len(raw) != want || kind == HelloClassic && n <= 182 && len(raw) != 517 {
				t.Fatalf("%v: %d bytes with a name of %d, want %d", kind, len(raw), n, want)
			}
			secret := Secret{Host: host, Key: alice.Key}
			if h, v := judged(gateFor(secret), raw, now); v != Accepted || h.ServerName() != host {
				t.Fatalf("%v with a name of %d: %v (%v)", kind, n, v, h.Reason())
			}
		}
	}
}

// TestMadeVary: 200 hellos of a kind have nothing random in common, and everything else.
func TestMadeVary(t *testing.T) {
	for _, kind := range helloKinds {
		rnd := fixed(4)
		seen := make(map[string]bool)
		fresh := func(what string, b []byte) {
			if t.Helper(); seen[string(b)] {
				t.Fatalf("%v: %s came twice", kind, what)
			}
			seen[string(b)] = true
		}
		ja3, ja4 := make(map[string]int), make(map[string]int)
		echSizes := make(map[int]int)
		for range 200 {
			raw, f := made(t, kind, "www.example.com", nil, rnd)
			fresh("hello", raw)
			fresh("random", raw[11:43])
			for _, s := range f.shares() {
				if isGrease(s.group) {
					continue
				}
				for part := range slices.Chunk(s.key, 32) { // 37 of ML-KEM, one of X25519
					fresh("part of a share", part)
				}
			}
			if ech := f.body(0xfe0d); ech != nil {
				fresh("ECH key", ech[8:40])
				fresh("ECH payload", ech[42:])
				echSizes[len(ech)]++
			}
			if !bytes.Equal(f.sessionID, probeID[:]) {
				t.Fatalf("%v: session id % x", kind, f.sessionID)
			}
			ungreased := func(words []uint16) []uint16 { return slices.DeleteFunc(slices.Clone(words), isGrease) }
			types := ungreased(f.types())
			ja3[fmt.Sprint(ungreased(f.suites), types, ungreased(f.groups()), f.body(11))]++
			slices.Sort(types)
			ja4[fmt.Sprint(len(f.suites), types, pairs(f.body(13)), string(f.body(16)))]++
		}
		wantJA3, wantJA4, wantSizes := 200, 1, 4
		switch kind {
		case HelloX25519:
			wantJA4 = 2 // padded and not
		case HelloClassic:
			wantSizes = 0
		case HelloAES256:
			wantJA3, wantSizes = 1, 0
		}
		if len(ja3) != wantJA3 || len(ja4) != wantJA4 || len(echSizes) != wantSizes {
			t.Errorf("%v: %d JA3, %d JA4, ECH %v", kind, len(ja3), len(ja4), echSizes)
		}
		for n, count := range echSizes {
			if !slices.Contains([]int{186, 218, 250, 282}, n) || count < 20 { // of 50
				t.Errorf("%v: ECH %v", kind, echSizes)
			}
		}
	}
}

// TestMadeGrease: all 16 values come, in each of their five places; the two extensions differ; the share is for the
// group that was named.
func TestMadeGrease(t *testing.T) {
	for _, kind := range helloKinds {
		rnd := fixed(5)
		places := make(map[string]map[uint16]bool)
		take := func(place string, w uint16) {
			if places[place] == nil {
				places[place] = make(map[uint16]bool)
			}
			if places[place][w] = true; !isGrease(w) {
				t.Fatalf("%v: %s %04x", kind, place, w)
			}
		}
		for range 200 {
			_, f := made(t, kind, "a.example", nil, rnd)
			types := slices.DeleteFunc(f.types(), func(w uint16) bool { return w == 21 })
			first, last := types[0], types[len(types)-1]
			take("suite", f.suites[0])
			take("first extension", first)
			take("last extension", last)
			take("group", f.groups()[0])
			take("version", pairs(f.body(43)[1:])[0])
			if first == last || f.shares()[0].group != f.groups()[0] {
				t.Fatalf("%v: extensions %04x and %04x, %04x, %04x", kind, first, last, f.groups(), f.shares()[0].group)
			}
		}
		for place, values := range places {
			if len(values) != 16 {
				t.Errorf("%v: %d values as %s", kind, len(values), place)
			}
		}
	}
}

// TestMadeOrder: a shuffled extension is as likely in one place as in another.
func TestMadeOrder(t *testing.T) {
	const hellos = 4000
	for _, kind := range []HelloKind{HelloHybrid, HelloX25519, HelloClassic} {
		rnd := fixed(6)
		counts := make(map[[2]int]int) // type, place
		n := len(helloShapes[kind].extensions)
		for range hellos {
			m := helloMaker{helloShape: &helloShapes[kind], rnd: rnd}
			for at, typ := range m.order() {
				counts[[2]int{int(typ), at}]++
			}
		}
		if len(counts) != n*n {
			t.Fatalf("%v: %d of %d places", kind, len(counts), n*n)
		}
		want := float64(hellos) / float64(n)
		for place, got := range counts {
			if math.Abs(float64(got)-want) > 5*math.Sqrt(want) {
				t.Errorf("%v: extension %04x in place %d: %d times, want %.0f", kind, place[0], place[1], got, want)
			}
		}
	}
}

// TestMadeShares: crypto's own packages take the shares, and the coefficients of the ML-KEM keys are uniform.
func TestMadeShares(t *testing.T) {
	const keys = 400
	rnd := fixed(7)
	counts := make([]int, mlkemQ)
	for range keys {
		_, f := made(t, HelloHybrid, "a.example", nil, rnd)
		points := [][]byte{f.body(0xfe0d)[8:40]}
		for _, s := range f.shares()[1:] {
			points = append(points, s.key[len(s.key)-32:])
		}
		for _, point := range points {
			if _, err := ecdh.X25519().NewPublicKey(point); err != nil || !onCurve(point) {
				t.Fatalf("%x: %v", point, err)
			}
		}
		encapsulation := f.shares()[1].key[:1184]
		if _, err := mlkem.NewEncapsulationKey768(encapsulation); err != nil {
			t.Fatal(err)
		}
		for i := range 768 {
			b := encapsulation[i*12/8:]
			counts[(int(b[0])|int(b[1])<<8)>>(i%2*4)&0xfff]++
		}
	}
	sum, want := 0.0, float64(keys*768)/mlkemQ
	for _, n := range counts {
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	if sigma := (sum - (mlkemQ - 1)) / math.Sqrt(2*(mlkemQ-1)); math.Abs(sigma) > 5 {
		t.Errorf("coefficients are %+.1f sigma from uniform", sigma)
	}
}

// onCurve reports whether some y goes with u on Curve25519 (RFC 7748 §4.1): whether u³ + 486662u² + u is a square.
func onCurve(u []byte) bool {
	le := slices.Clone(u)
	slices.Reverse(le)
	x := new(big.Int).SetBytes(le)
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	sum := new(big.Int).Add(x, big.NewInt(486662))
	sum.Mul(sum, x).Add(sum, big.NewInt(1)).Mul(sum, x).Mod(sum, p)
	return big.Jacobi(sum, p) == 1
}

// TestMadeServed: a real server answers each kind up to its Finished, with the group and the suite that are meant, and
// reads the same offers.
func TestMadeServed(t *testing.T) {
	tests := []struct {
		kind  HelloKind
		group int
		share int
	}{
		{HelloHybrid, 0x11ec, 1120},
		{HelloX25519, 0x001d, 32},
		{HelloAES256, 0x11ec, 1120},
		{HelloClassic, 0x001d, 32},
	}
	cert := selfSigned(t)
	// Go does not go by the client's order, but by whether the machine has AES in hardware.
	genuine, _ := served(t, capturedHellos(t)[0].raw, &tls.Config{Certificates: []tls.Certificate{cert}})
	for _, tt := range tests {
		for _, key := range []*[16]byte{nil, &alice.Key} {
			for range 20 {
				raw, f := made(t, tt.kind, "www.example.com", key, rand.Reader)
				var info *tls.ClientHelloInfo
				r, records := served(t, raw, &tls.Config{
					Certificates:       []tls.Certificate{cert},
					NextProtos:         []string{"h2", "http/1.1"},
					GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) { info = i; return nil, nil },

					SessionTicketsDisabled: true, // it sends them at once, without the client's Finished
				})
				if r.group != tt.group || len(r.share) != tt.share || !bytes.Equal(r.sessionID, probeID[:]) {
					t.Fatalf("%v: group %04x, share of %d, session id %x", tt.kind, r.group, len(r.share), r.sessionID)
				}
				if r.suite != genuine.suite {
					t.Fatalf("%v: suite %04x, and %04x to a real client", tt.kind, r.suite, genuine.suite)
				}
				// CCS, then EncryptedExtensions, Certificate, CertificateVerify, Finished
				if !bytes.Equal(records, []byte{20, 23, 23, 23, 23}) {
					t.Fatalf("%v: records % d behind the ServerHello", tt.kind, records)
				}
				if info.ServerName != "www.example.com" || !slices.Equal(info.SupportedProtos, []string{"h2", "http/1.1"}) ||
					!slices.Equal(info.CipherSuites, f.suites) || !slices.Equal(info.Extensions, f.types()) {
					t.Fatalf("%v: crypto/tls reads %+v", tt.kind, info)
				}
			}
		}
	}
}

// served lets crypto/tls answer raw, and returns its ServerHello and the types of the records behind it.
func served(t *testing.T, raw []byte, config *tls.Config) (r reply, types []byte) {
	t.Helper()
	conn := &oneShot{in: bytes.NewReader(raw)}
	if err := tls.Server(conn, config).Handshake(); !errors.Is(err, io.EOF) { // no client's Finished comes
		t.Fatal(err)
	}
	_, hello, rest, err := splitRecord(conn.out.Bytes())
	for err == nil && len(rest) > 0 {
		var typ byte
		typ, _, rest, err = splitRecord(rest)
		types = append(types, typ)
	}
	if err = errors.Join(err, r.parse(hello)); err != nil {
		t.Fatal(err)
	}
	return r, types
}

// TestMadeProves: signed hellos are a secret holder's, to our gate and cut over records; nothing else is.
func TestMadeProves(t *testing.T) {
	for _, kind := range helloKinds {
		g := gateFor(bob, alice)
		suite := map[HelloKind]int{HelloAES256: 0x1302}[kind]
		if suite == 0 {
			suite = 0x1301
		}
		raw, _ := made(t, kind, alice.Host, &alice.Key, fixed(8))
		h, v := judged(g, raw, now+30)
		if v != Accepted || h.Secret() != 1 || h.Skew().Seconds() != -30 {
			t.Fatalf("%v: %v (%v), secret %d, skew %v", kind, v, h.Reason(), h.Secret(), h.Skew())
		}
		if r, err := splitReply(g.AppendReply(nil, h, raw, 0, nil)); err != nil || r.suite != suite || !bytes.Equal(r.sessionID, probeID[:]) {
			t.Fatalf("%v: our reply: suite %04x, %v", kind, r.suite, err)
		}
		if h, v := judged(g, recut(raw, 0x0303, 1, 60, 300), now); v != Accepted {
			t.Fatalf("%v in 4 records: %v (%v)", kind, v, h.Reason())
		}
		if h, v := judged(g, raw, now+121); v != Front || h.Reason() != ReasonClock {
			t.Fatalf("%v too late: %v (%v)", kind, v, h.Reason())
		}
		if h, v := judged(gateFor(bob), raw, now); v != Front || h.Reason() != ReasonDigest {
			t.Fatalf("%v with another key: %v (%v)", kind, v, h.Reason())
		}
		unsigned, _ := made(t, kind, alice.Host, nil, fixed(8))
		if h, v := judged(g, unsigned, now); v != Front || h.Reason() != ReasonDigest {
			t.Fatalf("%v unsigned: %v (%v)", kind, v, h.Reason())
		}
		for at := range raw {
			if at >= 39 && at < 43 {
				continue // the stamp, which the digest does not cover
			}
			altered := bytes.Clone(raw)
			altered[at] ^= 1 << (at % 8)
			if _, v := judged(g, altered, now); v == Accepted {
				t.Fatalf("%v: accepted with byte %d altered", kind, at)
			}
		}
		clear(raw[11:43])
		clear(unsigned[11:43])
		if !bytes.Equal(raw, unsigned) {
			t.Fatalf("%v: a key changes more than the random", kind)
		}
	}
}

// TestMadeAppends: dst keeps what it holds, and the digest does not cover that.
func TestMadeAppends(t *testing.T) {
	for _, kind := range helloKinds {
		want, _ := made(t, kind, alice.Host, &alice.Key, fixed(9))
		for _, dst := range [][]byte{[]byte("before"), append(make([]byte, 0, 4096), "before"...)} {
			got := AppendClientHello(dst, kind, alice.Host, probeID, &alice.Key, now, fixed(9))
			if string(got) != "before"+string(want) {
				t.Fatalf("%v: not appended", kind)
			}
		}
	}
}

// TestMadeGolden fixes every byte. Rewritten by -update.
func TestMadeGolden(t *testing.T) {
	for _, kind := range helloKinds {
		file := "testdata/makehello/" + kind.String() + ".txt"
		got, _ := made(t, kind, alice.Host, &alice.Key, fixed(1))
		if *update {
			writeGolden(t, file, fmt.Sprintf("kind: %v\nsecret: ee%x%x\ntime: %d\nrandom: chacha8 01\n", kind, alice.Key, alice.Host, now), got)
		}
		if _, want := readGolden(t, file); !bytes.Equal(got, want) {
			t.Errorf("%v: the hello differs; review, then -update", kind)
		}
	}
}

func TestMadeBadName(t *testing.T) {
	for _, host := range []string{"", strings.Repeat("a", 256)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for a name of %d bytes", len(host))
				}
			}()
			AppendClientHello(nil, HelloHybrid, host, probeID, nil, 0, rand.Reader)
		}()
	}
}

func BenchmarkAppendClientHello(b *testing.B) {
	for _, kind := range helloKinds {
		b.Run(kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]byte, 0, 4096)
			for b.Loop() {
				AppendClientHello(dst, kind, "www.example.com", probeID, &alice.Key, now, rand.Reader)
			}
		})
	}
}
