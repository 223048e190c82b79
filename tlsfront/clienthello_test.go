package tlsfront

import (
	"bytes"
	"fmt"
	"testing"
)

// TestCapturedHellos: what real clients sent is accepted at its time, however TCP delivers it.
func TestCapturedHellos(t *testing.T) {
	for _, c := range capturedHellos(t) {
		t.Run(c.name, func(t *testing.T) {
			g := gateFor(c.secret)
			accept := func(how string, feed func(h *Hello, raw []byte) Verdict) {
				t.Helper()
				raw := append(bytes.Clone(c.raw), "what follows"...)
				h := new(Hello)
				if v := feed(h, raw); v != Whole || h.Len() != len(c.raw) {
					t.Fatalf("%s: %v (%v), %d bytes", how, v, h.Reason(), h.Len())
				}
				if v := g.Judge(h, raw, c.time, 1); v != Accepted || h.Secret() != 0 || h.Reason() != ReasonNone {
					t.Fatalf("%s: judged %v (%v), secret %d", how, v, h.Reason(), h.Secret())
				}
				scribble(raw)
				if h.ServerName() != c.secret.Host || h.Feed(raw) != Accepted {
					t.Fatalf("%s: after the input was overwritten: %q", how, h.ServerName())
				}
			}
			accept("whole", func(h *Hello, raw []byte) Verdict { return h.Feed(raw) })
			accept("byte by byte", byteByByte)
			for cut := range len(c.raw) {
				accept(fmt.Sprint("cut at ", cut), func(h *Hello, raw []byte) Verdict { return feedIn(h, raw, cut) })
			}
		})
	}
}

// TestRecutHellos: tools against censorship cut a signed hello over TLS records.
func TestRecutHellos(t *testing.T) {
	for _, c := range capturedHellos(t) {
		g := gateFor(c.secret)
		for _, version := range []int{0x0301, 0x0303} {
			for records := 2; records <= maxHelloRecords; records++ {
				var even []int
				for i := 1; i < records; i++ {
					even = append(even, i*(len(c.raw)-5)/records)
				}
				raw := append(recut(c.raw, version, even...), "what follows"...)
				h := new(Hello)
				if v := byteByByte(h, raw); v != Whole || h.Len() != len(raw)-12 {
					t.Fatalf("%s in %d records: %v (%v)", c.name, records, v, h.Reason())
				}
				scribble(raw) // judged by the joined copy
				if v := g.Judge(h, raw, c.time, 1); v != Accepted {
					t.Fatalf("%s in %d records: judged %v (%v)", c.name, records, v, h.Reason())
				}
			}
		}
		for cut := 1; cut < len(c.raw)-5; cut++ {
			if h, v := judged(g, recut(c.raw, 0x0301, cut), c.time); v != Accepted {
				t.Fatalf("%s in 2 records, the second from %d on: %v (%v)", c.name, cut, v, h.Reason())
			}
		}
	}
}

// TestAlteredHellos: with any bit flipped, the hello is a stranger's. The last four bytes of the random are no part of
// the digest: flipping a bit there shifts the stamp, and only the memory of the original tells.
func TestAlteredHellos(t *testing.T) {
	for _, c := range capturedHellos(t) {
		replay := NewReplay(tolerance, c.time-1000, 16)
		g := NewGate([]Secret{c.secret}, tolerance, replay, fixed(1))
		if _, v := judged(g, c.raw, c.time); v != Accepted {
			t.Fatalf("%s: the original: %v", c.name, v)
		}
		for bit := range len(c.raw) * 8 {
			raw := bytes.Clone(c.raw)
			raw[bit/8] ^= 1 << (bit % 8)
			if h, v := judged(g, raw, c.time); v == Accepted {
				t.Fatalf("%s: accepted with bit %d of byte %d flipped", c.name, bit%8, bit/8)
			} else if at := bit / 8; at >= 11 && at < 39 && h.Reason() != ReasonDigest ||
				at >= 39 && at < 43 && h.Reason() != ReasonReplay && h.Reason() != ReasonClock && h.Reason() != ReasonBeforeStart {
				t.Fatalf("%s: byte %d: %v", c.name, at, h.Reason())
			}
		}
	}
}

// TestTruncatedHellos: a hello that may still go on waits, and says nothing that it does not know.
func TestTruncatedHellos(t *testing.T) {
	for _, c := range capturedHellos(t) {
		for n := range len(c.raw) {
			h := new(Hello)
			if v := h.Feed(c.raw[:n]); v != More || h.Reason() != ReasonNone || h.Secret() != -1 {
				t.Fatalf("%s: %d bytes: %v (%v)", c.name, n, v, h.Reason())
			}
		}
	}
}

