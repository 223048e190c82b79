package tlsfront

import "encoding/binary"

// Numbers of TLS 1.3, RFC 8446 §5.1 and §5.2.
const (
	// RecordHeaderLen is the size of a record header: type, version, length of the payload.
	RecordHeaderLen = 5

	RecordChangeCipherSpec = 20
	RecordHandshake        = 22
	RecordApplicationData  = 23

	// FullRecord is the payload of a full TLS 1.3 record: 2^14 bytes of data, the content type, the AEAD tag.
	FullRecord = maxPlaintext + 1 + 16
	// MaxRecord is the longest payload that RFC 8446 §5.2 allows for a protected record.
	MaxRecord = maxPlaintext + 256

	maxPlaintext = 1 << 14 // payload bytes of a record before protection, a ClientHello's records for one
)

// PutRecordHeader writes the 5-byte header of a record of type typ with n payload bytes to the front of b. The version
// is 03 03, the only one that a TLS 1.3 server sends.
func PutRecordHeader(b []byte, typ byte, n int) {
	_ = b[RecordHeaderLen-1]
	b[0], b[1], b[2] = typ, 3, 3
	binary.BigEndian.PutUint16(b[3:], uint16(n))
}

// Deframer strips the record headers from what a client sends after its ClientHello. A record need not be whole:
// payload is handed on as it comes, and only the bytes of a header are remembered. So a record costs nothing, however
// long it claims to be; gotd puts a whole transport frame into one.
//
// The zero value is ready. Not safe for concurrent use; owned by one loop.
type Deframer struct {
	rest   uint16 // payload bytes of the current record still to come
	length uint16 // of the current record, as far as its header was read
	have   uint8  // header bytes of the current record read so far; RecordHeaderLen inside a payload
	typ    uint8  // of the current record
	broken bool   // the client broke the rules; nothing is stripped any more
}

// Strip moves the application data of p to the front of p, in place, and returns it. A ChangeCipherSpec is dropped
// wherever it comes: clients send one before their first record, and RFC 8446 §5 has receivers ignore it.
//
// ok is false as soon as the bytes are no TLS 1.3 client's: another record type, a major version other than 3, an
// empty record, a ChangeCipherSpec whose body is not the one byte 01. The payload before that is still returned. It
// stays false from then on.
func (d *Deframer) Strip(p []byte) (payload []byte, ok bool) {
	n := 0
	for i := 0; i < len(p) && !d.broken; {
		if d.have < RecordHeaderLen {
			d.header(p[i])
			i++
			continue
		}
		take := min(len(p)-i, int(d.rest))
		body := p[i : i+take]
		i += take
		if d.typ == RecordApplicationData {
			n += copy(p[n:], body)
		} else if body[0] != 1 {
			d.broken = true
		}
		if d.rest -= uint16(take); d.rest == 0 {
			d.have = 0
		}
	}
	return p[:n:n], !d.broken
}

// header takes the next byte of a record header, and refuses as early as that byte allows.
func (d *Deframer) header(b byte) {
	switch d.have {
	case 0:
		d.typ = b
		d.broken = b != RecordApplicationData && b != RecordChangeCipherSpec
	case 1:
		d.broken = b != 3
	case 3:
		d.length = uint16(b) << 8
		d.broken = d.typ == RecordChangeCipherSpec && b != 0
	case 4:
		d.length |= uint16(b)
		d.rest = d.length
		d.broken = d.length == 0 || d.typ == RecordChangeCipherSpec && d.length != 1
	}
	d.have++
}

// Want returns how many bytes to read next when missing payload bytes are wanted: so many that at most that much
// payload comes out and nothing behind it is read. It is the rest of a header, the rest of a ChangeCipherSpec, or as
// much of the current record as is missing. 0 when nothing is missing or the client broke the rules.
func (d *Deframer) Want(missing int) int {
	switch {
	case missing <= 0 || d.broken:
		return 0
	case d.have < RecordHeaderLen:
		return RecordHeaderLen - int(d.have)
	case d.typ == RecordChangeCipherSpec:
		return int(d.rest)
	default:
		return min(int(d.rest), missing)
	}
}
