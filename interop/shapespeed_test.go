package interop

import (
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// Targets of the design. Times are the machine's too, so they are generous.
const (
	leastSpeed = 20 << 20 // bytes/s of one download
	leastRatio = 0.80     // of the unshaped relay's speed
	leastFair  = 0.7      // slowest of many downloads to the fastest
	mostAlone  = 2 * time.Millisecond
	mostBeside = 30 * time.Millisecond
)

// begin has the DC send to c without end.
func begin(t *testing.T, c *relaytest.Client) {
	t.Helper()
	o := newOrder(0, clientEnds)
	o[8] = endlessly
	if _, err := c.Write(o); err != nil {
		t.Fatal(err)
	}
}

// receive counts what comes on the wire for so long. Nobody looks at it, which would take longer than to relay it.
func receive(c *relaytest.Client, d time.Duration) (n int64) {
	conn := c.NetConn()
	buf := make([]byte, 256<<10)
	for end := time.Now().Add(d); time.Now().Before(end); {
		got, err := conn.Read(buf)
		if n += int64(got); err != nil {
			return n
		}
	}
	return n
}

// speedOf is that of one download, in bytes/s.
func speedOf(t *testing.T, s *scene) float64 {
	t.Helper()
	const settle, look = 50 * time.Millisecond, 150 * time.Millisecond
	c := s.dial(t, shapeDC)
	defer c.Close()
	begin(t, c)
	receive(c, settle)
	return float64(receive(c, look)) / look.Seconds()
}

// speed has each proxy download by turns with the unshaped one.
func (s *shapeStage) speed(t *testing.T) {
	const rounds = 7
	all := s.fast
	speeds := make([][]float64, len(all))
	for range rounds {
		for i, p := range all {
			speeds[i] = append(speeds[i], speedOf(t, p.proxy))
		}
	}
	for i, p := range all {
		var ratios []float64
		for k := range rounds {
			ratios = append(ratios, speeds[i][k]/speeds[0][k])
		}
		speed, ratio := median(speeds[i]), median(ratios)
		t.Logf("%s: %.1f MB/s, %.2f of unshaped (%.2f to %.2f)", p.name, speed/1e6, ratio, slices.Min(ratios), slices.Max(ratios))
		if speed < leastSpeed {
			t.Errorf("%s: %.1f MB/s", p.name, speed/1e6)
		}
		if ratio < leastRatio && p.name != "chunks with pauses" {
			t.Errorf("%s: %.2f of the speed without a shape", p.name, ratio)
		}
	}
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			alone := echoTimes(t, p.proxy, 300, nil)
			t.Logf("echo alone: p50 %v, p99 %v, most %v", quantileOf2(alone, 0.5), quantileOf2(alone, 0.99), alone[len(alone)-1])
			if got := quantileOf2(alone, 0.99); got > mostAlone {
				t.Errorf("an echo alone takes %v", got)
			}
			if fair := shareFairly(t, p.proxy); fair < leastFair {
				t.Errorf("the slowest of many downloads has %.2f of the fastest's speed", fair)
			}
		})
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// shareFairly has many downloads go on at once, and an echo beside them.
func shareFairly(t *testing.T, s *scene) (fair float64) {
	const many, look = 50, 2 * time.Second
	clients := make([]*relaytest.Client, many)
	for i := range clients {
		clients[i] = s.dial(t, shapeDC)
		begin(t, clients[i])
	}
	came := make([]float64, many)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { came[i] = float64(receive(c, look)) })
	}
	go func() {
		wg.Wait()
		close(stop)
	}()
	beside := echoTimes(t, s, 1<<30, stop)
	for _, c := range clients {
		c.Close()
	}
	all := 0.0
	for _, n := range came {
		all += n
	}
	fair = slices.Min(came) / slices.Max(came)
	t.Logf("%d at once: %.0f MB/s in all, slowest to fastest %.2f; echo beside them: %d, p50 %v, p99 %v, most %v", many,
		all/look.Seconds()/1e6, fair, len(beside), quantileOf2(beside, 0.5), quantileOf2(beside, 0.99), beside[len(beside)-1])
	if got := quantileOf2(beside, 0.99); got > mostBeside {
		t.Errorf("an echo beside %d downloads takes %v", many, got)
	}
	return fair
}

// echoTimes has 32 bytes come back some times, a few milliseconds apart, and returns how long each took, sorted.
func echoTimes(t *testing.T, s *scene, most int, stop <-chan struct{}) (took []time.Duration) {
	t.Helper()
	c := s.dial(t, echoID)
	b := make([]byte, 32)
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for len(took) < most {
		began := time.Now()
		c.SetDeadline(began.Add(patience))
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
		select {
		case <-tick.C:
		case <-stop:
			slices.Sort(took)
			return took
		}
	}
	slices.Sort(took)
	return took
}

func quantileOf2(sorted []time.Duration, p float64) time.Duration {
	return sorted[int(p*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}
