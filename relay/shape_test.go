package relay

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// stepped is the shape of a site that sends 1000, 2000 and 3000 bytes, then records of 4000 every 20 ms.
func stepped() *doppel.Model {
	var traces []doppel.Trace
	for range 8 {
		var records []doppel.Record
		at := 10 * time.Millisecond
		for i := range 400 {
			size := min(1000*(i+1), 4000)
			if i >= 3 {
				at += 20 * time.Millisecond
			}
			records = append(records, doppel.Record{At: at, Size: size})
		}
		traces = append(traces, doppel.Trace{Bursts: []doppel.Burst{{Records: records}}, RTT: time.Millisecond})
	}
	return doppel.Learn(traces, doppel.DRSAuto)
}

// tailed is the shape, as it is stored, of a site whose records of 4000 wait 5 ms each and which ends a response with one
// of 24 bytes that waits, too.
func tailed(t *testing.T) *doppel.Model {
	const waits = 1 << 15 // in a stored step
	gaps := slices.Repeat([]int{5e6}, 129)
	stored, err := json.Marshal(map[string]any{
		"version": 1, "steady": []int{4000 | waits, 4000 | waits}, "steady_gaps": gaps, "start_gaps": gaps, "tail": 24, "tail_waited": 1 << 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := new(doppel.Model)
	if err := json.Unmarshal(stored, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// shaped is a relayed session that imitates look.
func shaped(t *testing.T, reencrypt bool, look *Look) (*world, *telegram, oracle) {
	w, c, dc := relayed(t, reencrypt)
	w.env.Look = func(int) *Look { return look }
	return w, c, dc
}

// TestShapedDownlink: the sizes and instants are the model's, the bytes are the DC's.
func TestShapedDownlink(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		w, c, dc := shaped(t, reencrypt, &Look{Shape: stepped()})
		sent := pattern(100_000, 3)
		start := w.now
		w.send(Upstream, dc.encrypt(sent))
		for len(w.peers[Upstream].in) > 0 {
			due := w.s.Due(w.now)
			if due <= w.now {
				t.Fatalf("%d bytes are left and may leave", len(w.peers[Upstream].in))
			}
			w.now = due
			w.run()
		}
		payload, sizes := unwrap(t, w.peers[Client].got)
		c.down.XORKeyStream(payload, payload)
		if !bytes.Equal(payload, sent) {
			t.Fatal("other bytes arrived")
		}
		if want := []int{1000, 2000, 3000, 4000, 4000}; !slices.Equal(sizes[:5], want) {
			t.Errorf("records of %v", sizes[:5])
		}
		if took, want := w.now.Sub(start), 20*time.Millisecond*time.Duration(len(sizes)-3); took < want*9/10 || took > want*11/10 {
			t.Errorf("%d records took %v, want about %v", len(sizes), took, want)
		}
	})
}

// TestIdleShapedSessionHasNoTimer: nothing is due but the idle timer.
func TestIdleShapedSessionHasNoTimer(t *testing.T) {
	w, _, dc := shaped(t, false, &Look{Shape: stepped()})
	before := w.s.Deadline()
	w.send(Upstream, dc.encrypt(pattern(500, 1)))
	if len(w.peers[Upstream].in) != 0 {
		t.Fatal("the first record of a burst waits")
	}
	if w.s.Deadline() != before {
		t.Error("a deadline moved")
	}
}

// TestTicketsComeFirst, as many as there are bytes for, and only once.
func TestTicketsComeFirst(t *testing.T) {
	look := &Look{TLS: &tlsfront.Profile{Tickets: []int{266, 255}}, Shape: doppel.Default()}
	for _, test := range []struct {
		bytes int
		want  []int
	}{
		{1000, []int{266, 255, 479}},
		{521, []int{266, 255}},
		{530, []int{266, 264}}, // 9 bytes would be left behind the second
		{266, []int{266}},
		{100, []int{100}},
	} {
		w, _, dc := shaped(t, false, look)
		w.send(Upstream, dc.encrypt(pattern(test.bytes, 1)))
		if _, sizes := unwrap(t, w.peers[Client].got); !slices.Equal(sizes, test.want) {
			t.Errorf("%d bytes came in records of %v, want %v", test.bytes, sizes, test.want)
		}
	}
	w, _, dc := shaped(t, false, look)
	w.send(Upstream, dc.encrypt(pattern(100, 1)))
	w.send(Upstream, dc.encrypt(pattern(1000, 1)))
	if _, sizes := unwrap(t, w.peers[Client].got); !slices.Equal(sizes, []int{100, 1000}) {
		t.Errorf("records of %v, want no ticket behind the first bytes", sizes)
	}
}

// TestShapedUnderRandomSchedules: whatever arrives when, every byte does, and no record is too small.
func TestShapedUnderRandomSchedules(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, reencrypt bool) {
		for seed := range uint64(50) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			shape := stepped()
			if seed%2 == 0 {
				shape = tailed(t)
			}
			w, c, dc := shaped(t, reencrypt, &Look{Shape: shape})
			sent := pattern(20_000+rnd.IntN(60_000), byte(seed))
			left := dc.encrypt(sent)
			for len(left) > 0 || len(w.peers[Upstream].in) > 0 {
				n := min(rnd.IntN(9000), len(left))
				w.send(Upstream, left[:n])
				left = left[n:]
				w.now = w.now.Add(time.Duration(rnd.IntN(30)) * time.Millisecond)
				w.peers[Client].full = rnd.IntN(4) == 0
				if !w.peers[Client].full {
					w.flush(Client, 1<<30)
				}
				w.run()
			}
			w.peers[Client].full = false
			w.flush(Client, 1<<30)
			payload, _ := unwrap(t, w.peers[Client].got)
			c.down.XORKeyStream(payload, payload)
			if !bytes.Equal(payload, sent) {
				t.Fatalf("seed %d: other bytes arrived", seed)
			}
		}
	})
}

// encrypt returns p as the DC sends it.
func (o *oracle) encrypt(p []byte) []byte {
	b := bytes.Clone(p)
	o.down.XORKeyStream(b, b)
	return b
}
