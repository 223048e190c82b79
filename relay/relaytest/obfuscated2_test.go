package relaytest

import (
	"bytes"
	"crypto/cipher"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// vector is one of testdata/obfuscated2.json, which was made with other code than this.
type vector struct {
	Secret, Tag                                         string
	DC                                                  int
	Client_init, Client_up_plain, Client_up_wire        string
	DC_init_passthrough, Up_wire_to_dc                  string
	Down_plain, Down_wire                               string
	DC_init_random_first8, DC_init_random_last2, Ignore string
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/obfuscated2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 {
		t.Fatal("no vectors")
	}
	return file.Vectors
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInitOfClient(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(fmt.Sprintf("DC %d", v.DC), func(t *testing.T) {
			init, up, down := newInit([16]byte(unhex(t, v.Secret)), tagOf(t, v), v.DC, randomOf(t, v))
			if want := unhex(t, v.Client_init); !bytes.Equal(init[:], want) {
				t.Errorf("init\n%x, want\n%x", init, want)
			}
			expectStream(t, "up", up, v.Client_up_plain, v.Client_up_wire)
			expectStream(t, "down", down, v.Down_wire, v.Down_plain)
		})
	}
}

func TestInitAtDC(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(fmt.Sprintf("DC %d", v.DC), func(t *testing.T) {
			tag, dc, up, down, err := openInit([initLen]byte(unhex(t, v.DC_init_passthrough)))
			if err != nil {
				t.Fatal(err)
			}
			if tag != tagOf(t, v) || dc != v.DC {
				t.Errorf("tag %x, DC %d, want %s, %d", tag, dc, v.Tag, v.DC)
			}
			expectStream(t, "up", up, v.Up_wire_to_dc, v.Client_up_plain)
			expectStream(t, "down", down, v.Down_plain, v.Down_wire)
		})
	}
}

func TestInitRefused(t *testing.T) {
	var good [initLen]byte
	for { // a random init is not always a good one
		good, _, _ = newDCInit(PaddedIntermediate, 2)
		if checkFirstBytes(good) == nil {
			break
		}
	}
	for _, begin := range []string{"\xef", "HEAD", "POST", "GET ", "OPTI", "\x16\x03\x01\x02", "\xdd\xdd\xdd\xdd",
		"\xee\xee\xee\xee", "abcd\x00\x00\x00\x00"} {
		init := good
		copy(init[:], begin)
		if _, _, _, _, err := openInit(init); err == nil {
			t.Errorf("an init that begins with %q was taken", begin)
		}
	}
	for at := 56; at < 60; at++ {
		init := good
		init[at] ^= 1
		if _, _, _, _, err := openInit(init); err == nil {
			t.Errorf("tag altered at %d was taken", at)
		}
	}
}

// newDCInit makes an init without a secret, as a client without a proxy would.
func newDCInit(tag Tag, dc int) (init [initLen]byte, up, down cipher.Stream) {
	b := randomInit()
	up, down = streams(b, func(key []byte) []byte { return key })
	copy(b[56:], []byte{byte(tag), byte(tag), byte(tag), byte(tag), byte(dc), byte(dc >> 8)})
	init = b
	up.XORKeyStream(b[:], b[:])
	copy(init[56:], b[56:])
	return init, up, down
}

func tagOf(t *testing.T, v vector) Tag { return Tag(unhex(t, v.Tag)[0]) }

// randomOf recovers the random bytes that the vector's init was made from: only the last two are encrypted in it.
func randomOf(t *testing.T, v vector) [initLen]byte {
	sent := [initLen]byte(unhex(t, v.Client_init))
	open, _, _ := newInit([16]byte(unhex(t, v.Secret)), tagOf(t, v), v.DC, sent) // [62:] is encrypted once more: opened
	sent[62], sent[63] = open[62], open[63]
	return sent
}

func expectStream(t *testing.T, name string, s cipher.Stream, in, want string) {
	t.Helper()
	b := unhex(t, in)
	s.XORKeyStream(b, b)
	if !bytes.Equal(b, unhex(t, want)) {
		t.Errorf("%s: %x, want %s", name, b, want)
	}
}
