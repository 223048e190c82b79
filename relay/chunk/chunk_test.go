package chunk

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

func TestChunkIsOnePage(t *testing.T) {
	if got := unsafe.Sizeof(Chunk{}); got != Size {
		t.Fatalf("a chunk takes %d bytes, want %d", got, Size)
	}
}

func TestFillPastTheEndPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	new(Chunk).Fill(Cap + 1)
}

// TestQueueAgainstSlice compares random appends and discards with a plain slice.
func TestQueueAgainstSlice(t *testing.T) {
	var (
		pool Pool
		q    Queue
		want []byte
		rnd  = rand.New(rand.NewPCG(1, 2))
	)
	for range 5000 {
		if rnd.IntN(2) == 0 {
			b := make([]byte, rnd.IntN(3*Cap))
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			q.Append(&pool, b)
			want = append(want, b...)
		} else {
			n := rnd.IntN(len(want) + 1)
			q.Discard(&pool, n)
			want = want[n:]
		}
		if q.Len() != len(want) {
			t.Fatalf("Len %d, want %d", q.Len(), len(want))
		}
		if got := bytes.Join(q.Slices(make([][]byte, 0, 1<<16)), nil); !bytes.Equal(got, want) {
			t.Fatalf("content differs at %d bytes", len(want))
		}
	}
	q.Free(&pool)
	if pool.Taken() != 0 || q.Len() != 0 {
		t.Fatalf("after Free: %d chunks out, %d bytes queued", pool.Taken(), q.Len())
	}
}

func TestSlicesStopsAtCapacity(t *testing.T) {
	var (
		pool Pool
		q    Queue
	)
	q.Append(&pool, make([]byte, 5*Cap))
	if got := len(q.Slices(make([][]byte, 0, 3))); got != 3 {
		t.Fatalf("%d slices, want 3", got)
	}
}

func TestFreeListIsBounded(t *testing.T) {
	var pool Pool
	var out []*Chunk
	for range 2 * maxFree {
		out = append(out, pool.Get())
	}
	for _, c := range out {
		pool.Put(c)
	}
	if pool.spare != maxFree {
		t.Fatalf("%d chunks kept, want %d", pool.spare, maxFree)
	}
}

func TestReusedChunkIsEmpty(t *testing.T) {
	var pool Pool
	c := pool.Get()
	c.Fill(100)
	c.drop(50)
	pool.Put(c)
	if c := pool.Get(); len(c.Bytes()) != 0 || len(c.Room()) != Cap {
		t.Fatalf("%d bytes filled, %d free", len(c.Bytes()), len(c.Room()))
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	var (
		pool Pool
		q    Queue
		b    = make([]byte, 3*Cap)
	)
	q.Append(&pool, b)
	q.Free(&pool)
	got := testing.AllocsPerRun(100, func() {
		q.Append(&pool, b)
		q.Discard(&pool, len(b))
	})
	if got != 0 {
		t.Fatalf("%v allocations", got)
	}
}
