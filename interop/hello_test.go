package interop

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"
	"time"
)

// Numbers of RFC 8446.
const (
	recordCCS         = 20
	recordAlert       = 21
	recordHandshake   = 22
	recordData        = 23
	typeClientHello   = 1
	extServerName     = 0
	extPadding        = 21
	extKeyShare       = 51
	extECH            = 0xfe0d // draft-ietf-tls-esni; what browsers send
	helloRandomOffset = 11     // of ClientHello.random in the first record, header included
)

// clientHello returns the record that crypto/tls would open a connection to siteHost with.
func clientHello(edits ...func(*tls.Config)) []byte {
	config := &tls.Config{ServerName: siteHost, NextProtos: []string{"h2", "http/1.1"}}
	for _, edit := range edits {
		edit(config)
	}
	var first firstWrite
	tls.Client(&first, config).Handshake() // fails by design: nobody answers
	return first.b
}

// firstWrite is a connection that keeps what is written first and then fails.
type firstWrite struct {
	net.Conn
	b []byte
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.b = bytes.Clone(p)
	return 0, errors.New("enough")
}

func (f *firstWrite) Close() error { return nil }

func upTo(version uint16) func(*tls.Config) {
	return func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, version }
}

func groups(g ...tls.CurveID) func(*tls.Config) {
	return func(c *tls.Config) { c.CurvePreferences = g }
}

func naming(host string) func(*tls.Config) {
	return func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = host, true }
}

// hello is a ClientHello taken apart, to be put together wrongly. Every field holds what follows its length.
type hello struct {
	version, random, session, suites, compression []byte
	extensions                                    []extension
}

type extension struct {
	id   uint16
	body []byte
}

// take cuts a field with a length of n bytes before it off b.
func take(b []byte, n int) (field, rest []byte) {
	size := 0
	for _, c := range b[:n] {
		size = size<<8 | int(c)
	}
	return b[n : n+size : n+size], b[n+size:]
}

func parseHello(record []byte) *hello {
	b := record[5+4:]
	h := &hello{version: b[:2:2], random: b[2:34:34]}
	b = b[34:]
	h.session, b = take(b, 1)
	h.suites, b = take(b, 2)
	h.compression, b = take(b, 1)
	b, _ = take(b, 2)
	for len(b) > 0 {
		e := extension{id: binary.BigEndian.Uint16(b)}
		e.body, b = take(b[2:], 2)
		h.extensions = append(h.extensions, e)
	}
	return h
}

// sized returns b behind its length in n bytes.
func sized(n int, b []byte) []byte {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(b)))
	return slices.Concat(size[8-n:], b)
}

// message returns the handshake message without a record around it.
func (h *hello) message() []byte {
	var extensions []byte
	for _, e := range h.extensions {
		extensions = binary.BigEndian.AppendUint16(extensions, e.id)
		extensions = append(extensions, sized(2, e.body)...)
	}
	body := slices.Concat(h.version, h.random, sized(1, h.session), sized(2, h.suites), sized(1, h.compression), sized(2, extensions))
	return append([]byte{typeClientHello}, sized(3, body)...)
}

// record returns the ClientHello in one record.
func (h *hello) record() []byte { return record(recordHandshake, h.message()) }

func (h *hello) without(id uint16) *hello {
	h.extensions = slices.DeleteFunc(h.extensions, func(e extension) bool { return e.id == id })
	return h
}

func (h *hello) with(id uint16, body []byte) *hello {
	h.extensions = append(h.extensions, extension{id, body})
	return h
}

// altered returns a fresh ClientHello after edit.
func altered(edit func(*hello)) []byte {
	h := parseHello(clientHello())
	edit(h)
	return h.record()
}

// renamed returns a fresh ClientHello whose SNI extension has this body.
func renamed(body []byte) []byte {
	return altered(func(h *hello) { h.without(extServerName).with(extServerName, body) })
}

// serverName is the body of an SNI extension with these names (RFC 6066 §3 allows one of the type host_name).
func serverName(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = append(list, 0)
		list = append(list, sized(2, []byte(name))...)
	}
	return sized(2, list)
}

// record wraps payload as RFC 8446 §5.1 has the first record of a client: version 0301.
func record(typ byte, payload []byte) []byte { return versioned(typ, 0x0301, payload) }

func versioned(typ byte, version uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{typ}, version)
	return append(b, sized(2, payload)...)
}

// recut spreads the payload of a record over records whose payloads end at the given offsets.
func recut(rec []byte, at ...int) []byte {
	payload := rec[5:]
	var b []byte
	from := 0
	for _, to := range append(at, len(payload)) {
		b = append(b, record(recordHandshake, payload[from:to])...)
		from = to
	}
	return b
}

// signed returns the hello with the digest of a client that holds key and has the right time (PROTOCOL §2).
func signed(rec []byte, key [16]byte) []byte {
	b := bytes.Clone(rec)
	random := b[helloRandomOffset : helloRandomOffset+32]
	clear(random)
	mac := hmac.New(sha256.New, key[:])
	mac.Write(b)
	copy(random, mac.Sum(nil))
	stamp := binary.LittleEndian.Uint32(random[28:]) ^ uint32(time.Now().Unix())
	binary.LittleEndian.PutUint32(random[28:], stamp)
	return b
}

// acceptedBy tells whether reply is the proxy's own answer to hello and not the front's: only who has key can have
// made its random (PROTOCOL §3). reply begins with the three records whole.
func acceptedBy(key [16]byte, hello, reply []byte) bool {
	end := 0
	for range 3 {
		if len(reply) < end+5 {
			return false
		}
		end += 5 + int(binary.BigEndian.Uint16(reply[end+3:]))
	}
	if len(reply) < end {
		return false
	}
	zeroed := bytes.Clone(reply[:end])
	clear(zeroed[11:43])
	mac := hmac.New(sha256.New, key[:])
	mac.Write(hello[helloRandomOffset : helloRandomOffset+32])
	mac.Write(zeroed)
	return hmac.Equal(mac.Sum(nil), reply[11:43])
}

func TestHelloIsPutTogetherAsItWas(t *testing.T) {
	rec := clientHello()
	if again := parseHello(rec).record(); !bytes.Equal(again, rec) {
		t.Errorf("ClientHello of %d bytes came back as %d bytes:\n%x\n%x", len(rec), len(again), rec, again)
	}
}
