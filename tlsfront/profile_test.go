package tlsfront

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// flightOf is a flight as a scout would have seen it.
func flightOf(suite, group uint16, extensions []uint16, records ...[]int) Flight {
	return Flight{
		OK: true, Version: 0x0304, Suite: suite, Group: group, Extensions: extensions, EchoesSessionID: true, Records: records,
	}
}

// frontOf is a front that answers the four kinds of hello (hybrid, x25519, aes256, classic) with these suites.
func frontOf(suites [4]uint16, hybridGroup uint16, extensions []uint16, records ...[]int) *Profile {
	groups := [4]uint16{hybridGroup, 0x001d, hybridGroup, 0x001d}
	p := new(Profile)
	for k := range p.Flights {
		p.Flights[k] = flightOf(suites[k], groups[k], extensions, records...)
	}
	return p
}

var (
	byClient      = [4]uint16{0x1301, 0x1301, 0x1302, 0x1301}
	versionsFirst = []uint16{43, 51}
	shareFirst    = []uint16{51, 43}

	openssl = frontOf(byClient, 0x11ec, versionsFirst, []int{42, 441, 96, 53})
)

// knownFronts maps what a front does to a profile of it.
var knownFronts = map[string]*Profile{
	"nothing known":       nil,
	"no flight known":     {},
	"client's order":      openssl,
	"no hybrid group":     frontOf(byClient, 0x001d, versionsFirst, []int{3000}),
	"key_share first":     frontOf(byClient, 0x11ec, shareFirst, []int{3000}),
	"prefers AES-128":     frontOf([4]uint16{0x1301, 0x1301, 0x1301, 0x1301}, 0x11ec, versionsFirst, []int{3000}),
	"prefers AES-256":     frontOf([4]uint16{0x1302, 0x1302, 0x1302, 0x1302}, 0x11ec, versionsFirst, []int{3016}),
	"prefers ChaCha20":    frontOf([4]uint16{0x1303, 0x1303, 0x1303, 0x1303}, 0x11ec, versionsFirst, []int{3000}),
	"no records":          frontOf(byClient, 0x11ec, shareFirst),
	"P-384":               everyFlight(flightOf(0x1301, 0x0018, shareFirst, []int{3000})),
	"TLS_AES_128_CCM":     frontOf([4]uint16{0x1304, 0x1304, 0x1304, 0x1304}, 0x11ec, shareFirst, []int{3000}),
	"HelloRetryRequest":   everyFlight(Flight{Retry: true, Version: 0x0304, Suite: 0x1301, Group: 0x0017, Extensions: shareFirst}),
	"TLS 1.2":             everyFlight(Flight{Version: 0x0303, Suite: 0xc02f, Extensions: []uint16{0xff01, 11}}),
	"endless certificate": frontOf(byClient, 0x11ec, versionsFirst, []int{16401, 16401, 9000}),
	"shortest":            frontOf([4]uint16{0x1302, 0x1302, 0x1302, 0x1302}, 0x11ec, versionsFirst, []int{18}),
	"other extensions":    frontOf(byClient, 0x11ec, []uint16{0xff01, 51, 0, 43}, []int{3000}),
	"only key_share":      frontOf(byClient, 0x11ec, []uint16{51}, []int{3000}),
}

func everyFlight(f Flight) *Profile {
	return &Profile{Flights: [NumHelloKinds]Flight{f, f, f, f}}
}

// helloOffering is alice's hello with these suites and shares and nothing else of interest.
func helloOffering(suites []byte, shares ...[]byte) []byte {
	p := plainParts()
	p.suites = vector(2, suites)
	p.extensions = vector(2, join(
		serverNameExtension(alice.Host), extension(43, vector(1, words(0x0304))), keyShareExtension(shares...),
	))
	return signHello(p.record(), alice.Key, now)
}