// TestFeedReadsOnce: bytes that were parsed are not read again, so that feeding byte by byte is linear. They are
// overwritten here as soon as they were fed; only the field that is still incomplete keeps its bytes.
func TestFeedReadsOnce(t *testing.T) {
	for _, c := range capturedHellos(t) {
		raw := bytes.Clone(c.raw)
		h := new(Hello)
		for i := range raw {
			h.Feed(raw[:i+1])
			if h.read >= RecordHeaderLen {
				scribble(raw[:RecordHeaderLen+int(h.at)])
			}
		}
		if h.verdict != Whole || h.ServerName() != c.secret.Host || !h.offer.tls13 || !h.offer.x25519 || h.offer.suite != 0x1301 {
			t.Fatalf("%s: %v (%v), %+v", c.name, h.verdict, h.Reason(), h.offer)
		}
	}
}

// TestToFront names each way in which bytes cannot be a hello of ours, and the byte that shows it: one byte less, and
// the verdict is More.
func TestToFront(t *testing.T) {
	hello := plainParts().record()
	with := func(at int, b ...byte) []byte {
		raw := bytes.Clone(hello)
		copy(raw[at:], b)
		return raw
	}
	parts := func(change func(p *helloParts)) []byte {
		p := plainParts()
		change(&p)
		return p.record()
	}
	extensions := func(ext ...[]byte) []byte {
		return parts(func(p *helloParts) { p.extensions = vector(2, join(ext...)) })
	}
	long := make([]byte, maxHelloMessage)
	const fixed = 5 + 4 + 2 + 32 // up to the session id
	const lists = fixed + 33 + 8 // up to the compression methods

	tests := []struct {
		name   string
		raw    []byte
		at     int // bytes that decide
		reason Reason
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), 1, ReasonRecordType},
		{"SSH", []byte("SSH-2.0-Go\r\n"), 1, ReasonRecordType},
		{"alert", []byte{21, 3, 1, 0, 2, 1, 0}, 1, ReasonRecordType},
		{"SSLv2", []byte{0x80, 0x2e, 1, 3, 1}, 1, ReasonRecordType},
		{"version 2", with(1, 2), 2, ReasonRecordVersion},
		{"SSL 3.0 record", with(2, 0), 3, ReasonRecordVersion},
		{"TLS 1.1 record", with(2, 2), 3, ReasonRecordVersion},
		{"TLS 1.3 record", with(2, 4), 3, ReasonRecordVersion},
		{"empty record", with(3, 0, 0), 5, ReasonRecordLength},
		{"record of 16385", with(3, 0x40, 1), 5, ReasonRecordLength},
		{"record of 16640", with(3, 0x41), 4, ReasonRecordLength},
		{"handshake type 2", with(5, 2), 6, ReasonHandshakeType},
		{"handshake type ff", with(5, 0xff), 6, ReasonHandshakeType},
		{"hello over 64 KiB", with(6, 1), 7, ReasonHandshakeLength},
		{"hello over 16 KiB", with(6, 0, 0x3f, 0xfd), 9, ReasonHandshakeLength},
		{"hello too short", with(6, 0, 0, minHelloBody-1), 9, ReasonHandshakeLength},
		{"record longer than the hello", record(0x0301, append(plainParts().message(), 0)), 9, ReasonTrailingBytes},
		{"second record longer than the rest", join(record(0x0301, hello[5:105]), record(0x0301, append(hello[105:], 0))), 110, ReasonTrailingBytes},
		{"second record known too long by its header", join(record(0x0301, hello[5:6]), record(0x0301, append(hello[6:], 0))), 6 + 5 + 3, ReasonTrailingBytes},
		{"records over 16 KiB", join(record(0x0301, []byte{1}), record(0x0301, long)), 11, ReasonHandshakeLength},
		{"alert in the midst", join(record(0x0301, hello[5:105]), []byte{21, 3, 1, 0, 2, 1, 0}), 106, ReasonRecordType},
		{"ChangeCipherSpec in the midst", join(record(0x0301, hello[5:105]), []byte{20, 3, 3, 0, 1, 1}), 106, ReasonRecordType},
		{"empty record in the midst", join(record(0x0301, hello[5:105]), record(0x0301, nil)), 110, ReasonRecordLength},
		{"other version in the midst", join(record(0x0301, hello[5:105]), record(0x0304, hello[105:])), 108, ReasonRecordVersion},
		{"TLS 1.0 hello", with(9, 3, 1), 11, ReasonClientVersion},
		{"SSL 2 hello", with(9, 0, 2), 10, ReasonClientVersion},
		{"session id of 33", with(fixed, 33), fixed + 1, ReasonSessionID},
		{"session id past the end", join([]byte{22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3}, make([]byte, 32), []byte{8}, long), fixed + 1, ReasonSessionID},
		{"no suites", with(fixed+33, 0, 0), fixed + 35, ReasonCipherSuites},
		{"half a suite", with(fixed+33, 0, 5), fixed + 35, ReasonCipherSuites},
		{"suites past the end", with(fixed+33, 0xff, 0xfe), fixed + 35, ReasonCipherSuites},
		{"no compression", with(lists, 0), lists + 1, ReasonCompression},
		{"compression at the end", parts(func(p *helloParts) { p.suites = vector(2, make([]byte, 64)); p.compression, p.extensions = nil, nil }), fixed + 33 + 66, ReasonCompression},
		{"compression past the end", parts(func(p *helloParts) { p.compression, p.extensions = []byte{3, 0}, nil }), lists + 1, ReasonCompression},
		{"half an extensions length", parts(func(p *helloParts) { p.extensions = []byte{0} }), lists + 2, ReasonExtensions},
		{"extensions short of the end", parts(func(p *helloParts) { p.extensions = append(p.extensions, 0) }), lists + 4, ReasonExtensions},
		{"extensions past the end", parts(func(p *helloParts) { p.extensions = p.extensions[:len(p.extensions)-1] }), lists + 4, ReasonExtensions},
		{"half an extension header", extensions([]byte{0, 9, 0}), lists + 4 + 2, ReasonExtensions},
		{"extension past the end", extensions([]byte{0, 9, 0, 9}, make([]byte, 8)), lists + 4 + 4, ReasonExtensions},
		{"two server names", extensions(serverNameExtension("a.example"), serverNameExtension("b.example")), lists + 4 + 18 + 2, ReasonDuplicate},
		{"two unknown of one type", extensions(extension(7, nil), extension(7, nil)), lists + 4 + 4 + 2, ReasonDuplicate},
		{"two key_shares", extensions(keyShareExtension(), keyShareExtension()), lists + 4 + 6 + 2, ReasonDuplicate},
		{"server_name without a list", extensions(extension(0, nil)), lists + 4 + 4, ReasonServerName},
		{"server_name list empty", extensions(extension(0, []byte{0, 0})), lists + 4 + 6, ReasonServerName},
		{"server_name list short", extensions(extension(0, append(vector(2, []byte{0, 0, 1, 'a'}), 0))), lists + 4 + 11, ReasonServerName},
		{"server_name of another type", extensions(extension(0, vector(2, []byte{1, 0, 1, 'a'}))), lists + 4 + 10, ReasonServerName},
		{"two names in one list", extensions(extension(0, vector(2, []byte{0, 0, 1, 'a', 0, 0, 1, 'b'}))), lists + 4 + 14, ReasonServerName},
		{"empty name", extensions(serverNameExtension("")), lists + 4 + 9, ReasonServerName},
		{"name of 256", extensions(serverNameExtension(string(long[:256]))), lists + 4 + 9 + 256, ReasonServerName},
		{"no versions", extensions(extension(43, []byte{0})), lists + 4 + 5, ReasonVersions},
		{"half a version", extensions(extension(43, []byte{3, 3, 4, 3})), lists + 4 + 8, ReasonVersions},
		{"versions short", extensions(extension(43, []byte{2, 3, 4, 3})), lists + 4 + 8, ReasonVersions},
		{"shares short", extensions(extension(51, []byte{0, 0, 0})), lists + 4 + 7, ReasonKeyShare},
		{"half a group", extensions(extension(51, []byte{0, 1, 0})), lists + 4 + 7, ReasonKeyShare},
		{"share past the end", extensions(extension(51, []byte{0, 4, 0, 29, 0, 32})), lists + 4 + 10, ReasonKeyShare},
		{"empty share", extensions(keyShareExtension(share(0x1a1a, 0))), lists + 4 + 10, ReasonKeyShare},
		{"X25519 of 31", extensions(keyShareExtension(share(groupX25519, 31))), lists + 4 + 10 + 31, ReasonKeyShare},
		{"X25519MLKEM768 of 1184", extensions(keyShareExtension(share(groupX25519MLKEM768, 1184))), lists + 4 + 10 + 1184, ReasonKeyShare},
		{"two X25519", extensions(keyShareExtension(share(groupX25519, 32), share(groupX25519, 32))), lists + 4 + 6 + 72, ReasonKeyShare},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := new(Hello)
			expectVerdict(t, h, h.Feed(tt.raw), Front, tt.reason)
			h = new(Hello)
			expectVerdict(t, h, byteByByte(h, tt.raw), Front, tt.reason)
			h = new(Hello)
			expectVerdict(t, h, h.Feed(tt.raw[:tt.at]), Front, tt.reason)
			h = new(Hello)
			expectVerdict(t, h, h.Feed(tt.raw[:tt.at-1]), More, ReasonNone)
			expectVerdict(t, h, h.Feed(tt.raw), Front, tt.reason)
		})
	}
}

