package compare

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestKS(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b []int
		want float64
	}{
		{"equal", []int{1, 2, 3}, []int{3, 2, 1}, 0},
		{"of other lengths", []int{1, 2}, []int{1, 1, 2, 2}, 0},
		{"apart", []int{1, 2}, []int{3, 4}, 1},
		{"a half moved", []int{1, 1}, []int{1, 2}, 0.5},
		{"one of four moved far", []int{1, 2, 3, 4}, []int{1, 2, 3, 400}, 0.25},
		{"nothing to compare", nil, []int{1}, 0},
	} {
		if got := KS(test.a, test.b); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if KS(test.a, test.b) != KS(test.b, test.a) {
			t.Errorf("%s: not symmetric", test.name)
		}
	}
}

func TestTolerant(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name string
		a, b []time.Duration
		want float64
	}{
		{"equal", []time.Duration{0, 5 * ms}, []time.Duration{0, 5 * ms}, 0},
		{"within", []time.Duration{0, 5 * ms}, []time.Duration{ms, 4 * ms}, 0},
		{"just within", []time.Duration{0}, []time.Duration{ms}, 0},
		{"just beyond", []time.Duration{0}, []time.Duration{ms + 1}, 1},
		{"a half beyond", []time.Duration{0, 5 * ms}, []time.Duration{0, 7 * ms}, 0.5},
	} {
		got, back := Tolerant(test.a, test.b, ms), Tolerant(test.b, test.a, ms)
		if got != test.want || back != test.want {
			t.Errorf("%s: %v and %v, want %v", test.name, got, back, test.want)
		}
	}
}

// TestTolerantDefinition checks random samples against the definition, on a grid finer than they are.
func TestTolerantDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, b := drawSample(rnd), drawSample(rnd)
		tolerance := rnd.IntN(4)
		d := Tolerant(a, b, tolerance)
		as, bs := sorted(a), sorted(b)
		least := 0.0
		for x := -5; x < 30; x++ {
			least = max(least, cdf(as, x-tolerance)-cdf(bs, x), cdf(bs, x)-cdf(as, x+tolerance))
		}
		if d != least {
			t.Fatalf("%v %v ±%d: %v, by the definition %v", a, b, tolerance, d, least)
		}
	}
}

func drawSample(rnd *rand.Rand) []int {
	sample := make([]int, 1+rnd.IntN(12))
	for i := range sample {
		sample[i] = rnd.IntN(20)
	}
	return sample
}
