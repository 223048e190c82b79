package tlsfront

import (
	"crypto/rand"
	"fmt"
	"testing"

	"mtrelay/clock"
)

func captureNamed(b *testing.B, name string) captured {
	b.Helper()
	for _, c := range capturedHellos(b) {
		if c.name == name {
			return c
		}
	}
	b.Fatal("no capture ", name)
	panic("unreachable")
}

// BenchmarkHello is the whole way of a hello whose secret is the last one, and so of a refused one.
func BenchmarkHello(b *testing.B) {
	c := captureNamed(b, "tdlib-1.8.65-1")
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n, "secrets"), func(b *testing.B) {
			secrets := make([]Secret, n)
			for i := range secrets {
				secrets[i] = Secret{Host: "www.example.org", Key: [16]byte{byte(i), byte(i >> 8)}}
			}
			secrets[n-1] = c.secret
			g := gateFor(secrets...)
			b.ReportAllocs()
			for b.Loop() {
				var h Hello
				h.Feed(c.raw[:1400])
				h.Feed(c.raw)
				if g.Judge(&h, c.raw, c.time, n) != Accepted {
					b.Fatal(h.Reason())
				}
			}
		})
	}
}

func BenchmarkFeed(b *testing.B) {
	c := captureNamed(b, "tdlib-1.8.65-1")
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(c.raw)))
		for b.Loop() {
			var h Hello
			h.Feed(c.raw)
		}
	})
	b.Run("byte by byte", func(b *testing.B) {
		b.SetBytes(int64(len(c.raw)))
		for b.Loop() {
			var h Hello
			byteByByte(&h, c.raw)
		}
	})
}

func BenchmarkAppendReply(b *testing.B) {
	for name, hello := range map[string]string{"X25519MLKEM768": "tdlib-1.8.65-1", "X25519": "tdlib-1.8.29"} {
		b.Run(name, func(b *testing.B) {
			c := captureNamed(b, hello)
			g := NewGate([]Secret{c.secret}, tolerance, nil, rand.Reader)
			h, _ := judged(g, c.raw, c.time)
			dst := make([]byte, 0, 4900)
			b.ReportAllocs()
			for b.Loop() {
				g.AppendReply(dst, h, c.raw, 0, nil)
			}
		})
	}
}

func BenchmarkStrip(b *testing.B) {
	for _, size := range []int{64, 1400, 16401} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var stream []byte
			for len(stream) < 60_000 {
				stream = append(stream, app(string(make([]byte, size)))...)
			}
			headers := len(stream) / (size + RecordHeaderLen)
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				for i := range headers { // stripping overwrote them
					PutRecordHeader(stream[i*(size+RecordHeaderLen):], RecordApplicationData, size)
				}
				if _, ok := new(Deframer).Strip(stream); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkReplay(b *testing.B) {
	r := NewReplay(0, 0, 1<<16)
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		r.admit(replayKey(n), uint32(n), clock.Unix(n))
	}
}
