package tlsfront

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"io"
	"math"
	"time"

	"mtrelay/clock"
)

// The client's random is at the same place in a ClientHello record as ours in the reply: HMAC-SHA256 goes there.
const (
	recordRandom    = RecordHeaderLen + randomOffset // 11
	recordRandomEnd = recordRandom + randomLen

	stampOffset  = randomLen - 4 // of the random: where the client's clock is mixed in
	replayKeyLen = 16
)

var zeroRandom [randomLen]byte

// Secret is what a client proves to hold. Name is the operator's word for it; Host is the web site that the secret
// names and the SNI that a client with it sends, "" if it may send any.
type Secret struct {
	Name, Host string
	Key        [16]byte
}

// Gate judges ClientHellos and answers those it accepts. The HMAC of each secret is set up once, so judging allocates
// nothing. Not safe for concurrent use; owned by one loop.
type Gate struct {
	secrets   []gateSecret
	tolerance time.Duration
	replay    *Replay
	rnd       io.Reader
	shares    shareMaker
	sum       [sha256.Size]byte // scratch: the digest just computed
}

type gateSecret struct {
	mac    hash.Hash
	host   string // canonical
	flight int    // see flightLen
}

// NewGate returns a gate for these secrets, in the order that Hello.Secret counts them. A client's clock may be off by
// up to tolerance either way. replay is shared by the gates of all loops; nil forgets what was accepted. rnd supplies
// every random byte of the replies: crypto/rand.Reader in service, a fixed stream in tests.
func NewGate(secrets []Secret, tolerance time.Duration, replay *Replay, rnd io.Reader) *Gate {
	g := &Gate{tolerance: tolerance, replay: replay, rnd: rnd}
	flights := make(map[string]int)
	for i := range secrets {
		s := &secrets[i]
		host := canonicalHost([]byte(s.Host))
		if flights[host] == 0 {
			flights[host] = flightLen(s.Key, host)
		}
		mac := hmac.New(sha256.New, s.Key[:])
		mac.Reset() // keeps the state behind the key, which the first Judge would otherwise allocate
		g.secrets = append(g.secrets, gateSecret{mac, host, flights[host]})
	}
	return g
}

// Judge decides about a Whole hello; raw is what Feed saw. It computes at most budget HMACs, one per secret; when that
// is not enough it says Scan, and the next call goes on from there. wall is the time now.
//
// The order: the digest, against every secret; then, for a secret whose digest is right, the clock, the SNI, whether
// the offers can be answered, and last the test-and-set of the replay memory, so that a hello that fails elsewhere does
// not burn a good one. A refused hello has always cost one HMAC per secret, whatever is wrong with it: how long the
// front takes to answer must not tell a recorded hello from random bytes.
func (g *Gate) Judge(h *Hello, raw []byte, wall clock.Unix, budget int) Verdict {
	switch h.verdict {
	case Whole:
	case More:
		panic("tlsfront: internal error: Judge before the hello is whole")
	default:
		return h.verdict
	}
	hello := h.record(raw)
	for int(h.tried) < len(g.secrets) {
		if budget <= 0 {
			return Scan
		}
		budget--
		i := h.next()
		h.tried++
		if !g.matches(i, hello) {
			continue
		}
		if h.reason = g.examine(h, i, hello[recordRandom:recordRandomEnd], wall); h.reason == ReasonNone {
			h.verdict = Accepted
			return Accepted
		}
	}
	if h.secret == 0 {
		h.reason = ReasonDigest
	}
	h.verdict = Front
	return Front
}

// TryFirst has Judge begin with this secret, such as the one that was last used from the client's address. To be called
// before the first Judge, with an index that a secret has.
func (h *Hello) TryFirst(secret int) { h.first = int32(secret) }

// next returns the secret to be tried: the first one first, then the others in order.
func (h *Hello) next() int {
	switch {
	case h.tried == 0:
		return int(h.first)
	case h.tried <= h.first:
		return int(h.tried) - 1
	}
	return int(h.tried)
}

// Secret returns the index of the secret whose digest matched, -1 until one did. It is known also for a hello that was
// refused afterwards, for its clock, say.
func (h *Hello) Secret() int { return int(h.secret) - 1 }

// Skew returns the client's clock minus ours, in whole seconds, once a digest matched; 0 before.
func (h *Hello) Skew() time.Duration { return seconds(h.skew) }

// matches reports whether the hello's random is the digest under secret i, but for the last four bytes, in which the
// client's clock is mixed in. It leaves the digest in g.sum.
func (g *Gate) matches(i int, hello []byte) bool {
	mac := g.secrets[i].mac
	mac.Reset()
	mac.Write(hello[:recordRandom])
	mac.Write(zeroRandom[:])
	mac.Write(hello[recordRandomEnd:])
	mac.Sum(g.sum[:0])
	return subtle.ConstantTimeCompare(g.sum[:stampOffset], hello[recordRandom:][:stampOffset]) == 1
}

// examine looks at everything but the digest, which matched secret i and is in g.sum.
func (g *Gate) examine(h *Hello, i int, random []byte, wall clock.Unix) Reason {
	stamp := binary.LittleEndian.Uint32(g.sum[stampOffset:]) ^ binary.LittleEndian.Uint32(random[stampOffset:])
	h.secret = int32(i) + 1
	h.skew = int64(stamp) - int64(wall) // a stamp means one instant from 1970 to 2106; it does not wrap
	switch {
	case seconds(h.skew).Abs() > g.tolerance:
		return ReasonClock
	case h.offer.serverName == "":
		return ReasonNoServerName
	case g.secrets[i].host != "" && h.offer.serverName != g.secrets[i].host:
		return ReasonOtherServerName
	case !h.offer.tls13 || h.offer.suite == 0:
		return ReasonNoTLS13
	case !h.offer.x25519 && !h.offer.hybrid:
		return ReasonNoGroup
	case g.replay == nil:
		return ReasonNone
	}
	// The leading bytes of the digest stand for the hello: cutting it over other records does not change them, and
	// neither does another stamp, which the digest does not cover and anybody can exchange.
	return g.replay.admit([replayKeyLen]byte(g.sum[:replayKeyLen]), stamp, wall)
}

// seconds is n seconds, or the longest Duration of that sign.
func seconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}
