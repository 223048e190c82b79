package relay

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"mtrelay/clock"
	"mtrelay/tlsfront"
)

// A Telegram client and a DC, written from PROTOCOL and independent of the code under test.

// genuine is a ClientHello that a real client sent.
type genuine struct {
	secret tlsfront.Secret
	time   clock.Unix
	hello  []byte
}

// readFields reads a file of "key: value" lines; keys may repeat.
func readFields(t testing.TB, path string) (fields [][2]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields = append(fields, [2]string{key, strings.TrimSpace(value)})
	}
	return fields
}

func readGenuine(t testing.TB, name string) (g genuine) {
	t.Helper()
	for _, field := range readFields(t, "testdata/hello-"+name+".txt") {
		switch field[0] {
		case "secret":
			g.secret = readSecret(t, field[1])
		case "time":
			g.time = readTime(t, field[1])
		case "hello":
			g.hello = unhex(t, field[1])
		}
	}
	return g
}

func readSecret(t testing.TB, text string) tlsfront.Secret {
	t.Helper()
	b := unhex(t, text)
	return tlsfront.Secret{Name: "test", Host: string(b[17:]), Key: [16]byte(b[1:17])}
}

func readTime(t testing.TB, text string) clock.Unix {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return clock.Unix(n)
}

// sign makes hello anew for another key or time.
func sign(hello []byte, key [16]byte, at clock.Unix) []byte {
	signed := bytes.Clone(hello)
	clear(signed[11:43])
	mac := hmac.New(sha256.New, key[:])
	mac.Write(signed)
	sum := mac.Sum(nil)
	stamp := binary.LittleEndian.Uint32(sum[28:]) ^ uint32(at)
	binary.LittleEndian.PutUint32(sum[28:], stamp)
	copy(signed[11:], sum)
	return signed
}

// checkReply verifies the reply to hello and returns what follows it.
func checkReply(t testing.TB, got, hello []byte, key [16]byte) (rest []byte) {
	t.Helper()
	n := 0
	for _, typ := range []byte{22, 20, 23} {
		if len(got) < n+5 || got[n] != typ {
			t.Fatalf("no reply: % .60x", got)
		}
		n += 5 + int(binary.BigEndian.Uint16(got[n+3:]))
	}
	reply := bytes.Clone(got[:n])
	digest := bytes.Clone(reply[11:43])
	clear(reply[11:43])
	mac := hmac.New(sha256.New, key[:])
	mac.Write(hello[11:43])
	mac.Write(reply)
	if !hmac.Equal(mac.Sum(nil), digest) {
		t.Fatal("the reply is not signed")
	}
	return got[n:]
}

// telegram is a client with an accepted hello.
type telegram struct {
	hello    []byte
	init     []byte
	up, down cipher.Stream
}

func newTelegram(g genuine, tag uint32, dc int, seed byte) *telegram {
	random := make([]byte, 64)
	rand.NewChaCha8([32]byte{seed}).Read(random)
	c := &telegram{hello: g.hello}
	c.init, c.up, c.down = writeInit(random, g.secret.Key[:], tag, dc)
	return c
}

// record wraps payload into one TLS record.
func record(payload []byte) []byte {
	return append([]byte{23, 3, 3, byte(len(payload) >> 8), byte(len(payload))}, payload...)
}

var ccs = []byte{20, 3, 3, 0, 1, 1}

// first is what TDLib sends after the reply: CCS, then init and first message in one record.
func (c *telegram) first(message []byte) []byte {
	return append(bytes.Clone(ccs), record(append(bytes.Clone(c.init), xor(c.up, message)...))...)
}

// unwrap returns the payload of the client-bound records in b, and their sizes.
func unwrap(t testing.TB, b []byte) (payload []byte, sizes []int) {
	t.Helper()
	for len(b) > 0 {
		if len(b) < 5 || b[0] != 23 || b[1] != 3 || b[2] != 3 {
			t.Fatalf("not a record of ours: % .20x", b)
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		if n == 0 || n > tlsfront.FullRecord || len(b) < 5+n {
			t.Fatalf("record of %d bytes, %d there", n, len(b)-5)
		}
		payload = append(payload, b[5:5+n]...)
		sizes = append(sizes, n)
		b = b[5+n:]
	}
	return payload, sizes
}

// pattern is n bytes that differ from place to place.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed, 'p'}).Read(b)
	return b
}