// TestPlausible: what looks odd but may be ours, or has to be judged by its digest.
func TestPlausible(t *testing.T) {
	with := func(change func(p *helloParts)) []byte {
		p := plainParts()
		change(&p)
		return p.record()
	}
	tests := []struct {
		name string
		raw  []byte
	}{
		{"plain", plainParts().record()},
		{"version 03 03 on the record", record(0x0303, plainParts().message())},
		{"no session id", with(func(p *helloParts) { p.sessionID = []byte{0} })},
		{"no extensions", with(func(p *helloParts) { p.suites, p.extensions = vector(2, make([]byte, 64)), nil })},
		{"empty extensions", with(func(p *helloParts) { p.extensions = []byte{0, 0} })},
		{"two compression methods", with(func(p *helloParts) { p.compression = []byte{2, 1, 0} })},
		{"one GREASE type twice", with(func(p *helloParts) {
			p.extensions = vector(2, join(extension(0x5a5a, nil), extension(0x5a5a, []byte{0})))
		})},
		{"longest server_name", with(func(p *helloParts) {
			p.extensions = vector(2, serverNameExtension(string(make([]byte, 255))))
		})},
		{"an extension type over 31 once", with(func(p *helloParts) {
			p.extensions = vector(2, join(extension(43, []byte{2, 3, 4}), extension(51+64, nil), extension(51+128, nil)))
		})},
		{"no key shares", with(func(p *helloParts) { p.extensions = vector(2, keyShareExtension()) })},
		{"16 KiB", with(func(p *helloParts) {
			n := len(p.message()) - len(p.extensions)
			p.extensions = vector(2, extension(21, make([]byte, maxHelloMessage-n-6)))
		})},
		{"64 records, all but the last of one byte", func() []byte {
			ends := make([]int, maxHelloRecords-1)
			for i := range ends {
				ends[i] = i + 1
			}
			return recut(plainParts().record(), 0x0301, ends...)
		}()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := new(Hello)
			expectVerdict(t, h, byteByByte(h, tt.raw), Whole, ReasonNone)
			if h.Len() != len(tt.raw) || h.Len() > MaxHello {
				t.Fatalf("%d of %d bytes", h.Len(), len(tt.raw))
			}
		})
	}
}

