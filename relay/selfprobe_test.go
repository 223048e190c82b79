package relay

import (
	"bytes"
	"testing"

	"mtrelay/tlsfront"
)

// TestSelfProbeIsRecognised: the last of the secrets is the proxy's own; its hello is not answered.
func TestSelfProbeIsRecognised(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	for _, own := range []int{0, 1} {
		w := newWorld(t, g.time, tlsfront.Secret{Host: "other.example", Key: [16]byte{1}}, g.secret)
		w.env.Probes = own
		var met []byte
		var buf = bytes.Clone(g.hello)
		w.call(func(out *Out) {
			w.s.Client(w.now, buf, out)
			met = bytes.Clone(out.SelfProbe)
		})
		if own == 0 {
			w.expect(StateClientInit, ReasonNotEnded)
			continue
		}
		w.expect(StateClosed, ReasonSelfProbe)
		if want := g.hello[44:76]; !bytes.Equal(met, want) {
			t.Fatalf("met % x, want the session id % x", met, want)
		}
		if len(w.peers[Client].got) != 0 || w.s.Secret() != -1 {
			t.Fatal("the proxy answered itself")
		}
	}
}
