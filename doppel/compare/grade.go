package compare

import (
	"crypto/tls"
	"fmt"

	"mtrelay/tlsfront"
)

// Grade is how good a choice a front is.
type Grade uint8

// From the best to the worst.
const (
	Good     Grade = iota // all of it can be imitated
	Fair                  // but for what an observer finds who looks closely at one connection
	Poor                  // anybody finds the difference
	Unusable              // no reply of ours can look like it
)

var gradeNames = []string{"good", "fair", "poor", "unusable"}

func (g Grade) String() string { return gradeNames[g] }

// MarshalText writes the name.
func (g Grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// Remark is one thing about a front as a choice.
type Remark struct {
	Grade Grade  `json:"grade"` // what the front is at best because of it; Good for what does not matter
	Text  string `json:"text"`
}

// Longest payload of the encrypted record that iOS takes in the reply.
const longestRecord = 10240

// Judge grades a front by its TLS. trusted: browsers would take its certificate.
func Judge(p *tlsfront.Profile, trusted bool) (g Grade, remarks []Remark) {
	note := func(grade Grade, format string, args ...any) {
		g = max(g, grade)
		remarks = append(remarks, Remark{grade, fmt.Sprintf(format, args...)})
	}
	f := &p.Flights[tlsfront.HelloHybrid]
	judgeHello(f, note)
	if f.OK {
		judgeGroup(tls.CurveID(f.Group), note)
		judgeSuite(f.Suite, note)
		judgeRecords(f.Records, note)
	}
	for k := range tlsfront.NumHelloKinds {
		if other := &p.Flights[k]; f.OK && !other.OK {
			note(Fair, "to the hello of kind %v it answers otherwise: %s", tlsfront.HelloKind(k), describe(other))
		}
	}
	if f.OK {
		judgeTickets(len(p.Tickets), note)
	}
	if !trusted {
		note(Fair, "browsers warn of its certificate: real visitors would not stay")
	}
	return g, remarks
}

type noter func(grade Grade, format string, args ...any)

func judgeHello(f *tlsfront.Flight, note noter) {
	switch {
	case f.Version == 0:
		note(Unusable, "no TLS: it does not answer a Telegram client's hello with a ServerHello")
	case f.Version != tls.VersionTLS13:
		note(Unusable, "%s: Telegram's clients accept nothing but TLS 1.3", version(f.Version))
	case f.Retry:
		note(Unusable, "HelloRetryRequest: Telegram's clients do not answer one")
	case !f.OK:
		note(Unusable, "its answer is not one of TLS 1.3 that we understand")
	default:
		note(Good, "TLS 1.3, without a HelloRetryRequest")
	}
}

func judgeGroup(g tls.CurveID, note noter) {
	switch g {
	case tls.X25519MLKEM768:
		note(Good, "post-quantum group %v, as modern sites choose", g)
	case tls.X25519:
		note(Good, "no post-quantum group: it chooses %v, which can be imitated and becomes rarer", g)
	default:
		note(Poor, "group %v, which Telegram's clients send no share for", g)
	}
}

func judgeSuite(s uint16, note noter) {
	switch s {
	case tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384, tls.TLS_CHACHA20_POLY1305_SHA256:
	default:
		note(Poor, "cipher suite %s, which Telegram's clients do not offer", suite(s))
	}
}

// judgeRecords judges the encrypted records behind the ServerHello.
func judgeRecords(observations [][]int, note noter) {
	if len(observations) == 0 {
		note(Fair, "what follows its ServerHello was not seen")
		return
	}
	number := numberOf(observations)
	if number == "1" {
		note(Good, "one encrypted record behind its ServerHello, as ours")
	} else {
		note(Fair, "%s encrypted records behind its ServerHello: clients take exactly one, so ours is one of as many bytes", number)
	}
	low, high := extent(observations)
	if high-tlsfront.RecordHeaderLen > longestRecord {
		note(Poor, "a flight of %s bytes: clients take no record over %d, so ours is shorter", span(low, high), longestRecord)
	}
	switch {
	case len(observations) == 1:
		note(Good, "its flight was seen once, so nothing is known of how it varies")
	case high-low > 2*wobble:
		note(Good, "its flight varies, %s bytes in %d observations: ours is drawn from what was seen", span(low, high), len(observations))
	default:
		note(Good, "its flight hardly varies: %s bytes in %d observations", span(low, high), len(observations))
	}
}

func judgeTickets(n int, note noter) {
	switch n {
	case 0:
		note(Good, "no session tickets behind the handshake, as with us")
	case 1:
		note(Good, "one session ticket behind the handshake: the first bytes for the client are cut like it when there are enough")
	default:
		note(Good, "%d session tickets behind the handshake: the first bytes for the client are cut like them when there are enough", n)
	}
}
