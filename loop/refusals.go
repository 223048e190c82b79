package loop

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"mtrelay/relay"
	"mtrelay/tlsfront"
)

// refusalEvery is how often a line on one reason is printed at most.
const refusalEvery = time.Minute

// What an operator is told when clients are sent to the front. Bytes that are no hello of ours are a
// scanner's or a browser's and need no words beyond their reason; a right secret is somebody's friend.
var frontTexts = map[tlsfront.Reason]string{
	tlsfront.ReasonDigest:           "no secret of ours: a browser, a probe, or a client with an old link",
	tlsfront.ReasonClock:            "right secret, but the client's clock is off by more than tolerate-time-skewness",
	tlsfront.ReasonNoServerName:     "right secret, but no server name in the hello: the link was altered",
	tlsfront.ReasonOtherServerName:  "right secret, but another host than the secret's: the link was altered",
	tlsfront.ReasonNoTLS13:          "right secret, but a client without TLS 1.3",
	tlsfront.ReasonNoGroup:          "right secret, but a client without a key share that can be answered",
	tlsfront.ReasonReplay:           "right secret, but this hello was used before: a censor replays what it has recorded",
	tlsfront.ReasonBeforeStart:      "right secret, but stamped before the proxy started: a slow clock, or a hello that was recorded",
	tlsfront.ReasonReplayMemoryFull: "right secret, but [defense.anti-replay] max-size has no room left to remember the hello",
	tlsfront.ReasonTimer:            "no hello within [network.timeout] handshake",
	tlsfront.ReasonFIN:              "closed before the hello was whole",
	tlsfront.ReasonFront:            "the front ended or spoke before the hello was whole",
}

const noHello = "not a hello of a Telegram client"

// What an operator is told about clients that proved to hold a secret and were not relayed to their end.
var endTexts = map[relay.Reason]string{
	relay.ReasonHandshakeTimeout: "right secret, but nothing followed within [network.timeout] handshake",
	relay.ReasonBadInit:          "right secret, but what followed is no client's init",
	relay.ReasonBadRecord:        "right secret, but what followed are no TLS records",
	relay.ReasonUnknownDC:        "right secret, but a DC that is not known; see allow-fallback-on-unknown-dc and [dc]",
	relay.ReasonDCUnreachable:    "right secret, but the DC could not be reached",
}

// refusals prints why clients are refused: a line per reason and minute, with one example and the number
// since the last line. Safe for concurrent use.
type refusals struct {
	mu   sync.Mutex
	last map[string]time.Time // by text, so that it is bounded
	more map[string]int
}

func newRefusals() refusals {
	return refusals{last: make(map[string]time.Time), more: make(map[string]int)}
}

// due counts a refusal and tells whether a line is due, and how many were not shown since the last.
func (r *refusals) due(text string, now time.Time) (more int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, seen := r.last[text]; seen && now.Sub(last) < refusalEvery {
		r.more[text]++
		return 0, false
	}
	more, r.more[text], r.last[text] = r.more[text], 0, now
	return more, true
}

// sentToFront tells of a client that the front has now.
func (r *reporter) sentToFront(reason tlsfront.Reason, client netip.AddrPort, skew time.Duration) {
	text, ok := frontTexts[reason]
	if !ok {
		text = noHello
	}
	if reason != tlsfront.ReasonClock {
		skew = 0
	}
	r.refusal(text, reason, client, skew)
}

// endedRefused tells of a session that ended without having been of use, if the reason is one of those.
func (r *reporter) endedRefused(reason relay.Reason, client netip.AddrPort) {
	if text, ok := endTexts[reason]; ok {
		r.refusal(text, reason, client, 0)
	}
}

func (r *reporter) refusal(text string, reason fmt.Stringer, client netip.AddrPort, skew time.Duration) {
	more, ok := r.refusals.due(text, time.Now())
	if !ok {
		return
	}
	e := r.log.Info().Stringer("reason", reason).Stringer("client", network(client.Addr()))
	if skew != 0 {
		e = e.Stringer("skew", skew)
	}
	if more > 0 {
		e = e.Int("more", more)
	}
	e.Msg(text)
}

// network returns the part of an address that tells an operator where a client is but not who: /24 or /48.
func network(a netip.Addr) netip.Prefix {
	bits := 48
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits) // no error: the bits fit
	return p
}
