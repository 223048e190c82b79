package loadtest

import (
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	want := command{op: opSource, length: endless, seed: 1<<63 + 7, rate: 125_000_000}
	b := want.append([]byte("before"))[6:]
	if got, err := parseCommand(b); len(b) != commandLen || err != nil || got != want {
		t.Errorf("%d bytes, %+v, %v", len(b), got, err)
	}
	for bit := range 8 * commandLen {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := parseCommand(b); err == nil {
			t.Errorf("bit %d may be wrong", bit)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// TestLengths: both ends draw the same, within bounds.
func TestLengths(t *testing.T) {
	cmd := command{op: opMessages, seed: 5}
	a, b := newLengths(cmd), newLengths(cmd)
	least, most := maxMessage, 0
	for range 100_000 {
		n := a.next()
		if n != b.next() {
			t.Fatal("the ends differ")
		}
		least, most = min(least, n), max(most, n)
	}
	if least != mixedFrom || most != mixedTo {
		t.Errorf("%d to %d bytes", least, most)
	}
	if n := newLengths(command{length: 77}).next(); n != 77 {
		t.Errorf("%d bytes, not 77", n)
	}
}

type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// TestSourceRate: never ahead of its rate, and whole in the end.
func TestSourceRate(t *testing.T) {
	const rate, n = 50e6, 2e6
	began, c := time.Now(), &counter{}
	if err := source(c, command{length: n, rate: rate}); err != nil || c.bytes != n {
		t.Errorf("%d bytes, %v", c.bytes, err)
	}
	if took := time.Since(began); took < time.Duration(n/rate*float64(time.Second)) {
		t.Errorf("%d bytes in %v", c.bytes, took)
	}
}

func TestBusyTime(t *testing.T) {
	const line = "cpu  100 20 30 5000 400 7 3 40 60 0" // user nice system idle iowait irq softirq steal guest guest_nice
	if got := busyTime(line); got != 2*time.Second {
		t.Errorf("%v, want 2s: 200 ticks", got)
	}
	if machineCPU() <= 0 {
		t.Error("/proc/stat tells nothing")
	}
}
