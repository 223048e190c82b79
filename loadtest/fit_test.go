package loadtest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func TestLine(t *testing.T) {
	for _, test := range []struct {
		name        string
		x, y        []float64
		base, slope float64
	}{
		{"two points", []float64{1000, 9900}, []float64{5e6 + 2048*1000, 5e6 + 2048*9900}, 5e6, 2048},
		{"from nothing", []float64{0, 1000}, []float64{4e6, 6e6}, 4e6, 2000},
		{"flat", []float64{0, 10, 20}, []float64{7, 7, 7}, 7, 0},
		{"off the line", []float64{0, 1, 2}, []float64{0, 3, 3}, 0.5, 1.5}, // by hand: means 1 and 2, Σxy' / Σxx' = 3/2
	} {
		base, slope, err := line(test.x, test.y)
		if err != nil || !near(base, test.base) || !near(slope, test.slope) {
			t.Errorf("%s: %v + %v x, %v; want %v + %v x", test.name, base, slope, err, test.base, test.slope)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) }

func TestFitRefuses(t *testing.T) {
	for name, x := range map[string][][]float64{
		"nothing":        nil,
		"one point":      {{1, 5}},
		"the same point": {{1, 5}, {1, 5}, {1, 5}},
		"no stuck ones":  {{1, 5, 0}, {1, 6, 0}, {1, 7, 0}},
		"proportional":   {{1, 10, 5}, {1, 20, 10}, {1, 30, 15}},
	} {
		if c, err := leastSquares(x, make([]float64, len(x))); !errors.Is(err, errFit) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// TestFormula finds the costs again that measurements were made of, and says how far the worst of them is off.
func TestFormula(t *testing.T) {
	want := []float64{14 << 20, 2100, 80, 20_000}
	var x [][]float64
	var y []float64
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, p := range [][3]float64{{1000, 0, 0}, {1000, 500, 0}, {5000, 500, 0}, {9000, 900, 0}, {9100, 0, 100}, {9300, 0, 300}} {
		row := []float64{1, p[0], p[1], p[2]}
		sum := 0.0
		for j, v := range row {
			sum += want[j] * v
		}
		x, y = append(x, row), append(y, sum)
	}
	c, err := leastSquares(x, y)
	if err != nil || worst(c, x, y) > 1e-9 {
		t.Fatalf("%v, %v", c, err)
	}
	for j := range want {
		if !near(c[j], want[j]) {
			t.Errorf("coefficient %d: %v, want %v", j, c[j], want[j])
		}
	}
	// No other coefficients come closer to measurements that are off: the definition.
	for i := range y {
		y[i] *= 1 + 0.02*(rnd.Float64()-0.5)
	}
	if c, err = leastSquares(x, y); err != nil {
		t.Fatal(err)
	}
	least := squares(c, x, y)
	for j := range c {
		for _, f := range []float64{0.999, 1.001} {
			other := append([]float64(nil), c...)
			other[j] *= f
			if s := squares(other, x, y); s < least {
				t.Errorf("coefficient %d times %v: %v < %v", j, f, s, least)
			}
		}
	}
	if w := worst(c, x, y); w <= 0 || w > 0.02 {
		t.Errorf("worst is %v off", w)
	}
}

func squares(c []float64, x [][]float64, y []float64) (sum float64) {
	for i, row := range x {
		d := -y[i]
		for j, v := range row {
			d += c[j] * v
		}
		sum += d * d
	}
	return sum
}

// TestIdleMetrics: a proxy of 10 MiB and 2,000 bytes for each connection.
func TestIdleMetrics(t *testing.T) {
	at := func(n int) level {
		l := level{connections: n, opened: 10}
		l.usage.RSS = 10<<20 + 2000*int64(n)
		l.usage.sockets.Memory = 100 * int64(n)
		l.opening.target, l.resting.target, l.resting.elapsed = 2e6, 1e6, 1e9
		return l
	}
	empty := at(0)
	empty.usage.RSS -= 1 << 20 // what the first connections cost beside their own memory is in no slope
	r := &run{report: &Report{}, target: &target{pids: []int{1}}}
	r.idleMetrics([]level{empty, at(1000), at(5000), at(9900)})
	for name, want := range map[string]float64{
		"bytes_per_connection": 2000, "base_bytes": 10 << 20, "socket_bytes_per_connection": 100,
		"connections_per_gb": (1<<30 - 10<<20) / 2000.0, "idle_cpu_percent": 0.1, "open_cpu_ms": 0.2,
		"rss_bytes_per_connection": (10<<20 + 2000*9900) / 9900.0,
	} {
		if got := r.report.Metrics[name]; !near(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	single := &run{report: &Report{}, target: &target{pids: []int{1}}}
	single.idleMetrics([]level{at(0), at(1000)})
	if got := single.report.Metrics["bytes_per_connection"]; !near(got, 2000) {
		t.Errorf("one level: %v bytes", got)
	}
}
