package stats

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestSecretSeriesAreBounded: a thousand secrets, one of which is called like the rest.
func TestSecretSeriesAreBounded(t *testing.T) {
	l := labels
	for i := range 1000 {
		l.Secrets = append(l.Secrets, fmt.Sprint("s", i))
	}
	l.Secrets[5] = otherSecrets
	s := newStats("test", l, fixture("v2"), fixedClock())
	for i, c := range s.Secrets {
		c.Handshakes.Inc()
		c.Up.Add(i)
	}
	if got := strings.Count(get(t, s, "/metrics"), "mtrelay_secret_handshakes_total{"); got != maxSecretSeries {
		t.Errorf("%d series", got)
	}
	var answer struct {
		Secrets map[string]secret `json:"secrets"`
	}
	if err := json.Unmarshal([]byte(get(t, s, "/stats")), &answer); err != nil {
		t.Fatal(err)
	}
	if got := answer.Secrets["s7"]; got != (secret{Handshakes: 1, Up: 7}) {
		t.Errorf("s7: %+v", got)
	}
	if got := answer.Secrets[otherSecrets].Handshakes; got != 1000-(maxSecretSeries-1) {
		t.Errorf("the others: %d handshakes", got)
	}
}
