package relay

import (
	"encoding/binary"

	"mtrelay/tlsfront"
)

// alertLen is the payload of an encrypted TLS 1.3 alert: two bytes, the content type, the AEAD tag.
const alertLen = 2 + 1 + 16

// frameAnnounced is the length of the frame that never comes, in bytes; a multiple of 4, and what clients
// receive every day.
const frameAnnounced = 1024

// appendAlert adds to what the client gets the record that a site sends before its FIN: an encrypted close_notify,
// 19 bytes that nobody without the keys can tell from random ones. A Telegram client, however, takes them for
// data, the beginning of a frame. Random ones announce an absurd length there: TDLib and gotd report a broken
// protocol instead of a lost connection, and Android's client redials at once, again and again. So ours decrypt
// to the length of an ordinary frame; the client waits for the rest of it, and sees our FIN.
func (s *Session) appendAlert(out *Out) {
	env := s.env
	if len(out.Client) == 0 {
		out.Client = env.out[:0]
	}
	var b [tlsfront.RecordHeaderLen + alertLen]byte
	header(b[:], alertLen)
	payload := b[tlsfront.RecordHeaderLen:]
	readRandom(env.Rand, payload)
	if s.keyed {
		length := s.frameAhead()
		s.clientKeys().down().streamAt(s.delivered).XORKeyStream(payload[:len(length)], length[:])
	}
	env.out = append(out.Client, b[:]...)
	out.Client = env.out
}

// frameAhead returns the beginning of a frame of frameAnnounced bytes, as the client's transport has it.
func (s *Session) frameAhead() (b [4]byte) {
	if s.frames.abridged {
		binary.LittleEndian.PutUint32(b[:], frameAnnounced/4<<8|0x7f) // 0x7f, then words in 24 bits
	} else {
		binary.LittleEndian.PutUint32(b[:], frameAnnounced)
	}
	return b
}
