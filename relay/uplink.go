package relay

import (
	"crypto/cipher"

	"mtrelay/clock"
)

// recoder turns the bytes of one direction from one leg's cipher into the other's.
type recoder struct {
	decrypt, encrypt cipher.Stream
}

// recode works in place.
func (r *recoder) recode(p []byte) {
	r.decrypt.XORKeyStream(p, p)
	r.encrypt.XORKeyStream(p, p)
}

// uplink strips the record headers off p and re-encrypts what remains for the DC, in place.
func (s *Session) uplink(now clock.Time, p []byte, out *Out) {
	payload, ok := s.deframer.Strip(p)
	if s.asleep() {
		s.wake()
	}
	s.recodeUp(payload)
	out.Upstream = payload
	if !ok {
		s.finish(now, ReasonBadRecord, fatalAlert, out)
	}
}

func (s *Session) recodeUp(payload []byte) {
	s.up.recode(payload)
	s.received += uint64(len(payload))
	s.asked = s.asked || len(payload) > 0
}
