package tlsfront

// step is what comes next in a ClientHello. The names retrace its grammar, RFC 8446 §4.1.2.
type step uint8

const (
	stepHeader step = iota
	stepVersion
	stepRandom
	stepSessionID
	stepCipherSuites
	stepCompression
	stepExtensionsLength
	stepExtension // until the message ends
)

// stepReasons: what it means when a step goes past the end of the message. The fixed fields cannot, since the length
// was checked.
var stepReasons = [...]Reason{
	stepHeader:           ReasonHandshakeLength,
	stepVersion:          ReasonHandshakeLength,
	stepRandom:           ReasonHandshakeLength,
	stepSessionID:        ReasonSessionID,
	stepCipherSuites:     ReasonCipherSuites,
	stepCompression:      ReasonCompression,
	stepExtensionsLength: ReasonExtensions,
	stepExtension:        ReasonExtensions,
}

// parse takes as many steps as the bytes of message, which is all that came of it, allow. A step that lacks bytes is
// tried again on the next call: it looks at a few bytes before it knows that, so trying costs a constant.
func (h *Hello) parse(message []byte) {
	for h.verdict == More {
		c := cursor{b: message[h.at:], later: maxHelloMessage}
		if h.length > 0 {
			c.later = int(h.length) - len(message)
		}
		next, ok := h.take(&c)
		if !ok {
			if c.over {
				h.refuse(stepReasons[h.step])
			}
			return
		}
		h.step = next
		h.at = uint16(len(message) - len(c.b))
		if h.step >= stepExtensionsLength && h.at == h.length {
			h.verdict = Whole // TLS 1.2 allows a hello without extensions
		}
	}
}

// take reads what the current step expects and returns the step after it. ok is false when bytes are missing, when the
// message ends too early (c.over) and when it was refused.
func (h *Hello) take(c *cursor) (next step, ok bool) {
	switch h.step {
	case stepHeader:
		return stepVersion, h.takeHeader(c)
	case stepVersion:
		return stepRandom, h.takeVersion(c)
	case stepRandom:
		_, ok = c.bytes(randomLen)
		return stepSessionID, ok
	case stepSessionID:
		return stepCipherSuites, h.takeSessionID(c)
	case stepCipherSuites:
		return stepCompression, h.takeCipherSuites(c)
	case stepCompression:
		return stepExtensionsLength, h.takeCompression(c)
	case stepExtensionsLength:
		return stepExtension, h.takeExtensionsLength(c)
	default:
		return stepExtension, h.takeExtension(c)
	}
}

// takeHeader reads type and length. With the length it is known whether the records read so far hold more than the
// hello: a TLS stack puts nothing behind a ClientHello, whose answer it has to await.
func (h *Hello) takeHeader(c *cursor) bool {
	typ, ok := c.uint8()
	if ok && typ != typeClientHello {
		return h.refuse(ReasonHandshakeType)
	}
	high, ok := c.uint8()
	if ok && high != 0 {
		return h.refuse(ReasonHandshakeLength)
	}
	body, ok := c.uint16()
	switch {
	case !ok:
		return false
	case body < minHelloBody || body > maxHelloMessage-handshakeHeaderLen:
		return h.refuse(ReasonHandshakeLength)
	case int(h.framed) > handshakeHeaderLen+body:
		return h.refuse(ReasonTrailingBytes)
	}
	h.length = uint16(handshakeHeaderLen + body)
	return true
}

// takeVersion reads legacy_version, 03 03 in everything that offers TLS 1.3.
func (h *Hello) takeVersion(c *cursor) bool {
	for range 2 {
		b, ok := c.uint8()
		if !ok {
			return false
		}
		if b != 3 {
			return h.refuse(ReasonClientVersion)
		}
	}
	return true
}

func (h *Hello) takeSessionID(c *cursor) bool {
	n, ok := c.uint8()
	if !ok {
		return false
	}
	if n > maxSessionIDLen {
		return h.refuse(ReasonSessionID)
	}
	_, ok = c.bytes(n)
	return ok
}

func (h *Hello) takeCipherSuites(c *cursor) bool {
	n, ok := c.uint16()
	if !ok {
		return false
	}
	if n == 0 || n%2 != 0 {
		return h.refuse(ReasonCipherSuites)
	}
	suites, ok := c.bytes(n)
	if !ok {
		return false
	}
	h.offer.takeSuites(suites)
	return true
}

func (h *Hello) takeCompression(c *cursor) bool {
	n, ok := c.uint8()
	if ok && n == 0 {
		return h.refuse(ReasonCompression)
	}
	if ok {
		_, ok = c.bytes(n)
	}
	return ok
}

// takeExtensionsLength: the extensions are the last field, so their length must reach exactly to the end.
func (h *Hello) takeExtensionsLength(c *cursor) bool {
	n, ok := c.uint16()
	if ok && n != c.left() {
		return h.refuse(ReasonExtensions)
	}
	return ok
}

// takeExtension waits for a whole extension. To look into a part of one would not answer a stranger any earlier: no
// site answers before it has the whole message.
func (h *Hello) takeExtension(c *cursor) bool {
	typ, ok := c.uint16()
	if !ok {
		return false
	}
	if h.offer.has(typ) {
		return h.refuse(ReasonDuplicate)
	}
	body, ok := c.vector16()
	if !ok {
		return false
	}
	if reason := h.offer.takeExtension(typ, body); reason != ReasonNone {
		return h.refuse(reason)
	}
	return true
}