// offeredHellos are hellos of alice: those that we make ourselves, and some that no client of today sends.
func offeredHellos(t testing.TB) map[string][]byte {
	t.Helper()
	hybrid, x25519 := share(groupX25519MLKEM768, 1216), share(groupX25519, 32)
	all := map[string][]byte{
		"AES-256 first, X25519":   helloOffering(words(0x1302, 0x1303, 0x1301), x25519),
		"AES-256 only":            helloOffering(words(0x1302), hybrid, x25519),
		"AES-128 only, no X25519": helloOffering(words(0x1a1a, 0x1301, 0xc02b), share(0x1a1a, 1), hybrid),
		"ChaCha20 first":          helloOffering(words(0x1303, 0x1301, 0x1302), x25519),
		"ChaCha20 only":           helloOffering(words(0x1303), hybrid, x25519),
	}
	for _, kind := range helloKinds {
		all[kind.String()], _ = made(t, kind, alice.Host, &alice.Key, fixed(20))
	}
	return all
}

// TestReplyByProfile: suite, group and extension order, by front and hello.
func TestReplyByProfile(t *testing.T) {
	hellos := offeredHellos(t)
	tests := []struct {
		front string
		want  map[string]int // by hello: suite, group, first extension
	}{
		{"client's order", map[string]int{
			"hybrid": 0x1301_11ec_43, "x25519": 0x1301_001d_43, "aes256": 0x1302_11ec_43, "classic": 0x1301_001d_43,
			"AES-256 first, X25519": 0x1302_001d_43, "AES-256 only": 0x1302_11ec_43, "AES-128 only, no X25519": 0x1301_11ec_43,
			"ChaCha20 first": 0x1303_001d_43, "ChaCha20 only": 0x1303_11ec_43,
		}},
		{"no hybrid group", map[string]int{
			"hybrid": 0x1301_001d_43, "x25519": 0x1301_001d_43, "aes256": 0x1302_001d_43, "classic": 0x1301_001d_43,
			"AES-128 only, no X25519": 0x1301_11ec_43, // there is no other share
			"ChaCha20 only":           0x1303_001d_43,
		}},
		{"key_share first", map[string]int{
			"hybrid": 0x1301_11ec_51, "x25519": 0x1301_001d_51, "aes256": 0x1302_11ec_51, "classic": 0x1301_001d_51,
		}},
		{"prefers AES-128", map[string]int{
			"hybrid": 0x1301_11ec_43, "aes256": 0x1301_11ec_43, "AES-256 first, X25519": 0x1301_001d_43,
			"AES-256 only": 0x1302_11ec_43, "ChaCha20 first": 0x1301_001d_43, "ChaCha20 only": 0x1303_11ec_43,
		}},
		{"prefers AES-256", map[string]int{
			"hybrid": 0x1302_11ec_43, "x25519": 0x1302_001d_43, "aes256": 0x1302_11ec_43, "classic": 0x1302_001d_43,
			"AES-128 only, no X25519": 0x1301_11ec_43, "ChaCha20 first": 0x1302_001d_43, "ChaCha20 only": 0x1303_11ec_43,
		}},
		{"prefers ChaCha20", map[string]int{
			"hybrid": 0x1303_11ec_43, "aes256": 0x1303_11ec_43, "AES-256 only": 0x1302_11ec_43,
			"AES-128 only, no X25519": 0x1301_11ec_43,
		}},
		{"other extensions", map[string]int{"hybrid": 0x1301_11ec_51}},
		{"only key_share", map[string]int{"hybrid": 0x1301_11ec_43}},
	}
	for _, tt := range tests {
		for name, want := range tt.want {
			g := gateFor(alice)
			b := answeredLike(t, g, captured{time: now}, hellos[name], 1448, knownFronts[tt.front])
			r, err := splitReply(b)
			if err != nil {
				t.Fatal(err)
			}
			first := map[int]int{0x43: 43, 0x51: 51}[want&0xff]
			if r.suite != want>>24 || r.group != want>>8&0xffff || r.extensions[0] != first {
				t.Errorf("front: %s; hello: %s: %04x, group %04x, extensions %v", tt.front, name, r.suite, r.group, r.extensions)
			}
		}
	}
}

