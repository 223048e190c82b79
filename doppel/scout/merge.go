package scout

import (
	"fmt"
	"slices"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// wobble is by how much a record of a flight may differ between two connections: an ECDSA signature in DER has up to two
// bytes more, and a ticket of Go is as long as the chain that it keeps.
const wobble = 4

// findings are what the connections of one raid showed.
type findings struct {
	flights  [tlsfront.NumHelloKinds][]tlsfront.Flight // observations
	traces   []doppel.Trace
	tickets  [][]int
	endings  []ending
	bytes    int // down, of fetches
	problems []string
}

// profile makes one of the observations; what was not observed stays as it was before.
func (f *findings) profile(before *tlsfront.Profile) *tlsfront.Profile {
	var p tlsfront.Profile
	if before != nil {
		p = *before
	}
	for k, observed := range f.flights {
		if len(observed) > 0 {
			p.Flights[k] = merge(observed)
		}
	}
	if len(f.tickets) > 0 {
		p.Tickets = mostCommon(f.tickets, slices.Equal)
	}
	p.AfterClient = farewellOf(f.endings, true, p.AfterClient)
	p.OfItself = farewellOf(f.endings, false, p.OfItself)
	return &p
}

// farewellOf is what most endings of that kind show, or what was known before when none does.
func farewellOf(endings []ending, clientFirst bool, before tlsfront.Farewell) tlsfront.Farewell {
	var seen []tlsfront.Farewell
	for _, e := range endings {
		if e.clientFirst == clientFirst && e.said != tlsfront.FarewellUnknown {
			seen = append(seen, e.said)
		}
	}
	if len(seen) == 0 {
		return before
	}
	return mostCommon(seen, func(a, b tlsfront.Farewell) bool { return a == b })
}

// merge makes one flight of several observations: what most of them say, with the records of all that agree.
func merge(observed []tlsfront.Flight) tlsfront.Flight {
	merged := mostCommon(observed, alike)
	merged.Records = nil
	for _, o := range observed {
		if alike(o, merged) {
			merged.Records = append(merged.Records, o.Records...)
		}
	}
	merged.Records = withoutStumps(merged.Records)
	merged.Records = merged.Records[:min(len(merged.Records), tlsfront.MaxObservations)]
	return merged
}

// alike reports whether two flights differ in their records at most.
func alike(a, b tlsfront.Flight) bool {
	return a.OK == b.OK && a.Retry == b.Retry && a.Version == b.Version && a.Suite == b.Suite && a.Group == b.Group &&
		a.EchoesSessionID == b.EchoesSessionID && slices.Equal(a.Extensions, b.Extensions)
}

// withoutStumps drops observations that are the beginning of another: there a packet was late, and the pause that was
// taken for the end was none.
func withoutStumps(flights [][]int) [][]int {
	return slices.DeleteFunc(slices.Clone(flights), func(f []int) bool {
		return slices.ContainsFunc(flights, func(g []int) bool { return beginning(f, g) })
	})
}

// beginning reports whether g begins as f does and goes on.
func beginning(f, g []int) bool {
	if len(f) >= len(g) {
		return false
	}
	for i := range f {
		if d := f[i] - g[i]; d < -wobble || d > wobble {
			return false
		}
	}
	return true
}

// mostCommon returns the first of those that most others equal.
func mostCommon[T any](list []T, equal func(a, b T) bool) (best T) {
	most := 0
	for _, a := range list {
		n := 0
		for _, b := range list {
			if equal(a, b) {
				n++
			}
		}
		if n > most {
			best, most = a, n
		}
	}
	return best
}

// judge says in an operator's words what about the front's TLS cannot be imitated.
func judge(p *tlsfront.Profile) (problems []string) {
	f := p.Flights[tlsfront.HelloHybrid]
	switch {
	case f.Version == 0:
		problems = append(problems, "it does not answer a Telegram client's hello with TLS: every visitor sees that ours is another server")
	case f.Version != versionTLS13:
		problems = append(problems, fmt.Sprintf("it answers a Telegram client's hello with version %04x, not TLS 1.3: no reply of ours can look like it", f.Version))
	case f.Retry:
		problems = append(problems, "it answers a Telegram client's hello with a HelloRetryRequest, which Telegram's clients do not follow: no reply of ours can look like it")
	case !f.OK:
		problems = append(problems, "its answer to a Telegram client's hello is not one of TLS 1.3 that we understand")
	}
	return problems
}
