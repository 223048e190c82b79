package relay

import (
	"bytes"
	"testing"

	"mtrelay/tlsfront"
)

// TestSelfProbeIsRecognised: one of the secrets is the proxy's own; its hello goes to the front as a stranger's.
func TestSelfProbeIsRecognised(t *testing.T) {
	g := readGenuine(t, "tdlib-1.8.65")
	for _, own := range []int{-1, 1} {
		w := newWorld(t, g.time, tlsfront.Secret{Host: "other.example", Key: [16]byte{1}}, g.secret)
		w.env.Probe = own
		var met []byte
		var buf = bytes.Clone(g.hello)
		w.call(func(out *Out) {
			w.s.Client(w.now, buf, out)
			met = bytes.Clone(out.SelfProbe)
		})
		if own < 0 {
			w.expect(StateClientInit, ReasonNotEnded)
			continue
		}
		w.expect(StateDialFront, ReasonNotEnded)
		if want := g.hello[44:76]; !bytes.Equal(met, want) {
			t.Fatalf("met % x, want the session id % x", met, want)
		}
		if len(w.peers[Client].got) != 0 || w.s.Secret() != -1 || w.s.FrontReason() != tlsfront.ReasonDigest {
			t.Fatal("the proxy's own hello is not treated as a stranger's")
		}
	}
}
