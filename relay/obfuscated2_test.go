package relay

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
)

// vector is one of testdata/obfuscated2.json, which independent code made.
type vector struct {
	Secret, Tag        string
	DC                 int
	ClientInit         string `json:"client_init"`
	ClientUpPlain      string `json:"client_up_plain"`
	ClientUpWire       string `json:"client_up_wire"`
	DCInitRandomFirst8 string `json:"dc_init_random_first8"`
	DCInitRandomLast2  string `json:"dc_init_random_last2"`
	DCInitPassthrough  string `json:"dc_init_passthrough"`
	UpWireToDC         string `json:"up_wire_to_dc"`
	DownPlain          string `json:"down_plain"`
	DownWire           string `json:"down_wire"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/obfuscated2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func xor(s cipher.Stream, p []byte) []byte {
	out := make([]byte, len(p))
	s.XORKeyStream(out, p)
	return out
}

// The oracle: obfuscated2 as the specification words it, from crypto/aes and crypto/cipher alone.

// oracleStream is AES-256-CTR; a secret, if any, is mixed into the key.
func oracleStream(key, iv, secret []byte) cipher.Stream {
	if secret != nil {
		sum := sha256.Sum256(append(bytes.Clone(key), secret...))
		key = sum[:]
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	return cipher.NewCTR(block, iv)
}

// oracle is what an init says to whoever receives it, a proxy with a secret or a DC without.
type oracle struct {
	tag      uint32
	dc       int
	up, down cipher.Stream // up after the 64 bytes
}

func readInit(init, secret []byte) (o oracle) {
	reversed := make([]byte, 48)
	for i := range reversed {
		reversed[i] = init[55-i]
	}
	o.up = oracleStream(init[8:40], init[40:56], secret)
	o.down = oracleStream(reversed[:32], reversed[32:], secret)
	plain := xor(o.up, init)
	o.tag = binary.LittleEndian.Uint32(plain[56:])
	o.dc = int(int16(binary.LittleEndian.Uint16(plain[60:])))
	return o
}

// writeInit makes a client's init from 64 bytes of which those for tag and DC are overwritten.
func writeInit(random, secret []byte, tag uint32, dc int) (init []byte, up, down cipher.Stream) {
	init = bytes.Clone(random)
	binary.LittleEndian.PutUint32(init[56:], tag)
	binary.LittleEndian.PutUint16(init[60:], uint16(dc))
	sealed := xor(oracleStream(init[8:40], init[40:56], secret), init)
	copy(init[56:], sealed[56:])
	o := readInit(init, secret)
	return init, o.up, o.down
}

func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		init := [initLen]byte(unhex(t, v.ClientInit))
		secret := [keySecretLen]byte(unhex(t, v.Secret))
		c, ok := parseInit(&init, &secret)
		if tag := binary.LittleEndian.Uint32(unhex(t, v.Tag)); !ok || c.dc != v.DC || c.tag != tag {
			t.Errorf("DC %d: parsed DC %d, tag %x, ok %v", v.DC, c.dc, c.tag, ok)
			continue
		}
		rnd := bytes.NewReader(unhex(t, v.DCInitRandomFirst8+v.DCInitRandomLast2))
		up := c.dcInit(&init, v.DC, rnd)
		if got := hex.EncodeToString(init[:]); got != v.DCInitPassthrough {
			t.Errorf("DC %d: init to the DC %s, want %s", v.DC, got, v.DCInitPassthrough)
		}
		plain := xor(c.up, unhex(t, v.ClientUpWire))
		if hex.EncodeToString(plain) != v.ClientUpPlain {
			t.Errorf("DC %d: uplink decrypts to %x", v.DC, plain)
		}
		if got := hex.EncodeToString(xor(up, plain)); got != v.UpWireToDC {
			t.Errorf("DC %d: uplink to the DC %s, want %s", v.DC, got, v.UpWireToDC)
		}
		if got := hex.EncodeToString(xor(c.down.stream(), unhex(t, v.DownWire))); got != v.DownPlain {
			t.Errorf("DC %d: downlink decrypts to %s", v.DC, got)
		}
	}
}

// checkInit compares parseInit and both inits to the DC with the oracle.
func checkInit(t *testing.T, init, secret []byte, rnd *rand.ChaCha8) {
	t.Helper()
	key := [keySecretLen]byte(secret)
	b := [initLen]byte(init)
	want := readInit(init, secret)
	c, ok := parseInit(&b, &key)
	known := want.tag == tagAbridged || want.tag == tagIntermediate || want.tag == tagPaddedIntermediate
	if ok != known {
		t.Fatalf("tag %x: ok %v", want.tag, ok)
	}
	if !ok {
		return
	}
	if c.tag != want.tag || c.dc != want.dc {
		t.Fatalf("tag %x, DC %d, want %x, %d", c.tag, c.dc, want.tag, want.dc)
	}
	text := make([]byte, 100)
	rnd.Read(text)

	// Pass-through: what the DC encrypts is what the client decrypts.
	up := c.dcInit(&b, c.dc, rnd)
	checkDCInit(t, b, want)
	dc := readInit(b[:], nil)
	wire := xor(dc.down, text)
	if got := xor(want.down, wire); !bytes.Equal(got, text) {
		t.Fatal("pass-through: the client does not decrypt what the DC encrypts")
	}
	if got := xor(dc.up, xor(up, text)); !bytes.Equal(got, text) {
		t.Fatal("pass-through: the DC does not decrypt the uplink")
	}

	up, down := c.dcInitOwn(&b, c.dc, rnd)
	checkDCInit(t, b, want)
	dc = readInit(b[:], nil)
	if got := xor(down, xor(dc.down, text)); !bytes.Equal(got, text) {
		t.Fatal("reencrypt: we do not decrypt what the DC encrypts")
	}
	if got := xor(dc.up, xor(up, text)); !bytes.Equal(got, text) {
		t.Fatal("reencrypt: the DC does not decrypt the uplink")
	}
	if got, want := xor(c.up, text), xor(want.up, text); !bytes.Equal(got, want) {
		t.Fatal("uplink of the client is decrypted wrongly")
	}
}

func checkDCInit(t *testing.T, b [initLen]byte, want oracle) {
	t.Helper()
	if dc := readInit(b[:], nil); dc.tag != want.tag || dc.dc != want.dc {
		t.Fatalf("the DC reads tag %x, DC %d, want %x, %d", dc.tag, dc.dc, want.tag, want.dc)
	}
	if !initAllowed(&b) {
		t.Fatalf("the DC takes % x for another protocol", b[:8])
	}
}

func TestInitAgainstOracle(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{1})
	random, secret := make([]byte, 64), make([]byte, 16)
	for _, tag := range []uint32{tagAbridged, tagIntermediate, tagPaddedIntermediate, 0, 0xeeeeeeef} {
		for _, dc := range []int{1, -1, 5, 203, 10002, -10002, 32767, -32768, 0} {
			rnd.Read(random)
			rnd.Read(secret)
			init, _, _ := writeInit(random, secret, tag, dc)
			checkInit(t, init, secret, rnd)
		}
	}
}

// A DC must never see the first bytes of another protocol; all of them lie where we may roll again.
func TestRollsUntilAllowed(t *testing.T) {
	good := "0102030405060708"
	for _, bad := range []string{
		"ef02030405060708", "4845414405060708", "504f535405060708", "4745542005060708", "4f50544905060708",
		"1603010205060708", "dddddddd05060708", "eeeeeeee05060708", "0102030400000000",
	} {
		var b [initLen]byte
		roll(&b, b[:initKey], bytes.NewReader(unhex(t, bad+bad+good)))
		if got := hex.EncodeToString(b[:initKey]); got != good {
			t.Errorf("after %s twice: %s", bad, got)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBrokenRandomSourcePanics(t *testing.T) {
	for name, rnd := range map[string]interface{ Read([]byte) (int, error) }{
		"repeats itself": zeros{},
		"runs dry":       bytes.NewReader(nil),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			var b [initLen]byte
			roll(&b, b[:], rnd)
		}()
	}
}

func FuzzInit(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(unhex(f, v.ClientInit), unhex(f, v.Secret), true)
	}
	f.Fuzz(func(t *testing.T, init, secret []byte, valid bool) {
		if len(init) != initLen || len(secret) != keySecretLen {
			return
		}
		if valid { // else nearly no input gets past the tag
			init, _, _ = writeInit(init, secret, tagPaddedIntermediate, int(int16(binary.LittleEndian.Uint16(init[60:]))))
		}
		checkInit(t, init, secret, rand.NewChaCha8([32]byte{}))
	})
}
