package tlsfront

import (
	"bytes"
	"math"
	"testing"
	"time"

	"mtrelay/clock"
)

const now = clock.Unix(1_796_044_800)

var (
	alice = Secret{Name: "alice", Host: "www.example.com", Key: [16]byte{1}}
	bob   = Secret{Name: "bob", Host: "www.example.org", Key: [16]byte{2}}
)

func signed(key [16]byte, stamp clock.Unix, host string) []byte {
	p := plainParts()
	p.extensions = vector(2, join(
		serverNameExtension(host),
		extension(extensionSupportedVersions, vector(1, words(0x0304))),
		keyShareExtension(share(groupX25519, 32)),
	))
	return signHello(p.record(), key, stamp)
}

func TestClock(t *testing.T) {
	const year2106 = clock.Unix(math.MaxUint32)
	tests := []struct {
		name        string
		stamp, wall clock.Unix
		want        Verdict
	}{
		{"exact", now, now, Accepted},
		{"as slow as allowed", now - 120, now, Accepted},
		{"too slow", now - 121, now, Front},
		{"as fast as allowed", now + 120, now, Accepted},
		{"too fast", now + 121, now, Front},
		{"other byte order", 0x12345678, 0x78563412, Front},
		{"1970", 0, 0, Accepted},
		{"1970, ours fast", 0, 120, Accepted},
		{"1970, ours too fast", 0, 121, Front},
		{"no wrap at 1970", year2106, 0, Front},
		{"2106", year2106, year2106, Accepted},
		{"2106, ours fast", year2106, year2106 + 120, Accepted},
		{"2106, ours too fast", year2106, year2106 + 121, Front},
		{"no wrap at 2106", 0, year2106, Front},
		{"no wrap behind 2106", 0, year2106 + 1, Front},
		{"end of our time", 0, math.MaxInt64, Front},
		{"before all time", year2106, math.MinInt64 >> 1, Front},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, v := judged(gateFor(alice), signed(alice.Key, tt.stamp, alice.Host), tt.wall)
			reason := ReasonNone
			if tt.want == Front {
				reason = ReasonClock
			}
			expectVerdict(t, h, v, tt.want, reason)
			if skew := int64(tt.stamp - tt.wall); h.Secret() != 0 || skew == int64(int32(skew)) && h.Skew() != time.Duration(skew)*time.Second {
				t.Fatalf("secret %d, skew %v", h.Secret(), h.Skew())
			}
		})
	}
}

func TestServerNameRule(t *testing.T) {
	tests := []struct {
		host, sni string
		reason    Reason
	}{
		{"www.example.com", "www.example.com", ReasonNone},
		{"www.example.com", "WWW.Example.COM", ReasonNone},
		{"www.example.com", "www.example.com.", ReasonNone},
		{"WWW.example.com.", "www.example.com", ReasonNone},
		{"www.example.com", "www.example.com..", ReasonOtherServerName},
		{"www.example.com", "example.com", ReasonOtherServerName},
		{"www.example.com", "www.example.org", ReasonOtherServerName},
		{"www.example.com", "www.example.com\x00", ReasonOtherServerName},
		{"k.example", "\u212a.example", ReasonOtherServerName}, // KELVIN SIGN, a k in Unicode's eyes
		{"www.example.com", ".", ReasonNoServerName},
		{"", ".", ReasonNoServerName},
	}
	for _, tt := range tests {
		h, v := judged(gateFor(Secret{Host: tt.host}), signed([16]byte{}, now, tt.sni), now)
		if (v == Accepted) != (tt.reason == ReasonNone) || h.Reason() != tt.reason {
			t.Errorf("host %q, SNI %q: %v (%v), want %v", tt.host, tt.sni, v, h.Reason(), tt.reason)
		}
	}
}

