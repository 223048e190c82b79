package tlsfront

import (
	"bytes"
	"testing"
)

func app(payload string) []byte { return append(header(23, len(payload)), payload...) }

func header(typ byte, n int) []byte {
	b := make([]byte, RecordHeaderLen)
	PutRecordHeader(b, typ, n)
	return b
}

var ccs = []byte{20, 3, 3, 0, 1, 1}

// stripPieces strips copies of the pieces between these offsets.
func stripPieces(d *Deframer, p []byte, ends ...int) (payload []byte, ok bool) {
	from := 0
	ok = true
	for _, end := range append(ends, len(p)) {
		piece := bytes.Clone(p[from:end])
		var got []byte
		got, ok = d.Strip(piece)
		payload = append(payload, got...)
		scribble(piece) // nothing may point into it
		from = end
	}
	return payload, ok
}

var deframerTests = []struct {
	name    string
	in      []byte
	payload string
	ok      bool
}{
	{"nothing", nil, "", true},
	{"CCS, init and message", join(ccs, app("init"), app("message")), "initmessage", true},
	{"gotd: three records", join(app("init"), app("abcd"), app("frame")), "initabcdframe", true},
	{"CCS anywhere", join(app("a"), ccs, ccs, app("b"), ccs), "ab", true},
	{"half a record", join(app("a"), app("bcdef")[:8]), "abcd"[:4], true},
	{"half a header", join(app("a"), app("b")[:3]), "a", true},
	{"older minor version", []byte{23, 3, 1, 0, 1, 'a'}, "a", true},
	{"longest", app(string(bytes.Repeat([]byte{7}, 65535))), string(bytes.Repeat([]byte{7}, 65535)), true},
	{"alert", join(app("a"), []byte{21, 3, 3, 0, 2, 1, 0}), "a", false},
	{"handshake", join(app("a"), []byte{22}), "a", false},
	{"not TLS", join(app("a"), []byte("GET / HTTP/1.1")), "a", false},
	{"version 2", join(app("a"), []byte{23, 2}), "a", false},
	{"empty record", join(app("a"), header(23, 0), app("b")), "a", false},
	{"CCS with body 2", join(app("a"), []byte{20, 3, 3, 0, 1, 2}), "a", false},
	{"CCS of 2 bytes", join(app("a"), header(20, 2)), "a", false},
	{"CCS of 256 bytes", join(app("a"), header(20, 256)[:4]), "a", false},
	{"empty CCS", join(app("a"), header(20, 0)), "a", false},
}

func TestStrip(t *testing.T) {
	for _, tt := range deframerTests {
		t.Run(tt.name, func(t *testing.T) {
			check := func(how string, ends ...int) {
				t.Helper()
				var d Deframer
				payload, ok := stripPieces(&d, tt.in, ends...)
				if string(payload) != tt.payload || ok != tt.ok {
					t.Fatalf("%s: %d bytes %v, want %d %v", how, len(payload), ok, len(tt.payload), tt.ok)
				}
				if !ok {
					if more, still := d.Strip(app("more")); still || len(more) > 0 || d.Want(9) != 0 {
						t.Fatalf("%s: it went on after it had refused", how)
					}
				}
			}
			check("whole")
			ends := make([]int, len(tt.in))
			for i := range ends {
				ends[i] = i
				if i < 100 {
					check("cut", i)
				}
			}
			check("byte by byte", ends...)
		})
	}
}

func TestStripInPlace(t *testing.T) {
	p := join(ccs, app("one"), app("two"))
	payload, _ := new(Deframer).Strip(p)
	if &payload[0] != &p[0] || cap(payload) != len(payload) {
		t.Fatal("the payload is not the front of the input, cut off at its end")
	}
}

// TestWant reads a stream by Want alone, as a session does before it knows the DC: exactly the payload that is missing
// comes out, and the rest of the stream stays where it is.
func TestWant(t *testing.T) {
	stream := join(ccs, app("0123"), ccs, app("456789abcdef"))
	for missing := range 17 {
		var d Deframer
		var got []byte
		rest := stream
		for len(got) < missing {
			n := d.Want(missing - len(got))
			if n <= 0 {
				t.Fatalf("%d missing: Want says %d after %q", missing, n, got)
			}
			payload, ok := d.Strip(bytes.Clone(rest[:n]))
			if !ok {
				t.Fatal("refused")
			}
			got, rest = append(got, payload...), rest[n:]
		}
		if string(got) != "0123456789abcdef"[:missing] || d.Want(0) != 0 {
			t.Fatalf("%d missing: got %q", missing, got)
		}
		left, _ := d.Strip(bytes.Clone(rest))
		if string(left) != "0123456789abcdef"[missing:] {
			t.Fatalf("%d missing: %q was left", missing, left)
		}
	}
}

func TestRecordSizes(t *testing.T) {
	if FullRecord != 16401 || MaxRecord != 16640 || MaxHello != 16384+64*5 {
		t.Fatal(FullRecord, MaxRecord, MaxHello)
	}
	if got := header(RecordApplicationData, FullRecord); !bytes.Equal(got, []byte{23, 3, 3, 0x40, 0x11}) {
		t.Fatalf("%x", got)
	}
}

func TestStripAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	stream := join(ccs, app("0123"), app("456789"))
	p := make([]byte, len(stream))
	var d Deframer
	if n := testing.AllocsPerRun(100, func() { copy(p, stream); d.Strip(p) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
