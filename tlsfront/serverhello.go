package tlsfront

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Sizes of RFC 8446 and draft-ietf-tls-ecdhe-mlkem.
const (
	hybridShareLen = mlkemCipher + x25519ShareLen

	// serverHelloLen is a ServerHello record without its session id and key share (RFC 8446 §4.1.3): record and
	// handshake header, version, random, session id length, suite, compression, extensions length,
	// supported_versions, key_share.
	serverHelloLen = RecordHeaderLen + handshakeHeaderLen + 2 + randomLen + 1 + 2 + 1 + 2 + 6 + 8

	// behindServerHello is the ChangeCipherSpec record and the header of the last record.
	behindServerHello = RecordHeaderLen + 1 + RecordHeaderLen
)

// maxFlight is the longest application data record that iOS takes in a reply.
const maxFlight = 10240

// Numbers of our choosing: the range of a server's encrypted records, the certificate above all, until the front's own
// length is known. The chains of two ECDSA certificates that sites use today lie in it.
const (
	minUnknownFlight = 2200
	maxUnknownFlight = 3600
)

// AppendReply appends the answer to an accepted hello to dst: a ServerHello, a ChangeCipherSpec, one record of
// application data, and nothing else, for that is all that clients take. raw is what Judge saw. mss is the payload of
// a TCP segment to this client, 0 when unknown. dst must not share bytes with raw. The reply must leave in one write, and
// nothing may follow before the client has spoken: Android's client takes what it has read by then for the whole reply.
//
// p is what is known of the front that the secret names; the reply looks as if that had answered. Where it is nil, or
// says nothing that can be imitated, the shape is that of OpenSSL and Go: supported_versions before key_share, the
// client's first TLS 1.3 suite, X25519MLKEM768 when it has a share for it. The session id is echoed always.
//
// It allocates nothing when dst has room for 11,500 bytes; 4,900 are enough without a profile.
func (g *Gate) AppendReply(dst []byte, h *Hello, raw []byte, mss int, p *Profile) []byte {
	if h.verdict != Accepted {
		panic("tlsfront: internal error: AppendReply to a hello that is not accepted")
	}
	hello := h.record(raw)
	sessionID := h.SessionID(raw)
	s := shapeFor(h, p)
	if s.hybrid && h.offer.x25519 && endsBehind(mss, serverHelloLen+len(sessionID)+hybridShareLen) {
		s.hybrid = false
	}
	start := len(dst)
	dst = g.appendServerHello(dst, &s, sessionID)
	dst = append(dst, RecordChangeCipherSpec, 3, 3, 0, 1, 1)
	dst = g.appendFlight(dst, g.drawLength(h, &s))
	g.sign(dst[start:], h.Secret(), hello[recordRandom:recordRandomEnd])
	return dst
}

// replyShape is what an observer can compare of a reply with one of the front's.
type replyShape struct {
	suite       uint16
	hybrid      bool    // X25519MLKEM768, else X25519
	sharesFirst bool    // key_share before supported_versions
	records     [][]int // observed at the front, see Flight; none when it is not known
	recordSuite uint16  // that they were observed under
}

// shapeFor never chooses what the client did not offer. A front without X25519MLKEM768 would send a HelloRetryRequest to
// a client that has no other share; here such a client gets what it asks for.
func shapeFor(h *Hello, p *Profile) replyShape {
	o := &h.offer
	f := p.flight(h)
	if f == nil {
		return replyShape{suite: o.suite, hybrid: o.hybrid}
	}
	return replyShape{
		suite:       p.suite(f, o),
		hybrid:      o.hybrid && (f.Group == groupX25519MLKEM768 || !o.x25519),
		sharesFirst: f.sharesFirst(),
		records:     f.Records,
		recordSuite: f.Suite,
	}
}

// appendServerHello appends the record with its random left zero.
func (g *Gate) appendServerHello(dst []byte, s *replyShape, sessionID []byte) []byte {
	shareLen := x25519ShareLen
	if s.hybrid {
		shareLen = hybridShareLen
	}
	payload := serverHelloLen - RecordHeaderLen + len(sessionID) + shareLen
	u16 := binary.BigEndian.AppendUint16

	dst = append(dst, RecordHandshake, 3, 3)
	dst = u16(dst, uint16(payload))
	dst = append(dst, typeServerHello, 0)
	dst = u16(dst, uint16(payload-handshakeHeaderLen))
	dst = append(dst, 3, 3)
	dst = append(dst, zeroRandom[:]...)
	dst = append(dst, byte(len(sessionID)))
	dst = append(dst, sessionID...)
	dst = u16(dst, s.suite)
	dst = append(dst, 0) // no compression
	dst = u16(dst, uint16(6+8+shareLen))
	if s.sharesFirst {
		return appendVersion(g.appendShare(dst, s.hybrid))
	}
	return g.appendShare(appendVersion(dst), s.hybrid)
}

