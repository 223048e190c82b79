package interop

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mtrelay/clock"
	"mtrelay/relay/relaytest"
	"mtrelay/tlsfront"
)

// greeting is a way in which a client greets the proxy.
type greeting struct {
	name  string
	key   [16]byte
	host  string
	wall  clock.Unix
	write func() []byte // the ClientHello in one record, as the client wrote it
}

// greetings are those of all hellos that the project knows: made by either of its two makers, and captured ones.
func greetings(t *testing.T, rnd io.Reader) []greeting {
	t.Helper()
	now := clock.Unix(time.Now().Unix())
	var all []greeting
	for _, kind := range []tlsfront.HelloKind{
		tlsfront.HelloHybrid, tlsfront.HelloX25519, tlsfront.HelloAES256, tlsfront.HelloClassic,
	} {
		all = append(all, greeting{"made: " + kind.String(), sceneKey, siteHost, now, func() []byte {
			var id [32]byte
			rnd.Read(id[:])
			return tlsfront.AppendClientHello(nil, kind, siteHost, id, &sceneKey, now, rnd)
		}})
	}
	for name, opts := range map[string][]relaytest.Option{"current": nil, "classic": {relaytest.Classic()}} {
		opts = append(opts, relaytest.Stamp(time.Unix(int64(now), 0)))
		all = append(all, greeting{"relaytest: " + name, sceneKey, siteHost, now, func() []byte {
			return relaytest.ClientHello(sceneKey, siteHost, opts...)
		}})
	}
	files, err := filepath.Glob("../tlsfront/testdata/hello/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured hellos: %v", err)
	}
	for _, file := range files {
		all = append(all, captured(t, file))
	}
	return all
}

// captured reads a ClientHello of a real client: lines "key: value", an empty line, hex.
func captured(t *testing.T, file string) greeting {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	header, dump, _ := strings.Cut(string(text), "\n\n")
	head := make(map[string]string)
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		head[key] = value
	}
	secret, err1 := hex.DecodeString(head["secret"])
	wall, err2 := strconv.ParseInt(head["time"], 10, 64)
	hello, err3 := hex.DecodeString(strings.Join(strings.Fields(dump), ""))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	write := func() []byte { return hello }
	return greeting{filepath.Base(file), [16]byte(secret[1:]), string(secret[17:]), clock.Unix(wall), write}
}

// gate returns a gate for the greeting's secret.
func (g *greeting) gate(rnd io.Reader) *tlsfront.Gate {
	secret := tlsfront.Secret{Name: g.name, Host: g.host, Key: g.key}
	return tlsfront.NewGate([]tlsfront.Secret{secret}, time.Minute, nil, rnd)
}

// answer returns the proxy's reply to the hello, spread over so many records, on a path with this MSS.
func (g *greeting) answer(t *testing.T, gate *tlsfront.Gate, hello []byte, records, mss int) []byte {
	t.Helper()
	raw := relaytest.Recut(hello, records)
	var h tlsfront.Hello
	if v := h.Feed(raw); v != tlsfront.Whole {
		t.Fatalf("%s in %d records: %v, %v", g.name, records, v, h.Reason())
	}
	if v := gate.Judge(&h, raw, g.wall, 1); v != tlsfront.Accepted {
		t.Fatalf("%s in %d records: %v, %v", g.name, records, v, h.Reason())
	}
	return gate.AppendReply(nil, &h, raw, mss, nil)
}

// paths are values of the MSS: unknown; the least that leaves room for any answer; what tunnels, IPv6's least MTU,
// mobile networks, Ethernet, jumbo frames and loopback have. Every one around the end of a hybrid ServerHello, which
// is at 1,215, and around a half, a third and a quarter of it.
var paths = append([]int{0, 138, 216, 256, 500, 536, 1000, 1024, 1100, 1200, 1208, 1240, 1300, 1348, 1360, 1388, 1400,
	1440, 1448, 1460, 8948, 16344, 32741, 65483}, around(1220, 1220/2, 1220/3, 1220/4)...)

func around(middles ...int) (all []int) {
	for _, m := range middles {
		for mss := m - 8; mss <= m+8; mss++ {
			all = append(all, mss)
		}
	}
	return all
}

// TestRepliesSuitEveryApp: thousands of replies to hellos of all kinds, over paths of many sizes. Every app must take
// each of them whole; in the segments that one write becomes on that path, read one at a time; and wherever the
// reading may have stopped between them.
func TestRepliesSuitEveryApp(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{1})
	count := 0
	for _, g := range greetings(t, rnd) {
		t.Run(g.name, func(t *testing.T) {
			gate := g.gate(rnd)
			for _, mss := range paths {
				for _, records := range []int{1, 2 + int(rnd.Uint64()%63)} {
					hello := g.write()
					reply := g.answer(t, gate, hello, records, mss)
					suits(t, g.key, hello, reply, mss)
					count++
				}
			}
		})
	}
	t.Logf("%d replies", count)
}

func suits(t *testing.T, key [16]byte, hello, reply []byte, mss int) {
	t.Helper()
	for _, kind := range apps {
		if err := takes(kind.start(key, hello), reply); err != nil {
			t.Errorf("%s, MSS %d, whole: %v", kind.name, mss, err)
		}
		if mss == 0 || mss >= len(reply) {
			continue
		}
		if err := takes(kind.start(key, hello), slices.Collect(slices.Chunk(reply, mss))...); err != nil {
			t.Errorf("%s, MSS %d, in segments: %v", kind.name, mss, err)
		}
		for end := mss; end < len(reply); end += mss {
			if err := takes(kind.start(key, hello), reply[:end], reply[end:]); err != nil {
				t.Errorf("%s, MSS %d, read up to %d: %v", kind.name, mss, end, err)
			}
		}
	}
}

