package relay

import (
	"encoding/binary"

	"mtrelay/tlsfront"
)

// alertLen is the payload of an encrypted TLS 1.3 alert: two bytes, the content type, the AEAD tag.
const alertLen = 2 + 1 + 16

// farewell is the record that a site sends before its FIN: an encrypted close_notify, 19 bytes that nobody
// without the keys can tell from random ones. A Telegram client, however, takes them for data, the
// beginning of a frame. Random ones announce an absurd length there: TDLib and gotd report a broken
// protocol instead of a lost connection, and Android's client redials at once, again and again. So ours
// decrypt to the length of an ordinary frame; the client waits for the rest of it, and sees our FIN.
type farewell struct {
	sent     uint64 // bytes of the downlink so far, of whose key stream the record gets the next
	abridged bool
	known    bool // there is a client's init, so there are keys
}

// frameAnnounced is the length of the frame that never comes, in bytes; a multiple of 4, and what clients
// receive every day.
const frameAnnounced = 1024

// fill makes p, random bytes, the payload of the record. down is what the client decrypts the downlink with.
func (f *farewell) fill(p []byte, down keyIV) {
	var length [4]byte
	if f.abridged {
		binary.LittleEndian.PutUint32(length[:], frameAnnounced/4<<8|0x7f) // 0x7f, then words in 24 bits
	} else {
		binary.LittleEndian.PutUint32(length[:], frameAnnounced)
	}
	down.streamAt(f.sent).XORKeyStream(p[:len(length)], length[:])
}

// appendAlert adds the record to what the client gets.
func (s *Session) appendAlert(out *Out) {
	env := s.env
	if len(out.Client) == 0 {
		out.Client = env.out[:0]
	}
	var b [tlsfront.RecordHeaderLen + alertLen]byte
	header(b[:], alertLen)
	payload := b[tlsfront.RecordHeaderLen:]
	readRandom(env.Rand, payload)
	if s.farewell.known {
		s.farewell.fill(payload, s.sent.down(s.secretKey()))
	}
	env.out = append(out.Client, b[:]...)
	out.Client = env.out
}
