package loop

import (
	"testing"

	"mtrelay/relay"
)

// TestTurnsAreEqual: a turn of large reads moves no more than one of small reads, but for less than a record.
func TestTurnsAreEqual(t *testing.T) {
	p := &pair{loop: &loop{now: 1, opts: &Options{}}}
	s, dst := &socket{pair: p, side: relay.Upstream}, &socket{pair: p, fd: -1}
	for _, large := range []bool{false, true} {
		s.large = large
		moved := 0
		for moved < turnBudget {
			moved += s.readLimit(dst, turnBudget-moved)
		}
		if moved >= turnBudget+smallRead {
			t.Errorf("large reads %v: %d bytes in a turn of %d", large, moved, turnBudget)
		}
	}
}