// takes has the app read these chunks, and fails unless it is connected after the last one and not before.
func takes(a app, chunks ...[]byte) error {
	for i, chunk := range chunks {
		if a.connected() {
			return fmt.Errorf("connected after %d of %d chunks", i, len(chunks))
		}
		if err := a.recv(chunk); err != nil {
			return err
		}
	}
	if !a.connected() {
		return errors.New("still waiting")
	}
	return nil
}

// TestRepliesCutAnywhere: a reply to every kind of hello, cut in two at every offset and into single bytes.
func TestRepliesCutAnywhere(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{2})
	for _, g := range greetings(t, rnd) {
		t.Run(g.name, func(t *testing.T) {
			hello := g.write()
			reply := g.answer(t, g.gate(rnd), hello, 1, 0)
			for _, kind := range apps {
				for cut := 1; cut < len(reply); cut++ {
					err := takes(kind.start(g.key, hello), reply[:cut], reply[cut:])
					bears, gambles := true, false
					if kind.name == "Android" {
						bears, gambles = androidBears(hello, reply, cut)
					}
					if !gambles && bears != (err == nil) {
						t.Errorf("%s, cut at %d of %d: %v, want it to be borne: %v", kind.name, cut, len(reply), err, bears)
					}
				}
				if kind.name == "Android" {
					continue
				}
				if err := takes(kind.start(g.key, hello), slices.Collect(slices.Chunk(reply, 1))...); err != nil {
					t.Errorf("%s, in single bytes: %v", kind.name, err)
				}
			}
		})
	}
}

// androidBears reports whether Android's app bears a reading that stops at cut. Behind the ServerHello it does not: it
// compares bytes that have not come, those of its own hello in their place, unless they happen to be the right ones.
// Then, and where only the length has not come, it is a gamble: a wrong length means waiting, an absurd one the end.
func androidBears(hello, reply []byte, cut int) (bears, gambles bool) {
	behind := cut - headerLen - lengthAt(reply, 3)
	if behind < 0 || behind > len(startOfCCS) {
		return true, false
	}
	return false, bytes.HasPrefix(hello[cut:], startOfCCS[behind:])
}

// TestAppsRefuse: replies that are not right, and which of the apps take them all the same. It holds the models to what
// PROTOCOL.md §3 says about the apps.
func TestAppsRefuse(t *testing.T) {
	hello := relaytest.ClientHello(sceneKey, siteHost)
	sh := func(n int) []byte { return versioned(recordHandshake, 0x0303, make([]byte, n)) }
	ccs := []byte{recordCCS, 3, 3, 0, 1, 1}
	data := func(n int) []byte { return versioned(recordData, 0x0303, make([]byte, n)) }
	seal := func(records ...[]byte) []byte {
		reply := slices.Concat(records...)
		copy(reply[helloRandomOffset:], replyDigest(sceneKey, hello[helloRandomOffset:][:32], reply))
		return reply
	}
	flip := func(reply []byte, at int) []byte {
		reply[(at+len(reply))%len(reply)] ^= 1
		return reply
	}
	all := "Desktop TDLib iOS Android"
	for _, c := range []struct {
		name  string
		reply []byte
		taken string // by these
	}{
		{"right", seal(sh(122), ccs, data(2500)), all},
		{"digest altered", flip(seal(sh(122), ccs, data(2500)), helloRandomOffset), ""},
		{"last byte altered", flip(seal(sh(122), ccs, data(2500)), -1), ""},
		{"other version", seal(versioned(recordHandshake, 0x0301, make([]byte, 122)), ccs, data(2500)), ""},
		{"no ChangeCipherSpec", seal(sh(122), data(2500)), ""},
		{"two of them", seal(sh(122), ccs, ccs, data(2500)), ""},
		{"no data", seal(sh(122), ccs), ""},
		{"a byte short", seal(sh(122), ccs, data(2500))[:2637], ""},
		{"empty data", seal(sh(122), ccs, data(0)), "Desktop TDLib Android"},
		{"two data records", seal(sh(122), ccs, data(1200), data(1300)), "Android"},
		{"a data record too early", append(seal(sh(122), ccs, data(1200)), data(1300)...), "Desktop TDLib iOS"},
		{"an alert behind", append(seal(sh(122), ccs, data(1200)), versioned(recordAlert, 0x0303, []byte{1, 0})...), ""},
		{"longest ServerHello", seal(sh(10240), ccs, data(100)), all},
		{"too long a ServerHello", seal(sh(10241), ccs, data(100)), "Desktop TDLib Android"},
		{"longest data", seal(sh(122), ccs, data(10240)), all},
		{"too long data", seal(sh(122), ccs, data(10241)), "Desktop TDLib Android"},
		{"over 64 KiB", seal(sh(1210), ccs, data(64500)), "Desktop TDLib"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var taken []string
			for _, kind := range apps {
				if takes(kind.start(sceneKey, hello), c.reply) == nil {
					taken = append(taken, kind.name)
				}
			}
			if got := strings.Join(taken, " "); got != c.taken {
				t.Errorf("taken by %q, want %q", got, c.taken)
			}
		})
	}
}
