package interop

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// helloRetryRandom is the ServerHello.random that makes it a HelloRetryRequest (RFC 8446 §4.1.3).
var helloRetryRandom = sha256.Sum256([]byte("HelloRetryRequest"))

// headerDate is the end of the one header line that differs between two answers of one server, in HTTP/1.1 (Date) or
// HTTP/2 (date). It begins with plain text because it is looked for in megabytes.
var headerDate = regexp.MustCompile(`ate: [A-Z][a-z]{2}, [^\r\n]+ GMT`)

func undated(answer []byte) []byte { return headerDate.ReplaceAll(answer, []byte("ate: *")) }

// maskReply describes what a server sent such that two answers of one server to one client read the same: type,
// version and length of every record, plain alerts and plain handshake messages without what is random in them,
// and everything that is not TLS as it is.
func maskReply(b []byte) string {
	if len(b) == 0 {
		return "no bytes"
	}
	var parts []string
	var flight []byte // handshake messages in the clear
	encrypted := false
	for isRecord(b) {
		typ, size := b[0], int(binary.BigEndian.Uint16(b[3:]))
		payload := b[5:min(len(b), 5+size)]
		part := fmt.Sprintf("%d/%x/%d", typ, b[1:3], size)
		switch {
		case len(payload) < size:
			part += fmt.Sprintf(" cut at %d", len(payload))
		case typ == recordAlert && !encrypted || typ == recordCCS:
			part += fmt.Sprintf(":%x", payload)
		case typ == recordHandshake && !encrypted:
			flight = append(flight, payload...)
		}
		encrypted = encrypted || typ == recordCCS
		parts = append(parts, part)
		b = b[5+len(payload):]
	}
	if len(flight) > 0 {
		parts = append(parts, maskFlight(flight))
	}
	if len(b) > 0 {
		parts = append(parts, fmt.Sprintf("%q", undated(b)))
	}
	return strings.Join(parts, " ")
}

func isRecord(b []byte) bool {
	return len(b) >= 5 && recordCCS <= b[0] && b[0] <= recordData && b[1] == 3
}

// maskFlight describes the messages of a server's plain-text flight.
func maskFlight(b []byte) string {
	var parts []string
	for len(b) >= 4 {
		typ, size := b[0], int(b[1])<<16|int(b[2])<<8|int(b[3])
		if len(b) < 4+size {
			break
		}
		body := b[4 : 4+size]
		b = b[4+size:]
		switch typ {
		case 2:
			parts = append(parts, maskServerHello(body))
		case 12: // ServerKeyExchange: curve type and curve, then a fresh key and its signature
			parts = append(parts, fmt.Sprintf("12:%x+%d", body[:min(len(body), 3)], size))
		default: // Certificate, CertificateRequest, ServerHelloDone: the same bytes every time
			sum := sha256.Sum256(body)
			parts = append(parts, fmt.Sprintf("%d:%x+%d", typ, sum[:4], size))
		}
	}
	if len(b) > 0 {
		parts = append(parts, fmt.Sprintf("cut message %x", b[:min(len(b), 4)]))
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// maskServerHello keeps all but the random, the key share and a session id of the server's own.
func maskServerHello(b []byte) string {
	if len(b) < 35 || len(b) < 35+int(b[34])+5 {
		return fmt.Sprintf("ServerHello:%x", b)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "ServerHello:%x", b[:2])
	switch {
	case bytes.Equal(b[2:34], helloRetryRandom[:]):
		s.WriteString(" retry")
	case bytes.HasPrefix(b[26:], []byte("DOWNGRD")): // RFC 8446 §4.1.3
		fmt.Fprintf(&s, " %q", b[26:34])
	}
	session, rest := take(b[34:], 1)
	fmt.Fprintf(&s, " session+%d suite:%x", len(session), rest[:2])
	for rest = rest[5:]; len(rest) >= 4; {
		id := binary.BigEndian.Uint16(rest)
		var body []byte
		body, rest = take(rest[2:], 2)
		if id == extKeyShare && len(body) > 4 {
			fmt.Fprintf(&s, " %d:%x+%d", id, body[:2], len(body)-4)
		} else {
			fmt.Fprintf(&s, " %d:%x", id, body)
		}
	}
	return s.String()
}

func TestMaskKeepsWhatTellsServersApart(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"other time", "HTTP/1.1 400 Bad\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\n\r\n", "HTTP/1.1 400 Bad\r\nDate: Tue, 01 Dec 2026 11:00:00 GMT\r\n\r\n", true},
		{"other page", "HTTP/1.1 400 Bad\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\n\r\n", "HTTP/1.0 400 Bad\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\n\r\n", false},
		{"other alert", "\x15\x03\x03\x00\x02\x02\x32", "\x15\x03\x03\x00\x02\x02\x0a", false},
		{"alert of an older version", "\x15\x03\x03\x00\x02\x02\x32", "\x15\x03\x01\x00\x02\x02\x32", false},
		{"other ciphertext", "\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02ab", "\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02cd", true},
		{"longer ciphertext", "\x17\x03\x03\x00\x02ab", "\x17\x03\x03\x00\x03abc", false},
		{"one record more", "\x17\x03\x03\x00\x02ab", "\x17\x03\x03\x00\x02ab\x17\x03\x03\x00\x02ab", false},
		{"cut in the header", "\x17\x03\x03\x00\x02ab", "\x17\x03\x03\x00", false},
		{"cut in the payload", "\x17\x03\x03\x00\x02ab", "\x17\x03\x03\x00\x02a", false},
	} {
		if same := maskReply([]byte(c.a)) == maskReply([]byte(c.b)); same != c.same {
			t.Errorf("%s: %s and %s", c.name, maskReply([]byte(c.a)), maskReply([]byte(c.b)))
		}
	}
}
