package tlsfront

import (
	"bytes"
	"testing"
)

// FuzzHello: no chunking alters a verdict, its reason or what was read; a verdict never changes again; no hello spans
// more than its bytes or the ceiling.
func FuzzHello(f *testing.F) {
	for _, c := range capturedHellos(f) {
		f.Add(c.raw, uint16(11), uint16(600))
		f.Add(recut(c.raw, 0x0303, 3, 70, 400), uint16(4), uint16(5))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(1), uint16(2))
	g := gateFor(alice, bob)
	f.Fuzz(func(t *testing.T, raw []byte, cut, cut2 uint16) {
		want := new(Hello)
		verdict := want.Feed(raw)
		if verdict == More && len(raw) >= MaxHello {
			t.Fatalf("More after %d bytes", len(raw))
		}
		if (verdict == Front) != (want.Reason() != ReasonNone) || want.Len() > len(raw) || want.Len() > MaxHello || len(want.joined) > maxHelloMessage+RecordHeaderLen {
			t.Fatalf("%v (%v), %d of %d bytes, %d joined", verdict, want.Reason(), want.Len(), len(raw), len(want.joined))
		}
		ends := []int{min(int(cut), len(raw)), min(max(int(cut), int(cut2)), len(raw))}
		for i, feed := range []func(h *Hello) Verdict{
			func(h *Hello) Verdict { return byteByByte(h, raw) },
			func(h *Hello) Verdict { return feedIn(h, raw, ends...) },
		} {
			h := new(Hello)
			if v := feed(h); v != verdict || h.Reason() != want.Reason() || h.offer != want.offer {
				t.Fatalf("%d: %v (%v), want %v (%v)", i, v, h.Reason(), verdict, want.Reason())
			}
			if verdict != Front && (h.Len() != want.Len() || !bytes.Equal(h.record(raw), want.record(raw))) {
				t.Fatalf("%d: %d bytes of the hello, want %d", i, h.Len(), want.Len())
			}
		}
		if verdict != Whole {
			return
		}
		if want.Feed(append(bytes.Clone(raw), 22)) != Whole {
			t.Fatal("more bytes changed the verdict")
		}
		if v := g.Judge(want, raw, now, 2); v != Front {
			t.Fatalf("judged %v", v)
		}
	})
}

// FuzzDeframer: stripping in pieces yields what stripping at once does, and reading by Want never reads past the payload
// that was asked for.
func FuzzDeframer(f *testing.F) {
	for _, tt := range deframerTests {
		if len(tt.in) < 1000 {
			f.Add(tt.in, uint8(1), uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece, missing uint8) {
		var d Deframer
		want, ok := d.Strip(bytes.Clone(stream))

		var ends []int
		for end := int(piece) + 1; end < len(stream); end += int(piece) + 1 {
			ends = append(ends, end)
		}
		d = Deframer{}
		if got, still := stripPieces(&d, stream, ends...); !bytes.Equal(got, want) || still != ok {
			t.Fatalf("in pieces of %d: %d bytes %v, want %d %v", int(piece)+1, len(got), still, len(want), ok)
		}

		d = Deframer{}
		var got []byte
		for rest := stream; len(rest) > 0; {
			lack := int(missing) + 1 - len(got)
			n := d.Want(lack)
			if n == 0 {
				if lack > 0 && ok {
					t.Fatal("nothing is wanted but payload is missing")
				}
				break
			}
			n = min(n, len(rest))
			payload, _ := d.Strip(bytes.Clone(rest[:n]))
			got, rest = append(got, payload...), rest[n:]
		}
		if most := min(int(missing)+1, len(want)); !bytes.Equal(got, want[:most]) {
			t.Fatalf("%d missing: got %d bytes of %d", int(missing)+1, len(got), len(want))
		}
	})
}