// TestNotImitable: what no client would take, or nobody knows, leaves the reply as it is without a profile.
func TestNotImitable(t *testing.T) {
	for _, front := range []string{"no flight known", "P-384", "TLS_AES_128_CCM", "HelloRetryRequest", "TLS 1.2"} {
		for name, raw := range offeredHellos(t) {
			want := answered(t, gateFor(alice), captured{time: now}, raw, 1448)
			got := answeredLike(t, gateFor(alice), captured{time: now}, raw, 1448, knownFronts[front])
			if !bytes.Equal(got, want) {
				t.Errorf("front: %s; hello: %s: another reply than without a profile", front, name)
			}
		}
	}
}

// TestPartialProfile: the kinds that are known show what the front goes by, the others do not count.
func TestPartialProfile(t *testing.T) {
	tests := []struct {
		name        string
		hybrid, aes uint16 // what these kinds were answered with; 0 unknown
		hello       string
		suite       int
		imitated    bool
	}{
		{"1301 to hybrid alone says nothing else", 0x1301, 0, "hybrid", 0x1301, true},
		{"and nothing of AES-256 first", 0x1301, 0, "aes256", 0x1302, false},
		{"1301 to AES-256 first is a preference", 0, 0x1301, "aes256", 0x1301, true},
		{"1302 to AES-256 first is the client's", 0, 0x1302, "aes256", 0x1302, true},
		{"1302 to AES-128 first is a preference", 0x1302, 0, "hybrid", 0x1302, true},
		{"two that disagree: each its own", 0x1302, 0x1301, "aes256", 0x1301, true},
	}
	for _, tt := range tests {
		p := new(Profile)
		for kind, suite := range map[HelloKind]uint16{HelloHybrid: tt.hybrid, HelloAES256: tt.aes} {
			if suite != 0 {
				p.Flights[kind] = flightOf(suite, 0x11ec, shareFirst, []int{3000})
			}
		}
		r, err := splitReply(answeredLike(t, gateFor(alice), captured{time: now}, offeredHellos(t)[tt.hello], 0, p))
		if err != nil || r.suite != tt.suite || (r.extensions[0] == 51) != tt.imitated {
			t.Errorf("%s: %04x, extensions %v, %v", tt.name, r.suite, r.extensions, err)
		}
	}
}

// TestReplyLength: as many bytes as the front sent, in one record, and never more than iOS takes.
func TestReplyLength(t *testing.T) {
	tests := []struct {
		front, hello string
		want         int
	}{
		{"client's order", "hybrid", 42 + 441 + 96 + 53 + 3*5},
		{"client's order", "aes256", 42 + 441 + 96 + 53 + 3*5},
		{"no hybrid group", "aes256", 3000},
		{"prefers AES-128", "aes256", 3000},
		{"prefers AES-128", "AES-256 only", 3016}, // a Finished of SHA-384 instead of SHA-256
		{"prefers AES-256", "hybrid", 3016},
		{"prefers AES-256", "ChaCha20 only", 3000}, // the other way round
		{"prefers ChaCha20", "hybrid", 3000},
		{"endless certificate", "hybrid", 10240},
		{"shortest", "AES-128 only, no X25519", 18},
	}
	for _, tt := range tests {
		raw := offeredHellos(t)[tt.hello]
		for range 20 {
			r, err := splitReply(answeredLike(t, gateFor(alice), captured{time: now}, raw, 0, knownFronts[tt.front]))
			if err != nil || len(r.flight) != tt.want {
				t.Fatalf("front: %s; hello: %s: %d bytes, want %d, %v", tt.front, tt.hello, len(r.flight), tt.want, err)
			}
		}
	}
}

