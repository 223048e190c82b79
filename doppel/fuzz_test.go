package doppel

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"mtrelay/clock"
)

// scribbled makes traces of any bytes: seven per record, of which some begin a burst or a connection.
func scribbled(b []byte) (traces []Trace) {
	for ; len(b) >= 7; b = b[7:] {
		at := time.Duration(int32(binary.LittleEndian.Uint32(b))) * 10_000
		r := Record{at, int(int16(binary.LittleEndian.Uint16(b[4:])))}
		if b[6]&7 == 0 || len(traces) == 0 {
			traces = append(traces, Trace{RTT: time.Duration(int8(b[6])) * ms})
		}
		t := &traces[len(traces)-1]
		if b[6]&8 == 0 || len(t.Bursts) == 0 {
			t.Bursts = append(t.Bursts, Burst{Asked: at})
		}
		last := &t.Bursts[len(t.Bursts)-1]
		for range 1 + b[6]>>5 {
			last.Records = append(last.Records, r)
			r.At += time.Duration(b[0]) * 100_000
		}
	}
	return traces
}

func FuzzLearn(f *testing.F) {
	for _, front := range fronts {
		var b []byte
		for _, r := range watch(front.front, newRand(1), 0, 0, 100_000).Bursts[0].Records {
			b = binary.LittleEndian.AppendUint32(b, uint32(r.At/10_000))
			b = binary.LittleEndian.AppendUint16(b, uint16(r.Size))
			b = append(b, 9)
		}
		f.Add(b, uint8(0), uint64(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, drs uint8, seed uint64) {
		traces := scribbled(b)
		m := Learn(traces, DRS(drs%3))
		if m == nil {
			if len(traces) > 0 {
				t.Fatal("learned nothing")
			}
			return
		}
		checkBounds(t, m)
		checkJSON(t, m)
		checkPacer(t, []*Model{m, m.Scaled(int(seed % 1e8)), nil, taughtOnce}, seed)
	})
}

var taughtOnce = taught(goServer{chunked: true})

// FuzzModel reads models that somebody else wrote.
func FuzzModel(f *testing.F) {
	f.Add([]byte(`{"version":1,"starts":[{"offset":0,"steps":[301,33000]}],"steady":[16401,24593,48000,57361],"drs":1,"tail":22,"tail_waited":65536}`), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		m := new(Model)
		if json.Unmarshal(b, m) != nil {
			return
		}
		checkBounds(t, m)
		checkJSON(t, m)
		checkPacer(t, []*Model{m, m.Scaled(20e6)}, seed)
	})
}

func checkBounds(t *testing.T, m *Model) {
	t.Helper()
	steps := 0
	for _, s := range m.starts {
		steps += len(s.steps)
		if len(s.steps) == 0 || len(s.steps) > maxStartLen {
			t.Fatalf("a start of %d records", len(s.steps))
		}
	}
	if len(m.starts) > maxStarts || steps > maxStartSteps || len(m.steady) > maxSteady || cap(m.steady) > maxSteady {
		t.Fatalf("%d starts of %d records, %d in the steady state", len(m.starts), steps, len(m.steady))
	}
}

func checkJSON(t *testing.T, m *Model) {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := new(Model)
	if err := json.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if c, _ := json.Marshal(got); string(c) != string(b) {
		t.Fatalf("stored %s, then %s", b, c)
	}
	if !reflect.DeepEqual(got.classes, m.classes) || got.startGaps != m.startGaps || got.steadyGaps != m.steadyGaps {
		t.Fatal("another model came back")
	}
}

// checkPacer does anything in any order, with one model after the other.
func checkPacer(t *testing.T, models []*Model, seed uint64) {
	t.Helper()
	rnd := newRand(seed)
	var p Pacer
	now := clock.Time(time.Hour)
	latest := now // that a record may be due
	for range 300 {
		m := models[rnd.IntN(len(models))]
		switch rnd.IntN(6) {
		case 0:
			p.Uplink(now)
		case 1:
			now = now.Add(time.Duration(rnd.Int64N(int64(2 * time.Second))))
		case 2:
			size, due := p.NextOf(m, now, rnd.IntN(40_000), rnd)
			checkNext(t, size, due, max(latest, now))
		default:
			size, due := p.Next(m, now, rnd)
			checkNext(t, size, due, max(latest, now))
			if rnd.IntN(4) > 0 {
				now = max(now, due)
			}
			p.Sent(m, now, rnd.IntN(size+1), rnd)
			latest = now.Add(MaxGap)
		}
	}
}

func checkNext(t *testing.T, size int, due, latest clock.Time) {
	t.Helper()
	if size < minSize || size > maxSize {
		t.Fatalf("a record of %d bytes", size)
	}
	if due <= 0 || due > latest {
		t.Fatalf("due at %d, at most %d", due, latest)
	}
}
