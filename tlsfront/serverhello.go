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

	// moreFinished is what a Finished of SHA-384 has over one of SHA-256.
	moreFinished = 48 - 32
)

// Numbers of our choosing: the range of a server's encrypted records, the certificate above all, until the front's own
// length is known. The chains of two ECDSA certificates that sites use today lie in it.
const (
	minFlight = 2200
	maxFlight = 3600
)

// AppendReply appends the answer to an accepted hello to dst: a ServerHello, a ChangeCipherSpec, one record of
// application data, and nothing else, for that is all that clients take. raw is what Judge saw. mss is the payload of
// a TCP segment to this client, 0 when unknown. dst must not share bytes with raw. The reply must leave in one write, and
// nothing may follow before the client has spoken: Android's client takes what it has read by then for the whole reply.
//
// The shape is that of OpenSSL and Go: session id echoed, supported_versions before key_share, the client's first
// TLS 1.3 suite, X25519MLKEM768 when it has a share for it. It allocates nothing when dst has room for 4,900 bytes.
func (g *Gate) AppendReply(dst []byte, h *Hello, raw []byte, mss int) []byte {
	if h.verdict != Accepted {
		panic("tlsfront: internal error: AppendReply to a hello that is not accepted")
	}
	hello := h.record(raw)
	start := len(dst)
	dst = g.appendServerHello(dst, &h.offer, h.SessionID(raw), mss)
	dst = append(dst, RecordChangeCipherSpec, 3, 3, 0, 1, 1)
	dst = g.appendFlight(dst, h)
	g.sign(dst[start:], h.Secret(), hello[recordRandom:recordRandomEnd])
	return dst
}

// appendServerHello appends the record with its random left zero.
func (g *Gate) appendServerHello(dst []byte, o *offer, sessionID []byte, mss int) []byte {
	group, shareLen := groupX25519, x25519ShareLen
	if o.hybrid && !(o.x25519 && endsBehind(mss, serverHelloLen+len(sessionID)+hybridShareLen)) {
		group, shareLen = groupX25519MLKEM768, hybridShareLen
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
	dst = u16(dst, o.suite)
	dst = append(dst, 0) // no compression
	dst = u16(dst, uint16(6+8+shareLen))
	dst = u16(u16(u16(dst, extensionSupportedVersions), 2), versionTLS13)
	dst = u16(u16(dst, extensionKeyShare), uint16(4+shareLen))
	dst = u16(u16(dst, uint16(group)), uint16(shareLen))
	if group == groupX25519MLKEM768 {
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

// appendFlight appends the application data record: random bytes, as ciphertext looks, of the length that a server's
// encrypted extensions, certificate, signature and Finished would have in one record.
//
// At a real server that length is a constant of its certificate but for two things: the Finished is as long as the
// suite's hash, and an ECDSA signature in DER has up to two bytes more, since each of its two numbers takes a byte to
// stay positive half of the time. A length drawn from a wide range would be seen by whoever connects twice.
func (g *Gate) appendFlight(dst []byte, h *Hello) []byte {
	n := g.secrets[h.Secret()].flight
	if h.offer.suite == suiteAES256GCM {
		n += moreFinished
	}
	coins := g.sum[:1]
	fill(g.rnd, coins)
	n += bits.OnesCount8(coins[0] & 3)

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
	return minFlight + int(binary.BigEndian.Uint32(mac.Sum(nil))%(maxFlight-minFlight+1))
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