// TestOffers: a hello with the right digest that no TLS 1.3 server would answer with a ServerHello.
func TestOffers(t *testing.T) {
	name := serverNameExtension(alice.Host)
	versions := extension(extensionSupportedVersions, vector(1, words(0x0304)))
	x25519 := keyShareExtension(share(groupX25519, 32))
	suites := words(0x1303)
	tests := []struct {
		name       string
		suites     []byte
		extensions []byte
		want       Reason
	}{
		{"all there", suites, join(name, versions, x25519), ReasonNone},
		{"hybrid only", suites, join(name, versions, keyShareExtension(share(groupX25519MLKEM768, 1216))), ReasonNone},
		{"no extensions", suites, nil, ReasonNoServerName},
		{"no server_name", suites, join(versions, x25519), ReasonNoServerName},
		{"no supported_versions", suites, join(name, x25519), ReasonNoTLS13},
		{"TLS 1.2 only", suites, join(name, extension(extensionSupportedVersions, vector(1, words(0x0303))), x25519), ReasonNoTLS13},
		{"TLS 1.2 suites", words(0xc02b), join(name, versions, x25519), ReasonNoTLS13},
		{"TLS 1.3 suites that no front uses", words(0x1304, 0x1305, 0x1a1a), join(name, versions, x25519), ReasonNoTLS13},
		{"no key_share", suites, join(name, versions), ReasonNoGroup},
		{"no share", suites, join(name, versions, keyShareExtension()), ReasonNoGroup},
		{"P-256 share", suites, join(name, versions, keyShareExtension(share(0x0017, 65))), ReasonNoGroup},
	}
	for _, tt := range tests {
		p := plainParts()
		p.suites, p.extensions = vector(2, tt.suites), vector(2, tt.extensions)
		h, v := judged(gateFor(alice), signHello(p.record(), alice.Key, now), now)
		if (v == Accepted) != (tt.want == ReasonNone) || h.Reason() != tt.want {
			t.Errorf("%s: %v (%v), want %v", tt.name, v, h.Reason(), tt.want)
		}
	}
}

func TestSecrets(t *testing.T) {
	carol := Secret{Name: "carol", Host: bob.Host, Key: alice.Key} // alice's key for bob's host
	tests := []struct {
		name    string
		secrets []Secret
		raw     []byte
		secret  int
		reason  Reason
	}{
		{"first", []Secret{alice, bob}, signed(alice.Key, now, alice.Host), 0, ReasonNone},
		{"second", []Secret{alice, bob}, signed(bob.Key, now, bob.Host), 1, ReasonNone},
		{"another secret's host", []Secret{alice, bob}, signed(bob.Key, now, alice.Host), 1, ReasonOtherServerName},
		{"unknown key", []Secret{alice, bob}, signed([16]byte{9}, now, alice.Host), -1, ReasonDigest},
		{"one key for two hosts", []Secret{alice, carol}, signed(alice.Key, now, bob.Host), 1, ReasonNone},
		{"no secrets", nil, signed(alice.Key, now, alice.Host), -1, ReasonDigest},
	}
	for _, tt := range tests {
		h, v := judged(gateFor(tt.secrets...), tt.raw, now)
		if (v == Accepted) != (tt.reason == ReasonNone) || h.Reason() != tt.reason || h.Secret() != tt.secret {
			t.Errorf("%s: %v (%v), secret %d", tt.name, v, h.Reason(), h.Secret())
		}
	}
}

// TestOneRecordAsSent: the digest covers the version of a record that nobody cut.
func TestOneRecordAsSent(t *testing.T) {
	raw := signed(alice.Key, now, alice.Host)
	raw[2] = 3
	h, v := judged(gateFor(alice), raw, now)
	expectVerdict(t, h, v, Front, ReasonDigest)
	h, v = judged(gateFor(alice), signHello(raw, alice.Key, now), now)
	expectVerdict(t, h, v, Accepted, ReasonNone)
}

// TestBudget: whatever the budget, a refused hello costs one HMAC per secret, and an accepted one is found where the
// calls before it stopped.
func TestBudget(t *testing.T) {
	secrets := make([]Secret, 300)
	for i := range secrets {
		secrets[i] = Secret{Host: "www.example.com", Key: [16]byte{byte(i), byte(i >> 8), 7}}
	}
	tests := []struct {
		name  string
		raw   []byte
		hmacs int
		want  Verdict
	}{
		{"the last one's", signed(secrets[299].Key, now, secrets[299].Host), 300, Accepted},
		{"the 200th's", signed(secrets[199].Key, now, secrets[199].Host), 200, Accepted},
		{"nobody's", signed([16]byte{9}, now, alice.Host), 300, Front},
		{"the first one's with another SNI", signed(secrets[0].Key, now, bob.Host), 300, Front},
		{"the first one's, late", signed(secrets[0].Key, now-999, alice.Host), 300, Front},
	}
	for _, tt := range tests {
		for _, budget := range []int{1, 7, 128, 300, 1000} {
			g := gateFor(secrets...)
			h := new(Hello)
			h.Feed(tt.raw)
			calls := 1
			v := g.Judge(h, tt.raw, now, budget)
			for ; v == Scan; v = g.Judge(h, tt.raw, now, budget) {
				calls++
			}
			if v != tt.want || calls != (tt.hmacs+budget-1)/budget {
				t.Errorf("%s, budget %d: %v in %d calls", tt.name, budget, v, calls)
			}
			if g.Judge(h, tt.raw, now, 0) != v {
				t.Errorf("%s: the verdict changed", tt.name)
			}
		}
	}
	h := new(Hello)
	raw := tests[0].raw
	h.Feed(raw)
	if v := gateFor(secrets...).Judge(h, raw, now, 0); v != Scan {
		t.Errorf("no budget: %v", v)
	}
}