// TestTooManyObservations: a profile that nobody validated must not hang the loop.
func TestTooManyObservations(t *testing.T) {
	p := frontOf(byClient, 0x11ec, versionsFirst, slices.Repeat([][]int{{3000}}, 1000)...)
	r, err := splitReply(answeredLike(t, gateFor(alice), captured{time: now}, offeredHellos(t)["hybrid"], 0, p))
	if err != nil || len(r.flight) != 3000 {
		t.Fatal(len(r.flight), err)
	}
}

// TestReplyLengthDrawn: every observation of that kind is as likely as any other.
func TestReplyLengthDrawn(t *testing.T) {
	p := frontOf(byClient, 0x11ec, versionsFirst, []int{2999})
	for n := range 5 {
		f := &p.Flights[HelloClassic]
		f.Records = append(f.Records, []int{100, 700 + n})
	}
	p.Flights[HelloClassic].Records[0] = []int{100, 702} // so that it comes twice
	raw := offeredHellos(t)["classic"]
	g := gateFor(alice)
	counts := make(map[int]int)
	const draws = 3000
	for range draws {
		r, err := splitReply(answeredLike(t, g, captured{time: now}, raw, 0, p))
		if err != nil {
			t.Fatal(err)
		}
		counts[len(r.flight)]++
	}
	want := map[int]int{805: 500, 806: 500, 807: 1000, 808: 500, 809: 500}
	for n, about := range want {
		if counts[n] < about-160 || counts[n] > about+160 { // 6 sigma
			t.Fatal(counts)
		}
	}
	if len(counts) != len(want) {
		t.Fatal(counts)
	}
}

// TestGroupByMSSAndProfile: what Android needs comes before what the front does.
func TestGroupByMSSAndProfile(t *testing.T) {
	raw := offeredHellos(t)["hybrid"]
	for mss, want := range map[int]int{0: 0x11ec, 1448: 0x11ec, 1220: 0x001d} {
		r, err := splitReply(answeredLike(t, gateFor(alice), captured{time: now}, raw, mss, openssl))
		if err != nil || r.group != want {
			t.Errorf("mss %d: group %04x, %v", mss, r.group, err)
		}
	}
}

func TestKind(t *testing.T) {
	kinds := map[string]HelloKind{
		"AES-256 first, X25519": HelloAES256, "AES-256 only": HelloAES256, "AES-128 only, no X25519": HelloHybrid,
		"ChaCha20 first": HelloClassic, "ChaCha20 only": HelloHybrid,
		"tdlib-1.8.0": HelloClassic, "tdlib-1.8.29": HelloClassic, "tdlib-1.8.58": HelloHybrid,
		"tdlib-1.8.65-1": HelloHybrid, "tdlib-1.8.65-2": HelloHybrid, "gotd-0.161.0-1": HelloHybrid, "mtcute-0.30.3-1": HelloHybrid,
	}
	expect := func(name string, raw []byte, want HelloKind) {
		t.Helper()
		h := new(Hello)
		if v := h.Feed(raw); v != Whole || h.kind() != want {
			t.Errorf("%s: %v, kind %v, want %v", name, v, h.kind(), want)
		}
	}
	for name, raw := range offeredHellos(t) {
		if want, ok := kinds[name]; ok {
			expect(name, raw, want)
		}
	}
	for _, c := range capturedHellos(t) {
		expect(c.name, c.raw, kinds[c.name])
	}
	rnd := fixed(21)
	for _, kind := range helloKinds {
		for _, host := range []string{"a.io", "www.example.com", strings.Repeat("long.", 36) + "org"} {
			for range 20 {
				raw, _ := made(t, kind, host, nil, rnd)
				expect(host, raw, kind)
			}
		}
	}
}

func TestProfileReplyAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for front, p := range knownFronts {
		for _, c := range capturedHellos(t) {
			g := NewGate([]Secret{c.secret}, tolerance, nil, rand.Reader)
			h, _ := judged(g, c.raw, c.time)
			dst := make([]byte, 0, 11500)
			if n := testing.AllocsPerRun(10, func() { g.AppendReply(dst, h, c.raw, 1448, p) }); n != 0 {
				t.Errorf("front: %s; client: %s: %v allocations", front, c.name, n)
			}
		}
	}
}

