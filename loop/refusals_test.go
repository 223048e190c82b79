package loop

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/relay"
	"mtrelay/tlsfront"
)

func TestRefusalsAreTold(t *testing.T) {
	var log bytes.Buffer
	r := newReporter(&Options{Log: zerolog.New(&log)})
	client := netip.MustParseAddrPort("203.0.113.77:1234")
	for range 3 {
		r.sentToFront(tlsfront.ReasonClock, client, 4*time.Minute)
		r.sentToFront(tlsfront.ReasonRecordType, client, 0)
		r.endedRefused(relay.ReasonBadInit, netip.MustParseAddrPort("[2001:db8:1:2::3]:1"))
		r.endedRefused(relay.ReasonClientClosed, client)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	want := []string{
		`{"level":"info","reason":"clock","client":"203.0.113.0/24","skew":"4m0s","message":"` + frontTexts[tlsfront.ReasonClock] + `"}`,
		`{"level":"info","reason":"record-type","client":"203.0.113.0/24","message":"` + noHello + `"}`,
		`{"level":"info","reason":"bad-init","client":"2001:db8:1::/48","message":"` + endTexts[relay.ReasonBadInit] + `"}`,
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got\n%s\nwant\n%s", log.String(), strings.Join(want, "\n"))
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	r := newRefusals()
	start := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		text string
		at   time.Duration
		more int
		due  bool
	}{
		{"a", 0, 0, true},
		{"a", 1, 0, false},
		{"b", 2, 0, true},
		{"a", refusalEvery - 1, 0, false},
		{"a", refusalEvery, 2, true},
		{"a", 2 * refusalEvery, 0, true},
	} {
		if more, due := r.due(test.text, start.Add(test.at)); more != test.more || due != test.due {
			t.Errorf("%s at %v: %d more, due %v", test.text, test.at, more, due)
		}
	}
}