// TestReplayComesLast: a copy that fails for another reason does not burn the original.
func TestReplayComesLast(t *testing.T) {
	g := NewGate([]Secret{alice}, tolerance, NewReplay(tolerance, now-3600, 16), fixed(1))
	raw := signed(alice.Key, now, alice.Host)
	judge := func(raw []byte, wall clock.Unix, want Verdict, reason Reason) {
		t.Helper()
		h, v := judged(g, raw, wall)
		expectVerdict(t, h, v, want, reason)
	}
	judge(raw, now+121, Front, ReasonClock)
	judge(signed(alice.Key, now, bob.Host), now, Front, ReasonOtherServerName)
	judge(raw, now+120, Accepted, ReasonNone)
	judge(raw, now+120, Front, ReasonReplay)
	judge(recut(raw, 0x0303, 1, 2, 50), now+120, Front, ReasonReplay)

	restamped := bytes.Clone(raw)
	restamped[11+28] ^= 1 // now is even: one second later
	judge(restamped, now, Front, ReasonReplay)
	judge(signed(alice.Key, now-3601, alice.Host), now-3600, Front, ReasonBeforeStart)
}

// TestJudgeAllocates: nothing, not even the first time with a gate's secrets.
func TestJudgeAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const runs = 20
	var gates [runs + 1]*Gate // AllocsPerRun makes one run more
	secrets := make([]Secret, 100)
	for i := range secrets {
		secrets[i] = Secret{Host: bob.Host, Key: [16]byte{byte(i), 7}}
	}
	replay := NewReplay(tolerance, 0, 100)
	for i := range gates {
		gates[i] = NewGate(append(secrets, alice), tolerance, replay, fixed(1))
	}
	raw := signed(alice.Key, now, alice.Host)
	var fed Hello
	fed.Feed(raw)
	next := 0
	if n := testing.AllocsPerRun(runs, func() {
		h := fed
		for gates[next].Judge(&h, raw, now, 64) == Scan {
		}
		next++
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestJudgeTooEarly(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	gateFor(alice).Judge(new(Hello), nil, now, 1)
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range NumReasons {
		if name := r.String(); name == "" || seen[name] {
			t.Errorf("reason %d: %q", r, name)
		} else {
			seen[name] = true
		}
	}
	for v := More; v <= Front; v++ {
		if v.String() == "" {
			t.Errorf("verdict %d has no name", v)
		}
	}
}

// TestTryFirst: whichever is tried first, each secret is tried once, and the first one's hello costs one HMAC.
func TestTryFirst(t *testing.T) {
	secrets := make([]Secret, 5)
	for i := range secrets {
		secrets[i] = Secret{Host: alice.Host, Key: [16]byte{byte(i), 7}}
	}
	for first := range secrets {
		for signer := range secrets {
			raw := signed(secrets[signer].Key, now, alice.Host)
			h := new(Hello)
			h.Feed(raw)
			h.TryFirst(first)
			if v := gateFor(secrets...).Judge(h, raw, now, len(secrets)); v != Accepted || h.Secret() != signer {
				t.Fatalf("first %d, signed by %d: %v, secret %d", first, signer, v, h.Secret())
			}
			if first == signer && h.tried != 1 {
				t.Fatalf("%d HMACs for the first secret's hello", h.tried)
			}
		}
		raw := signed([16]byte{9}, now, alice.Host)
		h := new(Hello)
		h.Feed(raw)
		h.TryFirst(first)
		if v := gateFor(secrets...).Judge(h, raw, now, len(secrets)); v != Front || h.tried != 5 {
			t.Fatalf("first %d, a stranger: %v after %d HMACs", first, v, h.tried)
		}
	}
}