func TestProfileJSON(t *testing.T) {
	withTickets := *openssl
	withTickets.Tickets = []int{266, 266}
	withTickets.AfterClient, withTickets.OfItself = FarewellOmitted, FarewellSaid
	for front, want := range knownFronts {
		if want == nil {
			continue
		}
		expectRoundTrip(t, front, want)
	}
	expectRoundTrip(t, "tickets", &withTickets)
}

func expectRoundTrip(t *testing.T, name string, want *Profile) []byte {
	t.Helper()
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(name, err)
	}
	got := new(Profile)
	if err := json.Unmarshal(b, got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %+v, %v, want %+v", name, got, err, want)
	}
	return b
}

func TestProfileRefused(t *testing.T) {
	many := func(n int) []int { return slices.Repeat([]int{100}, n) }
	tests := []struct {
		name   string
		damage func(*Profile)
		want   string // "" when nothing is wrong
	}{
		{"untouched", func(p *Profile) {}, ""},
		{"as much as allowed", func(p *Profile) {
			p.Tickets = many(MaxTickets)
			p.Flights[1].Records = slices.Repeat([][]int{many(MaxFlightRecords)}, MaxObservations)
			p.Flights[2].Extensions = make([]uint16, MaxExtensions)
			p.Flights[3].Records = [][]int{{MinRecord, MaxRecord}}
		}, ""},
		{"retry", func(p *Profile) { p.Flights[0].Retry = true }, "hello hybrid: a ServerHello of TLS 1.3"},
		{"TLS 1.2", func(p *Profile) { p.Flights[1].Version = 0x0303 }, "hello x25519: a ServerHello of TLS 1.3"},
		{"extensions", func(p *Profile) { p.Flights[2].Extensions = make([]uint16, 17) }, "hello aes256: 17 extensions"},
		{"observations", func(p *Profile) { p.Flights[3].Records = slices.Repeat([][]int{{100}}, 65) }, "hello classic: 65 observations"},
		{"nothing observed", func(p *Profile) { p.Flights[0].Records = [][]int{{}} }, "no records"},
		{"records", func(p *Profile) { p.Flights[0].Records = [][]int{many(65)} }, "records: 65, more than 64"},
		{"short record", func(p *Profile) { p.Flights[0].Records = [][]int{{100}, {17}} }, "payload of 17 bytes"},
		{"long record", func(p *Profile) { p.Flights[0].Records = [][]int{{16641}} }, "payload of 16641 bytes"},
		{"negative record", func(p *Profile) { p.Flights[0].Records = [][]int{{-1}} }, "payload of -1 bytes"},
		{"tickets", func(p *Profile) { p.Tickets = many(17) }, "tickets: 17, more than 16"},
		{"farewell", func(p *Profile) { p.OfItself = numFarewells }, "farewells 0 and 3"},
		{"short ticket", func(p *Profile) { p.Tickets = []int{0} }, "tickets: a payload of 0 bytes"},
	}
	for _, tt := range tests {
		p := *openssl
		tt.damage(&p)
		b, err := json.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		was := *knownFronts["prefers AES-256"]
		read := was
		for _, err := range []error{p.Validate(), json.Unmarshal(b, &read)} {
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
		}
		if tt.want != "" && !reflect.DeepEqual(read, was) {
			t.Errorf("%s: refused, but read", tt.name)
		}
	}
	for _, state := range []string{``, `{`, `[]`, `{"flights":[{"suite":65536}]}`, `{"flights":{}}`, `{"tickets":["266"]}`} {
		if err := json.Unmarshal([]byte(state), new(Profile)); err == nil {
			t.Errorf("%s: no error", state)
		}
	}
}
