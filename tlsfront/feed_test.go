package tlsfront

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"mtrelay/clock"
)

const tolerance = 2 * time.Minute

// fixed is a reproducible random source.
func fixed(seed byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{seed}) }

func gateFor(secrets ...Secret) *Gate { return NewGate(secrets, tolerance, nil, fixed(1)) }

// judged feeds raw at once and judges it without a budget.
func judged(g *Gate, raw []byte, wall clock.Unix) (*Hello, Verdict) {
	h := new(Hello)
	if v := h.Feed(raw); v != Whole {
		return h, v
	}
	return h, g.Judge(h, raw, wall, 1<<30)
}

// feedIn feeds raw in pieces that end at these offsets and then at its end.
func feedIn(h *Hello, raw []byte, ends ...int) Verdict {
	for _, end := range ends {
		h.Feed(raw[:end:end])
	}
	return h.Feed(raw)
}

func byteByByte(h *Hello, raw []byte) Verdict {
	for i := range raw {
		h.Feed(raw[:i:i])
	}
	return h.Feed(raw)
}

// signHello puts a client's digest into a hello of one record, as its library does before anything cuts it.
func signHello(raw []byte, key [16]byte, stamp clock.Unix) []byte {
	random := raw[11:43]
	clear(random)
	mac := hmac.New(sha256.New, key[:])
	mac.Write(raw)
	copy(random, mac.Sum(nil))
	binary.LittleEndian.PutUint32(random[28:], binary.LittleEndian.Uint32(random[28:])^uint32(stamp))
	return raw
}

// helloParts are the fields of a ClientHello behind its fixed ones. nil is left out, lengths included.
type helloParts struct {
	sessionID, suites, compression, extensions []byte
}

func plainParts() helloParts {
	return helloParts{
		sessionID:   vector(1, make([]byte, 32)),
		suites:      vector(2, words(0x1a1a, 0x1301, 0xc02b)),
		compression: []byte{1, 0},
		extensions: vector(2, join(
			serverNameExtension("www.example.com"),
			extension(extensionSupportedVersions, vector(1, words(0x7a7a, 0x0304, 0x0303))),
			keyShareExtension(share(0x1a1a, 1), share(groupX25519MLKEM768, 1216), share(groupX25519, 32)),
		)),
	}
}

func (p helloParts) message() []byte {
	body := join(words(0x0303), make([]byte, 32), p.sessionID, p.suites, p.compression, p.extensions)
	return join([]byte{1}, vector(3, body))
}

func (p helloParts) record() []byte { return record(0x0301, p.message()) }

func record(version int, payload []byte) []byte {
	return join([]byte{22}, words(version), vector(2, payload))
}

// recut cuts a hello of one record over records that end at these offsets of its payload and at its end.
func recut(raw []byte, version int, ends ...int) []byte {
	payload, from := raw[5:], 0
	var out []byte
	for _, end := range append(ends, len(payload)) {
		out = append(out, record(version, payload[from:end])...)
		from = end
	}
	return out
}

func extension(typ int, body []byte) []byte { return join(words(typ), vector(2, body)) }

func serverNameExtension(host string) []byte {
	return extension(extensionServerName, vector(2, join([]byte{0}, vector(2, []byte(host)))))
}

func keyShareExtension(shares ...[]byte) []byte {
	return extension(extensionKeyShare, vector(2, join(shares...)))
}

func share(group, n int) []byte { return join(words(group), vector(2, make([]byte, n))) }

// vector puts the length of b in front of it, in size bytes.
func vector(size int, b []byte) []byte {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	return join(n[8-size:], b)
}

func words(values ...int) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return b
}

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func scribble(b []byte) {
	for i := range b {
		b[i] ^= 0xa5
	}
}

func expectVerdict(t *testing.T, h *Hello, got, want Verdict, reason Reason) {
	t.Helper()
	if got != want || h.Reason() != reason {
		t.Fatalf("%v (%v), want %v (%v)", got, h.Reason(), want, reason)
	}
}
