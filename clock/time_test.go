package clock

import (
	"testing"
	"time"
)

func TestEarliest(t *testing.T) {
	for _, c := range []struct{ a, b, want Time }{
		{0, 0, 0}, {0, 7, 7}, {7, 0, 7}, {3, 7, 3}, {7, 3, 3}, {5, 5, 5},
	} {
		if got := Earliest(c.a, c.b); got != c.want {
			t.Errorf("Earliest(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestAdd(t *testing.T) {
	const longest = time.Duration(1<<63 - 1)
	for _, c := range []struct {
		at   Time
		d    time.Duration
		want Time
	}{
		{1, time.Second, 1_000_000_001},
		{1_000_000_001, -time.Second, 1},
		{1, longest - 1, lastTime},
		{1, longest, lastTime},
		{lastTime, longest, lastTime},
		{lastTime, 0, lastTime},
	} {
		if got := c.at.Add(c.d); got != c.want {
			t.Errorf("Time(%d).Add(%d) = %d, want %d", c.at, c.d, got, c.want)
		}
	}
}

func TestSub(t *testing.T) {
	if got := Time(5).Sub(7); got != -2 {
		t.Errorf("5 - 7 = %d", got)
	}
}
