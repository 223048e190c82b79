package relay

import "testing"

func TestFronts(t *testing.T) {
	hosts := NewFronts([]string{"a.example", "B.Example.", "a.example"}, 1)
	nobody := NewFronts(nil, 0)
	for _, c := range []struct {
		fronts *Fronts
		name   string
		want   int
	}{
		{hosts, "a.example", 0},
		{hosts, "b.example", 1},
		{hosts, "evil.example", 1},
		{hosts, "", 1},
		{nobody, "a.example", 0},
		{nobody, "", 0},
	} {
		if got := c.fronts.Index(c.name); got != c.want {
			t.Errorf("%q: front %d, want %d", c.name, got, c.want)
		}
	}
}
