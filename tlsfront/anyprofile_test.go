package tlsfront

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

// expectGoodReply is what clients and the RFC demand of any reply, whatever the profile.
func expectGoodReply(t *testing.T, raw, b []byte) {
	t.Helper()
	r, err := splitReply(b)
	if err != nil {
		t.Fatal(err)
	}
	h := new(Hello)
	h.Feed(raw)
	if !provesSecret(b, alice.Key, h.record(raw)[11:43]) || !bytes.Equal(r.sessionID, h.SessionID(raw)) {
		t.Fatal("the reply of another session")
	}
	if r.suite < 0x1301 || r.suite > 0x1303 || !h.offer.offers(uint16(r.suite)) {
		t.Fatalf("suite %04x is not offered", r.suite)
	}
	hybrid := r.group == 0x11ec && h.offer.hybrid && len(r.share) == 1120
	if !hybrid && !(r.group == 0x001d && h.offer.x25519 && len(r.share) == 32) {
		t.Fatalf("group %04x is not offered, or not with a share of %d", r.group, len(r.share))
	}
	if slices.Sort(r.extensions); !slices.Equal(r.extensions, []int{43, 51}) {
		t.Fatalf("extensions %v", r.extensions)
	}
	if n := len(r.flight); n < 18 || n > 10240 {
		t.Fatalf("flight of %d", n)
	}
}

// anyProfile draws a profile that Validate lets pass, most of it absurd.
func anyProfile(rnd *rand.Rand) *Profile {
	one := func(values ...uint16) uint16 { return values[rnd.IntN(len(values))] }
	p := new(Profile)
	for k := range p.Flights {
		f := flightOf(one(0x1301, 0x1302, 0x1303, 0x1304, 0), one(0x11ec, 0x001d, 0x0017, 0), nil)
		if rnd.IntN(4) == 0 {
			f.OK, f.Retry, f.Version = false, rnd.IntN(2) == 0, one(0, 0x0303, 0x0304)
		}
		for range rnd.IntN(MaxExtensions + 1) {
			f.Extensions = append(f.Extensions, one(43, 51, 41, 0x0a0a))
		}
		for range rnd.IntN(4) {
			records := make([]int, 1+rnd.IntN(MaxFlightRecords))
			for i := range records {
				records[i] = MinRecord + rnd.IntN(1<<rnd.IntN(14))
			}
			f.Records = append(f.Records, records)
		}
		p.Flights[k] = f
	}
	return p
}

func TestReplyByAnyProfile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	hellos := offeredHellos(t)
	g := gateFor(alice)
	for range 200 {
		p := anyProfile(rnd)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		expectRoundTrip(t, "any", p)
		for _, raw := range hellos {
			expectGoodReply(t, raw, answeredLike(t, g, captured{time: now}, raw, rnd.IntN(2000), p))
		}
	}
}

// FuzzProfile: whatever a state file says, it is refused or makes a reply that clients take; what was read is written
// the same again.
func FuzzProfile(f *testing.F) {
	for _, p := range knownFronts {
		b, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(1448))
	}
	hellos := offeredHellos(f)
	f.Fuzz(func(t *testing.T, state []byte, mss uint16) {
		p := new(Profile)
		if json.Unmarshal(state, p) != nil {
			return
		}
		b, err := json.Marshal(p)
		again := new(Profile)
		if err != nil || json.Unmarshal(b, again) != nil {
			t.Fatalf("%s: not to be written and read again, %v", b, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(twice, b) {
			t.Fatalf("%s, then %s", b, twice)
		}
		for _, raw := range hellos {
			expectGoodReply(t, raw, answeredLike(t, gateFor(alice), captured{time: now}, raw, int(mss), p))
		}
	})
}
