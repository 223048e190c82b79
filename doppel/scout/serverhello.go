package scout

import (
	"encoding/binary"

	"mtrelay/tlsfront"
)

const (
	extensionSupportedVersions = 43
	extensionKeyShare          = 51

	randomLen = 32
)

// retryRandom marks a HelloRetryRequest, which is a ServerHello otherwise: SHA-256 of its name, RFC 8446 §4.1.3.
const retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91" +
	"\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"

// serverHello is one that was read.
type serverHello struct {
	flight    tlsfront.Flight // without EchoesSessionID, which needs the ClientHello
	sessionID []byte
	hasShare  bool // a key share, not only the name of a group
}

// parseServerHello reads the message behind its header, RFC 8446 §4.1.3, which is RFC 5246 §7.4.1.3 too. ok is false
// when that is not what it is.
func parseServerHello(b []byte) (h serverHello, ok bool) {
	r := reader{b: b}
	h.flight.Version = r.uint16()
	h.flight.Retry = string(r.bytes(randomLen)) == retryRandom
	h.sessionID = r.bytes(r.uint8())
	h.flight.Suite = r.uint16()
	r.bytes(1) // compression
	if r.failed || h.flight.Version>>8 != 3 || len(h.sessionID) > randomLen {
		return serverHello{}, false
	}
	if len(r.b) > 0 { // before TLS 1.3 there need not be extensions
		extensions := reader{b: r.bytes(int(r.uint16()))}
		for !r.failed && !extensions.failed && len(extensions.b) > 0 {
			typ := extensions.uint16()
			h.extension(typ, extensions.bytes(int(extensions.uint16())))
		}
		r.failed = r.failed || extensions.failed
	}
	if r.failed || len(r.b) > 0 || len(h.flight.Extensions) > tlsfront.MaxExtensions {
		return serverHello{}, false
	}
	return h, true
}

func (h *serverHello) extension(typ uint16, body []byte) {
	h.flight.Extensions = append(h.flight.Extensions, typ)
	r := reader{b: body}
	switch typ {
	case extensionSupportedVersions:
		if v := r.uint16(); !r.failed {
			h.flight.Version = v
		}
	case extensionKeyShare:
		h.flight.Group = r.uint16()
		h.hasShare = len(r.b) > 0
	}
}

// reader reads a message that is there as a whole. A step past its end fails, as do all that follow, with zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) bytes(n int) (b []byte) {
	if r.failed || n > len(r.b) {
		r.failed = true
		return nil
	}
	b, r.b = r.b[:n], r.b[n:]
	return b
}

func (r *reader) uint8() int {
	if b := r.bytes(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}
