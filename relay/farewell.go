package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"math/bits"

	"mtrelay/tlsfront"
)

// alertLen is the payload of an encrypted TLS 1.3 alert: two bytes, the content type, the AEAD tag.
const alertLen = 2 + 1 + 16

// farewell is the record that a site sends before its FIN: an encrypted close_notify, 19 bytes that nobody
// without the keys can tell from random ones. A Telegram client, however, takes them for data, the
// beginning of a frame. Random ones announce an absurd length there: TDLib and gotd report a broken
// protocol instead of a lost connection, and Android's client redials at once, again and again. So ours
// decrypt to the length of an ordinary frame; the client waits for the rest of it, and sees our FIN.
//
// It needs the client's down keys and how much of their key stream is used up.
type farewell struct {
	keys     keyIV
	sent     uint64 // bytes of the downlink so far
	abridged bool
	known    bool // there is a client's init, so there are keys
}

// frameAnnounced is the length of the frame that never comes, in bytes; a multiple of 4, and what clients
// receive every day.
const frameAnnounced = 1024

// newFarewell remembers what c's downlink needs.
func newFarewell(c *clientInit) farewell {
	return farewell{keys: c.down, abridged: c.tag == tagAbridged, known: true}
}

// fill makes p, random bytes, the payload of the record.
func (f *farewell) fill(p []byte) {
	if !f.known {
		return
	}
	var length [4]byte
	if f.abridged {
		binary.LittleEndian.PutUint32(length[:], frameAnnounced/4<<8|0x7f) // 0x7f, then words in 24 bits
	} else {
		binary.LittleEndian.PutUint32(length[:], frameAnnounced)
	}
	f.keys.streamAt(f.sent).XORKeyStream(p[:len(length)], length[:])
}

// streamAt returns the key stream from byte n on.
func (k keyIV) streamAt(n uint64) cipher.Stream {
	k.counterAt(k.iv[:], n/aes.BlockSize)
	stream := k.stream()
	var skipped [aes.BlockSize]byte
	stream.XORKeyStream(skipped[:n%aes.BlockSize], skipped[:n%aes.BlockSize])
	return stream
}

// counterAt writes into p the counter of the key stream's block n.
func (k *keyIV) counterAt(p []byte, n uint64) {
	high, low := binary.BigEndian.Uint64(k.iv[:]), binary.BigEndian.Uint64(k.iv[8:])
	low, carry := bits.Add64(low, n, 0)
	binary.BigEndian.PutUint64(p, high+carry)
	binary.BigEndian.PutUint64(p[8:], low)
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
	s.farewell.fill(payload)
	env.out = append(out.Client, b[:]...)
	out.Client = env.out
}
