package scout

import (
	"bytes"
	"encoding/binary"

	"mtrelay/tlsfront"
)

// Numbers of RFC 8446.
const (
	handshakeHeaderLen = 4
	typeServerHello    = 2

	versionTLS12 = 0x0303
	versionTLS13 = 0x0304

	maxClearRecord = 1<<14 + 2048 // RFC 5246 §6.2.3; RFC 8446 allows less
)

// Numbers of our choosing.
const (
	// maxServerHello is far above what a server can have to say to a client that resumes nothing: 1,210 bytes with a
	// hybrid share.
	maxServerHello = 4 << 10
	// maxFlightBytes bounds the encrypted records behind it. Chains of certificates take 2 to 10 KB.
	maxFlightBytes = 128 << 10
)

// stage is how far an answer has come.
type stage uint8

const (
	inHello   stage = iota // ServerHello not whole yet
	inFlight               // TLS 1.3: encrypted records follow, until the server waits for our Finished
	concluded              // no more bytes are of interest
)

// answer follows, as the bytes come, what a server sends after a ClientHello of TLS 1.3. The zero value is ready. What it
// keeps is bounded by the constants above, whatever is fed.
type answer struct {
	sessionID [32]byte        // that was sent
	flight    tlsfront.Flight // no OK as long as the flight may go on
	stage     stage

	header  [tlsfront.RecordHeaderLen]byte
	have    int    // bytes of header
	rest    int    // payload bytes of the current record still to come; 0 between records
	hello   []byte // handshake message as far as it has come
	records []int
	size    int // on the wire so far
}

// feed takes the next bytes. How they are cut makes no difference.
func (a *answer) feed(p []byte) {
	for len(p) > 0 && a.stage != concluded {
		if a.rest == 0 {
			n := copy(a.header[a.have:], p)
			p = p[n:]
			if a.have += n; a.have == len(a.header) {
				a.begin()
			}
			continue
		}
		n := min(a.rest, len(p))
		if a.rest -= n; a.rest == 0 {
			a.have = 0
		}
		a.payload(p[:n])
		p = p[n:]
	}
}

// begin judges a record by its header.
func (a *answer) begin() {
	typ := a.header[0]
	a.rest = int(binary.BigEndian.Uint16(a.header[3:]))
	a.size += tlsfront.RecordHeaderLen + a.rest
	switch {
	case a.header[1] != 3 || a.rest == 0 || a.rest > maxClearRecord || a.size > maxFlightBytes:
		a.conclude()
	case typ == tlsfront.RecordChangeCipherSpec && a.rest == 1: // RFC 8446 §D.4: wherever it comes
	case typ == tlsfront.RecordHandshake && a.stage == inHello:
	case typ == tlsfront.RecordApplicationData && a.stage == inFlight && a.protected():
	default: // an alert, another protocol
		a.conclude()
	}
}

// protected reports whether the current record can be one of TLS 1.3 that a profile has room for.
func (a *answer) protected() bool {
	return a.rest >= tlsfront.MinRecord && a.rest <= tlsfront.MaxRecord && len(a.records) < tlsfront.MaxFlightRecords
}

// conclude ends an answer that is not OK: what the front sends is no flight of TLS 1.3, or not one that ends.
func (a *answer) conclude() {
	a.stage, a.rest, a.have = concluded, 0, 0
}

// payload takes bytes of the current record, the last ones when rest is 0.
func (a *answer) payload(p []byte) {
	switch a.header[0] {
	case tlsfront.RecordApplicationData:
		if a.rest == 0 {
			a.records = append(a.records, int(binary.BigEndian.Uint16(a.header[3:])))
		}
	case tlsfront.RecordHandshake:
		a.hello = append(a.hello, p...)
		a.tryHello()
	}
}

// tryHello concludes the hello when it is whole. TLS 1.2 may put more messages into the record, TLS 1.3 may not, since
// the keys change behind it (RFC 8446 §5.1).
func (a *answer) tryHello() {
	h := a.hello
	if h[0] != typeServerHello {
		a.conclude()
		return
	}
	if len(h) < handshakeHeaderLen {
		return
	}
	n := handshakeHeaderLen + int(h[1])<<16 + int(binary.BigEndian.Uint16(h[2:]))
	if n > maxServerHello {
		a.conclude()
		return
	}
	if len(h) < n {
		return
	}
	sh, ok := parseServerHello(h[handshakeHeaderLen:n])
	if !ok {
		a.conclude()
		return
	}
	a.flight = sh.flight
	a.flight.EchoesSessionID = bytes.Equal(sh.sessionID, a.sessionID[:])
	if sh.flight.Retry || sh.flight.Version != versionTLS13 || !sh.hasShare || len(h) > n || a.rest > 0 {
		a.conclude()
		return
	}
	a.stage, a.hello = inFlight, nil
}

// atRest reports whether the answer can have come to its end: if no byte follows for a while, it has.
func (a *answer) atRest() bool {
	return a.stage == inFlight && len(a.records) > 0 && a.have == 0
}

// ended returns the flight after the pause that ended it.
func (a *answer) ended() tlsfront.Flight {
	f := a.flight
	f.OK, f.Records = true, [][]int{a.records}
	return f
}
