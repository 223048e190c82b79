package loadtest

import (
	"encoding/binary"
	"math/rand/v2"
)

// lengths are those of the messages that a command announces. Both ends draw the same.
type lengths struct {
	fixed  int
	random *rand.Rand
}

// The lengths of mixed messages, in bytes, and of the longest that any may have.
const (
	mixedFrom  = 8
	mixedTo    = 16384
	maxMessage = 32 << 10
)

func newLengths(cmd command) *lengths {
	return &lengths{int(cmd.length), rand.New(rand.NewPCG(cmd.seed, 0))}
}

func (l *lengths) next() int {
	if l.fixed > 0 {
		return l.fixed
	}
	return mixedFrom + l.random.IntN(mixedTo-mixedFrom+1)
}

func seedBytes(seed uint64) []byte { return binary.BigEndian.AppendUint64(nil, seed) }
