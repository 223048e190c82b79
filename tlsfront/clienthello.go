package tlsfront

import "encoding/binary"

// Numbers of RFC 8446 (§4.1.2 unless another section is named).
const (
	typeClientHello = 1
	typeServerHello = 2

	handshakeHeaderLen = 4 // type, length in 24 bits
	randomLen          = 32
	maxSessionIDLen    = 32

	// minHelloBody is a ClientHello with one cipher suite, one compression method and nothing that may be left out.
	minHelloBody = 2 + randomLen + 1 + 2 + 2 + 1 + 1

	randomOffset    = handshakeHeaderLen + 2 // in the handshake message
	sessionIDOffset = randomOffset + randomLen + 1
)

// Numbers of our choosing: what a stranger may make us keep before the secret is proven. Genuine hellos are one record
// of up to 1,988 bytes; a tool that hides the server name from a censor cuts them over a few more records.
const (
	maxHelloRecords = 64
	maxHelloMessage = 16 << 10 // handshake header included

	// MaxHello is the most raw bytes that a ClientHello can span; with so many bytes Feed no longer says More.
	MaxHello = maxHelloMessage + maxHelloRecords*RecordHeaderLen
)

// Hello follows a ClientHello as its bytes arrive: first to whether it can be one at all (Feed), then to whose it is
// (Gate.Judge). It holds offsets and progress into bytes that the caller keeps, and a copy of them only for a hello
// that was cut over several records, which has to be joined before it can be read.
//
// The zero value is ready. Not safe for concurrent use; owned by one loop.
type Hello struct {
	verdict Verdict // More, Whole, Front; Judge adds Scan and Accepted
	reason  Reason

	// Record layer. All bytes before raw[read] were taken.
	read    uint16
	rest    uint16 // payload bytes of the current record still to come
	framed  uint16 // payload bytes of all records whose header was read
	records uint8
	joined  []byte // nil while there is one record; else the same hello in one record, as far as it came

	// Handshake message. All bytes before message[at] were parsed.
	step   step
	at     uint16
	length uint16 // handshake header included; 0 until known

	offer  offer
	secret int32 // index + 1 of the secret whose digest matched; 0 when none did yet
	first  int32 // the secret to be tried before the others
	tried  int32 // secrets whose digest was compared
	skew   int64 // seconds
}

// Feed looks at raw, all bytes that came from the client so far, from the first one on: each call brings the same bytes
// and more. It says More while they can still become a ClientHello that one of our clients sends, Front (see Reason) as
// soon as they cannot, and Whole when the last byte is there. The verdict, its reason and the byte that decides are the
// same however the bytes are cut into calls. raw is borrowed; only bytes that were not there before are read, so
// feeding byte by byte costs no more than feeding at once.
//
// It allocates the joined copy of a hello cut over records (at most MaxHello bytes) and the server name, nothing else.
func (h *Hello) Feed(raw []byte) Verdict {
	for h.verdict == More {
		fresh := raw[h.read:]
		if h.rest == 0 {
			if !h.header(raw, fresh) {
				break
			}
			continue
		}
		if len(fresh) == 0 {
			break
		}
		h.payload(raw, fresh[:min(len(fresh), int(h.rest))])
	}
	return h.verdict
}

// Reason says why the verdict is Front; ReasonNone while it is not.
func (h *Hello) Reason() Reason { return h.reason }

// Len returns how many bytes of raw the records of the ClientHello span, once it is Whole. What comes behind them is
// not the hello's.
func (h *Hello) Len() int { return int(h.read) }

// ServerName returns the SNI (RFC 6066 §3) as sent, in lower case and without a trailing dot. It is known as soon as
// that extension is there, even if the rest never comes; "" before that, when there is none and when it is malformed.
// These are a stranger's bytes: look them up, don't print them.
func (h *Hello) ServerName() string { return h.offer.serverName }

// SessionID returns the legacy_session_id, once the hello is Whole. It points into raw, or into the joined copy.
func (h *Hello) SessionID(raw []byte) []byte {
	message := h.record(raw)[RecordHeaderLen:]
	return message[sessionIDOffset:][:message[sessionIDOffset-1]]
}

// header reads the next record header from fresh once it is whole, and refuses it as early as its bytes allow.
//
// Versions: RFC 8446 §5.1 has clients put 03 01 or 03 03 on their first flight, and so do the tools that cut a hello
// over records. 03 00 and 03 02 come from scanners only.
func (h *Hello) header(raw, fresh []byte) bool {
	switch n := len(fresh); {
	case n > 0 && fresh[0] != RecordHandshake:
		return h.refuse(ReasonRecordType)
	case n > 1 && fresh[1] != 3, n > 2 && fresh[2] != 1 && fresh[2] != 3:
		return h.refuse(ReasonRecordVersion)
	case n > 3 && fresh[3] > maxPlaintext>>8:
		return h.refuse(ReasonRecordLength)
	case n < RecordHeaderLen:
		return false
	}
	payload := int(binary.BigEndian.Uint16(fresh[3:]))
	framed := int(h.framed) + payload
	switch length := int(h.length); {
	case payload == 0 || payload > maxPlaintext:
		return h.refuse(ReasonRecordLength)
	case framed > maxHelloMessage:
		return h.refuse(ReasonHandshakeLength)
	case length > 0 && framed > length:
		return h.refuse(ReasonTrailingBytes)
	case h.records == maxHelloRecords-1 && framed < length:
		return h.refuse(ReasonRecordCount)
	}
	if h.records == 1 {
		h.joined = append([]byte{RecordHandshake, 3, 1, 0, 0}, raw[RecordHeaderLen:h.read]...)
	}
	h.records++
	h.read += RecordHeaderLen
	h.rest, h.framed = uint16(payload), uint16(framed)
	return true
}

// payload takes bytes of the current record, which are the next ones of raw.
func (h *Hello) payload(raw, fresh []byte) {
	h.read += uint16(len(fresh))
	h.rest -= uint16(len(fresh))
	if h.joined != nil {
		h.joined = append(h.joined, fresh...)
	}
	h.parse(h.record(raw)[RecordHeaderLen:])
	if h.verdict == Whole && h.joined != nil {
		binary.BigEndian.PutUint16(h.joined[3:], h.length)
	}
}

// record returns the hello in one record, header included, as far as it came. A client's digest covers this form: a
// tool that cut its hello over records did so after the library had signed it, with 16 03 01 and one length in front.
// A hello that came in one record is taken as it was sent.
func (h *Hello) record(raw []byte) []byte {
	if h.joined != nil {
		return h.joined
	}
	return raw[:h.read:h.read]
}

// refuse sends the hello to the front. It returns false, the answer of a step that cannot go on.
func (h *Hello) refuse(r Reason) bool {
	h.verdict, h.reason = Front, r
	return false
}
