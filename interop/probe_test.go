package interop

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// frontOpening is how long a peer may be silent, or in the middle of a hello that may still become a good one, before
// the proxy opens its connection to the front (DESIGN §5). The front's own timer begins then, so it ends such a peer
// that much later than a direct visitor. That is a difference which a patient observer can see; late probes are
// allowed exactly it and nothing else, so the day it goes these tests will ask for the allowance to go.
const frontOpening = time.Second

// longPause is past frontOpening and before the front's timer, and in the middle of a time class.
const longPause = 1300 * time.Millisecond

// probe is what one stranger does.
type probe struct {
	name   string
	late   bool   // the front ends it by its timer, and that begins at frontOpening
	burn   []byte // a genuine hello that the proxy must have accepted before
	script []step
}

// at is a probe that the front is to see at once.
func at(name string, script ...step) probe { return probe{name: name, script: script} }

// late is a probe that shows no whole hello for longer than frontOpening.
func late(name string, script ...step) probe { return probe{name: name, late: true, script: script} }

// again is a probe made after the proxy has accepted hello.
func again(hello []byte, name string, script ...step) probe {
	return probe{name: name, burn: hello, script: script}
}

// probes returns what strangers send (PROTOCOL §5, and more that a censor may try). key is the secret's.
func probes(key [16]byte) []probe {
	good := clientHello()
	twice, classicTwice := relaytest.ClientHello(key, siteHost), relaytest.ClientHello(key, siteHost, relaytest.Classic())
	ours := signed(good, key)
	phone := func(key [16]byte, lag time.Duration) step {
		return send(relaytest.ClientHello(key, siteHost, relaytest.Stamp(time.Now().Add(lag))))
	}
	head := good[:5]
	half := good[:len(good)/2]
	noise := pattern(4096)
	ascii := append([]byte{0x05}, noise[:63]...)
	high := append([]byte{0xd7}, noise[:63]...)
	finished := record(recordData, noise[:69])
	ccs := versioned(recordCCS, 0x0303, []byte{1})
	alert := versioned(recordAlert, 0x0303, []byte{1, 0})
	ech := slices.Concat([]byte{0, 0, 1, 0, 1, 7}, sized(2, noise[:32]), sized(2, noise[:144])) // of no meaning, as browsers send it

	return []probe{
		late("nothing"),
		at("FIN at once", fin()),
		at("FIN after a while", pause(100*time.Millisecond), fin()),
		late("one byte", send(head[:1])),
		at("one byte, FIN", send(head[:1]), fin()),

		at("64 random bytes", send(ascii)),
		at("64 random bytes, first bit set", send(high)),
		at("64 random bytes, FIN", send(ascii), fin()),
		at("4096 random bytes", send(noise)),
		at("zeroes", send(make([]byte, 512))),
		at("HTTP", text("GET / HTTP/1.1\r\nHost: front.example\r\n\r\n")),
		at("HTTP, FIN", text("GET / HTTP/1.1\r\nHost: front.example\r\n\r\n"), fin()),
		at("half a line of HTTP", text("GET / HT")),
		at("HTTP byte by byte", trickle([]byte("GET / HTTP/1.1\r\nHost: front.example\r\n\r\n"), 1, 2*time.Millisecond)),
		at("CONNECT", text("CONNECT example.com:443 HTTP/1.1\r\n\r\n")),
		at("HTTP/2 preface", text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
		at("SSH banner", text("SSH-2.0-OpenSSH_9.2\r\n")),
		at("SMTP greeting", text("EHLO example.com\r\n")),
		at("SOCKS5 greeting", send([]byte{5, 1, 0})),
		at("PROXY header before a hello", send(append([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n"), good...))),
		at("SSLv2 hello", send(slices.Concat([]byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10}, noise[:37]))),
		at("MTProto abridged", send(append([]byte{0xef, 0x0a}, noise[:40]...))),

		late("header only", send(head)),
		at("header only, FIN", send(head), fin()),
		at("record length 0", send(record(recordHandshake, nil))),
		late("record length 3", send(record(recordHandshake, []byte{1, 0, 1}))),
		at("record length 16385", send([]byte{22, 3, 1, 0x40, 0x01})),
		at("record length 65535", send([]byte{22, 3, 1, 0xff, 0xff})),
		at("record version 0200", send(versioned(recordHandshake, 0x0200, good[5:]))),
		at("record version 0300", send(versioned(recordHandshake, 0x0300, good[5:]))),
		at("record version 0304", send(versioned(recordHandshake, 0x0304, good[5:]))),
		at("record version 0401", send(versioned(recordHandshake, 0x0401, good[5:]))),
		at("change cipher spec first", send(ccs)),
		at("alert first", send(alert)),
		at("fatal alert first", send(versioned(recordAlert, 0x0301, []byte{2, 40}))),
		at("application data first", send(finished)),
		at("heartbeat first", send(versioned(24, 0x0302, []byte{1, 0x40, 0}))),

		at("handshake type ff", send(record(recordHandshake, append([]byte{0xff}, good[6:]...)))),
		at("handshake type ff, length 0", send(record(recordHandshake, []byte{0xff, 0, 0, 0}))),
		at("ServerHello", send(record(recordHandshake, append([]byte{2}, good[6:]...)))),
		at("hello of 16 MiB", send(record(recordHandshake, append([]byte{1, 0xff, 0xff, 0xff}, good[9:]...)))),
		late("hello longer than its record", send(record(recordHandshake, good[5:len(good)-1]))),
		at("hello shorter than its record", send(record(recordHandshake, append(good[5:], 0)))),
		at("hello of 2 bytes", send(record(recordHandshake, []byte{1, 0, 0, 2, 3, 3}))),
		late("half a hello", send(half)),
		at("half a hello, FIN", send(half), fin()),
		late("hello without its last byte", send(good[:len(good)-1])),

		at("session id length 33", send(altered(func(h *hello) { h.session = noise[:33] }))),
		at("session id length 0", send(altered(func(h *hello) { h.session = nil }))),
		at("no cipher suite", send(altered(func(h *hello) { h.suites = nil }))),
		at("cipher suites of 3 bytes", send(altered(func(h *hello) { h.suites = h.suites[:3] }))),
		at("unknown cipher suites", send(altered(func(h *hello) { h.suites = []byte{0x0a, 0x0a, 0x1a, 0x1a} }))),
		at("no compression method", send(altered(func(h *hello) { h.compression = nil }))),
		at("no extension", send(altered(func(h *hello) { h.extensions = nil }))),
		at("hello version 0000", send(altered(func(h *hello) { h.version = []byte{0, 0} }))),
		at("padded to 8 KB", send(altered(func(h *hello) { h.with(extPadding, make([]byte, 8000)) }))),
		at("padded to 16 KB", send(altered(func(h *hello) { h.with(extPadding, make([]byte, 14500)) }))),
		at("padded to 20 KB", send(recut(record(recordHandshake, parseHello(good).with(extPadding, make([]byte, 19000)).message()), 16384))),
		at("ECH", send(altered(func(h *hello) { h.with(extECH, ech) }))),

		at("hello, no secret", send(good)),
		at("hello, TLS 1.2", send(clientHello(upTo(tls.VersionTLS12)))),
		at("hello, TLS 1.1", send(clientHello(upTo(tls.VersionTLS11)))),
		at("hello, X25519 only", send(clientHello(groups(tls.X25519)))),
		at("hello without a key share", send(altered(func(h *hello) { h.without(extKeyShare).with(extKeyShare, []byte{0, 0}) }))),
		at("hello, FIN", send(good), fin()),
		at("hello over two records", send(recut(good, 100))),
		at("hello over two records, first of one byte", send(recut(good, 1))),
		at("hello over 60 records", send(recut(good, offsets(60, 20)...))),
		at("hello over 100 records", send(recut(good, offsets(100, 10)...))),
		at("hello with an empty record inside", send(recut(good, 50, 50))),
		at("hello with an alert inside", send(slices.Concat(record(recordHandshake, good[5:100]), alert, record(recordHandshake, good[100:])))),
		at("hello in many small segments", trickle(good, 100, 2*time.Millisecond)),
		at("hello byte by byte", trickle(clientHello(groups(tls.X25519)), 1, 0)),
		at("hello in two segments, a pause between", send(half), pause(100*time.Millisecond), send(good[len(half):])),

		late("hello in two segments, a long pause between", send(half), pause(longPause), send(good[len(half):])),
		at("half a hello, a long pause, FIN", send(half), pause(longPause), fin()),
		late("half a hello, a long pause, an alert", send(half), pause(longPause), send(alert)),
		at("one byte, a long pause, garbage", send(head[:1]), pause(longPause), send(noise)),
		at("a long pause, HTTP", pause(longPause), text("GET / HTTP/1.1\r\nHost: front.example\r\n\r\n")),
		late("a long pause, hello", pause(longPause), send(good)),

		at("hello, then garbage", send(good), pause(50*time.Millisecond), send(noise)),
		at("hello and garbage at once", send(slices.Concat(good, noise))),
		at("hello and HTTP at once", send(append(bytes.Clone(good), "GET / HTTP/1.1\r\n\r\n"...))),
		at("hello and an alert at once", send(slices.Concat(good, alert))),
		at("hello, then a forged Finished", send(good), pause(50*time.Millisecond), send(slices.Concat(ccs, finished))),
		at("two hellos at once", send(slices.Concat(good, good))),
		at("hello, then 32 change cipher specs", send(good), send(bytes.Repeat(ccs, 32))),

		at("no SNI", send(altered(func(h *hello) { h.without(extServerName) }))),
		at("SNI of another host", send(clientHello(naming("other.example")))),
		at("SNI in capitals", send(renamed(serverName("FRONT.example")))),
		at("SNI with a dot at the end", send(renamed(serverName("front.example.")))),
		at("SNI twice", send(altered(func(h *hello) { h.with(extServerName, serverName(siteHost)) }))),
		at("two names in the SNI", send(renamed(serverName(siteHost, "b.example")))),
		at("empty SNI", send(renamed(serverName("")))),
		at("SNI without a body", send(renamed(nil))),
		at("SNI is an address", send(renamed(serverName("127.0.0.1")))),
		at("SNI with a zero byte", send(renamed(serverName("front.example\x00")))),
		at("SNI of 300 bytes", send(renamed(serverName(strings.Repeat("a", 300))))),

		at("right SNI, wrong digest", phone([16]byte(noise[16:]), 0)),
		at("right digest, one bit changed", send(flipped(relaytest.ClientHello(key, siteHost), 900))),
		at("right digest, SNI of another host", send(relaytest.ClientHello(key, "other.example"))),
		at("right digest, no SNI", send(signed(altered(func(h *hello) { h.without(extServerName) }), key))),
		at("right digest, TLS 1.2", send(signed(clientHello(upTo(tls.VersionTLS12)), key))),
		at("old clock", phone(key, -10*time.Minute)),
		at("clock ahead", phone(key, 10*time.Minute)),
		again(twice, "replay", send(twice)),
		again(classicTwice, "replay of an older client", send(classicTwice)),
		again(twice, "replay over two records", send(relaytest.Recut(twice, 2))),
		again(twice, "replay in small segments", trickle(twice, 50, 0)),
		{"a long pause, replay", true, ours, []step{pause(longPause), send(ours)}},
		again(twice, "replay, then garbage", send(twice), pause(50*time.Millisecond), send(noise)),
	}
}

// offsets returns n multiples of gap.
func offsets(n, gap int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = (i + 1) * gap
	}
	return at
}

// flipped returns b with the lowest bit of its byte i changed.
func flipped(b []byte, i int) []byte {
	b[i] ^= 1
	return b
}

// attempts bounds how often a probe is made on a busy machine before a difference counts.
const attempts = 3

// probeKey is the key of the secret under test.
var probeKey = [16]byte(pattern(16))

// comparison is one probe made in two places that should look alike.
type comparison struct {
	front string // name of the site
	a, b  string // addresses; b is allowed to be later
	later int    // by so many seconds, in ending
	probe
}

// startOrigins are the sites that the table is compared for.
func startOrigins(t *testing.T) []*origin {
	t.Helper()
	s := newSite(t)
	patient := startGoOrigin(t, s, 0)
	patient.name = "go without timers"
	return []*origin{startNginx(t, s), startGoOrigin(t, s, originTimer), patient}
}

// TestProbesSeeTheFront is the claim of the proxy: to whoever has no secret it is the front.
func TestProbesSeeTheFront(t *testing.T) {
	var all []comparison
	for _, f := range startOrigins(t) {
		p, addr := proxyBefore(t, f.addr)
		idle := p.fds(t)
		defer awaitDescriptors(t, p, idle)
		list := probes(probeKey)
		burn(t, addr, list)
		for _, p := range list {
			c := comparison{front: f.name, a: f.addr, b: addr, probe: p}
			if p.late {
				c.later = timeClass(frontOpening)
			}
			all = append(all, c)
		}
	}
	insistOnLikeness(t, all)
}

// TestProbesAgreeWithThemselves shows that the table is steady: a front looks the same twice.
func TestProbesAgreeWithThemselves(t *testing.T) {
	s := newSite(t)
	var all []comparison
	for _, f := range []*origin{startNginx(t, s), startGoOrigin(t, s, originTimer)} {
		for _, p := range probes(probeKey) {
			all = append(all, comparison{front: f.name, a: f.addr, b: f.addr, probe: p})
		}
	}
	insistOnLikeness(t, all)
}

// TestProbesTellFrontsApart shows that a difference would be seen.
func TestProbesTellFrontsApart(t *testing.T) {
	const least = 40 // half as many as were seen
	s := newSite(t)
	nginx, other := startNginx(t, s), startGoOrigin(t, s, originTimer)
	var all []comparison
	for _, p := range probes(probeKey) {
		all = append(all, comparison{front: "nginx and go", a: nginx.addr, b: other.addr, probe: p})
	}
	different := len(differences(t, all, func(string, ...any) {}))
	t.Logf("nginx and net/http differ in %d of %d probes", different, len(all))
	if different < least {
		t.Errorf("that is too few: want %d", least)
	}
}

// insistOnLikeness fails the test for every probe that looks different each time it is made.
func insistOnLikeness(t *testing.T, all []comparison) {
	t.Helper()
	t.Logf("%d probes", len(all))
	for try := 1; try < attempts && len(all) > 0; try++ {
		all = differences(t, all, t.Logf)
	}
	if len(all) > 0 {
		differences(t, all, t.Errorf)
	}
}

// differences makes all probes in both places at once and returns those that look different there.
func differences(t *testing.T, all []comparison, report func(string, ...any)) (different []comparison) {
	t.Helper()
	type pair struct {
		a, b       observation
		errA, errB error
	}
	seen := make([]pair, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { seen[i].a, seen[i].errA = observe(c.a, c.script...) })
		wg.Go(func() { seen[i].b, seen[i].errB = observe(c.b, c.script...) })
		time.Sleep(4 * time.Millisecond) // all handshakes in one instant would time the machine, not the server
	}
	wg.Wait()
	for i, c := range all {
		if err := errors.Join(seen[i].errA, seen[i].errB); err != nil {
			t.Fatalf("%s, %s: %v", c.front, c.name, err)
		}
		if a, b := seen[i].a.looks(0), seen[i].b.looks(c.later); a != b {
			report("%s, %s:\n  %s\n  %s", c.front, c.name, a, b)
			different = append(different, c)
		}
	}
	return different
}

// burn has the proxy at addr accept every hello that a probe replays.
func burn(t *testing.T, addr string, list []probe) {
	t.Helper()
	burnt := map[string]bool{}
	for _, p := range list {
		if p.burn == nil || burnt[string(p.burn)] {
			continue
		}
		burnt[string(p.burn)] = true
		o, err := observe(addr, send(p.burn), pause(200*time.Millisecond), fin())
		if err != nil {
			t.Fatal(err)
		}
		if !acceptedBy(probeKey, p.burn, o.got) {
			t.Errorf("%s: the proxy did not accept the genuine hello: %s, then %s", p.name, maskReply(o.got), o.end)
		}
	}
}

// awaitDescriptors returns once the proxy holds no more descriptors than when it was idle. One more is for the
// connection to its statistics that the test's own HTTP client may keep.
func awaitDescriptors(t *testing.T, p *proxy, idle int) {
	t.Helper()
	for range 500 {
		if p.fds(t) <= idle+1 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("the proxy had %d descriptors and has %d after the last stranger left", idle, p.fds(t))
}

// proxyBefore runs the proxy in front of the site at front and returns it and the address that clients dial.
func proxyBefore(t *testing.T, front string) (*proxy, string) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	return startCheckedProxy(t, proxyConfig(addr, front)), addr
}

// proxyConfig is the configuration of a proxy on addr whose front is at front.
func proxyConfig(addr, front string) string {
	_, port, _ := strings.Cut(front, ":")
	return fmt.Sprintf(`secret = "ee%x%x"
bind-to = %q

[domain-fronting]
host = "127.0.0.1"
port = %s

[dc]
"*" = ["127.0.0.1:9"] # nothing is relayed here

%s`, probeKey, siteHost, addr, port, noScout)
}