// TestTooManyRecords: the header of the 64th record shows that the hello needs a 65th.
func TestTooManyRecords(t *testing.T) {
	ends := make([]int, maxHelloRecords)
	for i := range ends {
		ends[i] = i + 1
	}
	raw := recut(plainParts().record(), 0x0301, ends...)
	h := new(Hello)
	expectVerdict(t, h, h.Feed(raw[:63*6+4]), More, ReasonNone)
	expectVerdict(t, h, h.Feed(raw[:63*6+5]), Front, ReasonRecordCount)
}

// TestServerNameEarly: the SNI of a hello that never completes still says which front it goes to.
func TestServerNameEarly(t *testing.T) {
	p := plainParts()
	p.extensions = vector(2, join(serverNameExtension("WWW.Example.COM."), extension(21, make([]byte, 900))))
	raw := p.record()
	h := new(Hello)
	if v := h.Feed(raw[:len(raw)-800]); v != More || h.ServerName() != "www.example.com" {
		t.Fatalf("%v, %q", v, h.ServerName())
	}
}

func TestFeedAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	raw := plainParts().record()
	n := testing.AllocsPerRun(100, func() {
		var h Hello
		h.Feed(raw[:700])
		if h.Feed(raw) != Whole {
			t.Fatal(h.Reason())
		}
	})
	if n != 1 { // the server name
		t.Fatalf("%v allocations, want 1", n)
	}
}
