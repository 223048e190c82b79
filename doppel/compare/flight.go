package compare

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"mtrelay/tlsfront"
)

// FlightPair is how the front answers a kind of hello, and how we do.
type FlightPair struct {
	Hello  string           `json:"hello"`
	Theirs *tlsfront.Flight `json:"theirs"`
	Ours   *tlsfront.Flight `json:"ours"`
}

// Flights pairs the answers to all kinds of hello.
func Flights(theirs, ours *tlsfront.Profile) (pairs []FlightPair) {
	for k := range tlsfront.NumHelloKinds {
		pairs = append(pairs, FlightPair{tlsfront.HelloKind(k).String(), &theirs.Flights[k], &ours.Flights[k]})
	}
	return pairs
}

// wobble is by how many bytes a front's own flights differ more than a few observations show: an ECDSA signature in DER
// has up to two bytes more, and it is drawn anew for each.
const wobble = 4

// differences are what an observer of this pair could go by, in words.
func (p *FlightPair) differences() (list []string) {
	t, o := p.Theirs, p.Ours
	add := func(differs bool, format string, args ...any) {
		if differs {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(t.Retry, "its HelloRetryRequest")
	add(t.Version != o.Version, "the version (%s, ours %s)", version(t.Version), version(o.Version))
	if !t.OK || !o.OK {
		return list
	}
	add(t.Suite != o.Suite, "the cipher suite (%s, ours %s)", suite(t.Suite), suite(o.Suite))
	add(t.Group != o.Group, "the group (%s, ours %s)", group(t.Group), group(o.Group))
	add(!slices.Equal(t.Extensions, o.Extensions), "the extensions of the ServerHello (%s, ours %s)", words(t.Extensions), words(o.Extensions))
	add(t.EchoesSessionID != o.EchoesSessionID, "the session id, which only one of the two echoes")
	if len(t.Records) == 0 || len(o.Records) == 0 {
		return list
	}
	theirs, ours := numberOf(t.Records), numberOf(o.Records)
	add(theirs != ours, "the number of encrypted records behind the ServerHello (%s, ours %s)", theirs, ours)
	low, high := extent(t.Records)
	least, most := extent(o.Records)
	add(least < low-wobble || most > high+wobble, "the bytes of the encrypted records (%s, ours %s)", span(low, high), span(least, most))
	return list
}

// onWire is how many bytes a flight's records are.
func onWire(records []int) (n int) {
	for _, payload := range records {
		n += tlsfront.RecordHeaderLen + payload
	}
	return n
}

// extent is between how many bytes on the wire the observations are; there is at least one.
func extent(observations [][]int) (low, high int) {
	low = onWire(observations[0])
	for _, o := range observations {
		low, high = min(low, onWire(o)), max(high, onWire(o))
	}
	return low, high
}

// numberOf is how many records the observations have: a number or a range.
func numberOf(observations [][]int) string {
	low, high := len(observations[0]), 0
	for _, o := range observations {
		low, high = min(low, len(o)), max(high, len(o))
	}
	return span(low, high)
}

func span(low, high int) string {
	if low == high {
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

func version(v uint16) string {
	if v == 0 {
		return "none"
	}
	return tls.VersionName(v)
}

func suite(s uint16) string { return strings.TrimPrefix(tls.CipherSuiteName(s), "TLS_") }

func group(g uint16) string { return tls.CurveID(g).String() }

func words(list []uint16) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, " ")
}

// describe says in a line what a flight is.
func describe(f *tlsfront.Flight) string {
	switch {
	case f.Version == 0:
		return "no ServerHello"
	case f.Retry:
		return fmt.Sprintf("HelloRetryRequest for %s", group(f.Group))
	case !f.OK:
		return fmt.Sprintf("%s, %s", version(f.Version), suite(f.Suite))
	}
	text := fmt.Sprintf("%s  %s  %s  extensions %s", version(f.Version), suite(f.Suite), group(f.Group), words(f.Extensions))
	if !f.EchoesSessionID {
		text += "  no session id"
	}
	if len(f.Records) == 0 {
		return text
	}
	low, high := extent(f.Records)
	return fmt.Sprintf("%s  records %s (%s bytes)", text, dotted(f.Records[0]), span(low, high))
}

func dotted(list []int) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = fmt.Sprint(n)
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, "·")
}