// appendVersion appends supported_versions, RFC 8446 §4.2.1.
func appendVersion(dst []byte) []byte {
	return append(dst, 0, extensionSupportedVersions, 0, 2, versionTLS13>>8, versionTLS13&0xff)
}

// appendShare appends key_share, RFC 8446 §4.2.8.
func (g *Gate) appendShare(dst []byte, hybrid bool) []byte {
	group, shareLen := groupX25519, x25519ShareLen
	if hybrid {
		group, shareLen = groupX25519MLKEM768, hybridShareLen
	}
	u16 := binary.BigEndian.AppendUint16
	dst = u16(u16(dst, extensionKeyShare), uint16(4+shareLen))
	dst = u16(u16(dst, uint16(group)), uint16(shareLen))
	if hybrid {
		dst = g.shares.appendMLKEM(dst, g.rnd)
	}
	return g.shares.appendX25519(dst, g.rnd)
}

// endsBehind reports whether a TCP segment of a reply ends in the bytes behind a ServerHello record of n bytes, the end
// of that record included. Android's client compares those bytes once it has the record, whether or not they have come,
// and gives up. A hybrid ServerHello ends at 1,215, an IPv6 segment at the smallest MTU at 1,220.
func endsBehind(mss, n int) bool {
	return mss > 0 && (n+behindServerHello-1)/mss*mss >= n
}

// drawLength draws the length of the application data record, which stands for a server's encrypted extensions,
// certificate, signature and Finished: one of those that the front sent.
//
// As long as nobody knows the front's, it is made up. At a real server it is a constant of its certificate but for two
// things: the Finished is as long as the suite's hash, and an ECDSA signature in DER has up to two bytes more, since
// each of its two numbers takes a byte to stay positive half of the time. A length drawn from a wide range would be
// seen by whoever connects twice.
func (g *Gate) drawLength(h *Hello, s *replyShape) int {
	draw := (*[1]byte)(g.sum[:])
	if len(s.records) == 0 {
		fill(g.rnd, draw[:])
		n := g.secrets[h.Secret()].flight + bits.OnesCount8(draw[0]&3)
		return n + finishedLen(s.suite) - finishedLen(suiteAES128GCM)
	}
	seen := s.records[below(g.rnd, draw, min(len(s.records), MaxObservations))]
	n := inOneRecord(seen) + finishedLen(s.suite) - finishedLen(s.recordSuite)
	return max(MinRecord, min(n, maxFlight))
}

// finishedLen is the length of a Finished without its header: the suite's hash, SHA-256 or SHA-384.
func finishedLen(suite uint16) int {
	if suite == suiteAES256GCM {
		return 48
	}
	return sha256.Size
}

// appendFlight appends the application data record: random bytes, as ciphertext looks.
func (g *Gate) appendFlight(dst []byte, n int) []byte {
	start := len(dst)
	dst = slices.Grow(dst, RecordHeaderLen+n)[:start+RecordHeaderLen+n]
	PutRecordHeader(dst[start:], RecordApplicationData, n)
	fill(g.rnd, dst[start+RecordHeaderLen:])
	return dst
}

// flightLen chooses a host's flight until the front's own is known: the same at each start, and not to be computed from
// the host's public name. All secrets of one host share it, as its visitors share a certificate.
func flightLen(key [16]byte, host string) int {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(host))
	return minUnknownFlight + int(binary.BigEndian.Uint32(mac.Sum(nil))%(maxUnknownFlight-minUnknownFlight+1))
}

// sign puts the proof that we hold the secret too where the client looks for it, in the random of the ServerHello:
// HMAC-SHA256 over the client's random as sent and the three records with this random zero.
func (g *Gate) sign(reply []byte, secret int, clientRandom []byte) {
	mac := g.secrets[secret].mac
	mac.Reset()
	mac.Write(clientRandom)
	mac.Write(reply)
	mac.Sum(reply[recordRandom:recordRandom])
}
