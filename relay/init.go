package relay

import "mtrelay/clock"

// wantInit asks for exactly what the init lacks, so that the rest stays in the kernel while we dial.
func (s *Session) wantInit() int {
	return s.deframer.Want(initLen - len(s.opening.held))
}

// feedInit gathers the client's 64 bytes. p holds TLS records, cut anywhere; it is changed in place and may
// lie behind the held bytes in the same buffer.
func (s *Session) feedInit(now clock.Time, p []byte, out *Out) {
	payload, ok := s.deframer.Strip(p)
	o := s.hold(payload)
	switch {
	case !ok:
		s.finish(now, ReasonBadRecord, fatalAlert, out)
	case len(o.held) >= initLen:
		s.useInit(now, out)
	}
}

// useInit asks for the DC that the init names, and leaves in held what that DC gets first: our own init,
// then whatever the client sent behind its own, translated.
func (s *Session) useInit(now clock.Time, out *Out) {
	o, env := s.opening, s.env
	theirs := (*[initLen]byte)(o.held)
	c, ok := parseInit(theirs, s.secretKey())
	if !ok {
		s.finish(now, ReasonBadInit, fatalAlert, out)
		return
	}
	s.dc = int16(c.dc)
	addrs, id := env.DCs.Lookup(c.dc)
	if len(addrs) == 0 {
		s.finish(now, ReasonUnknownDC, closeNotify, out)
		return
	}
	s.up.decrypt = c.up
	s.sent = c.sent
	s.keyed, s.frames.abridged = true, c.tag == tagAbridged
	if env.Reencrypt {
		s.down = &recoder{encrypt: c.down.stream()}
		s.up.encrypt, s.down.decrypt = c.dcInitOwn(theirs, id, env.Rand)
	} else {
		s.up.encrypt = c.dcInit(theirs, id, env.Rand)
	}
	s.recodeUp(o.held[initLen:])
	s.state = StateDialDC
	s.deadline = 0
	out.Dial, out.Targets = DialDC, addrs
}
