package tlsfront

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// helloFields is a ClientHello taken apart by code that shares nothing with the one that made it.
type helloFields struct {
	sessionID  []byte
	suites     []uint16
	extensions []helloExtension // in order
}

type helloExtension struct {
	typ  uint16
	body []byte
}

// splitHello insists on one record, lengths that add up, and fixed values in the fixed places.
func splitHello(raw []byte) (f helloFields, err error) {
	if len(raw) < 80 || !bytes.HasPrefix(raw, []byte{22, 3, 1}) || len(raw) != 5+int(raw[3])<<8+int(raw[4]) {
		return f, fmt.Errorf("record of %d: % x", len(raw), raw[:min(len(raw), 5)])
	}
	if m := raw[5:]; m[0] != 1 || int(m[1])<<16+int(m[2])<<8+int(m[3]) != len(m)-4 || m[4] != 3 || m[5] != 3 || m[38] != 32 {
		return f, fmt.Errorf("message: % x, session id of %d", m[:6], m[38])
	}
	rest := raw[44:]
	f.sessionID, rest = rest[:32], rest[32:]
	suites, rest := cut16(rest)
	f.suites = pairs(suites)
	if !bytes.HasPrefix(rest, []byte{1, 0}) {
		return f, fmt.Errorf("compression: % x", rest[:2])
	}
	rest, tail := cut16(rest[2:])
	if len(tail) > 0 {
		return f, fmt.Errorf("%d bytes behind the extensions", len(tail))
	}
	for len(rest) > 0 {
		e := helloExtension{typ: binary.BigEndian.Uint16(rest)}
		e.body, rest = cut16(rest[2:])
		f.extensions = append(f.extensions, e)
	}
	return f, nil
}

// cut16 cuts what has its length in two bytes off the front.
func cut16(b []byte) (body, rest []byte) {
	n := 2 + int(binary.BigEndian.Uint16(b))
	return b[2:n], b[n:]
}

func pairs(b []byte) (words []uint16) {
	for ; len(b) > 0; b = b[2:] {
		words = append(words, binary.BigEndian.Uint16(b))
	}
	return words
}

func isGrease(w uint16) bool { return w>>8 == w&0xff && w&0xf == 0xa }

func (f helloFields) body(typ uint16) []byte {
	for _, e := range f.extensions {
		if e.typ == typ {
			return e.body
		}
	}
	return nil
}

func (f helloFields) types() (types []uint16) {
	for _, e := range f.extensions {
		types = append(types, e.typ)
	}
	return types
}

func (f helloFields) groups() []uint16 { return pairs(f.body(10)[2:]) }

// helloShare is an entry of key_share.
type helloShare struct {
	group uint16
	key   []byte
}

func (f helloFields) shares() (shares []helloShare) {
	for rest, _ := cut16(f.body(51)); len(rest) > 0; {
		s := helloShare{group: binary.BigEndian.Uint16(rest)}
		s.key, rest = cut16(rest[2:])
		shares = append(shares, s)
	}
	return shares
}

// structure says all that is the same in another hello of the same kind: a line for the suites, one per extension in
// its order. GREASE is 0a0a, keys and ciphertexts are only their lengths.
func (f helloFields) structure() []string {
	lines := []string{fmt.Sprintf("suites %04x", plain(f.suites))}
	for _, e := range f.extensions {
		says := fmt.Sprintf("%x", e.body)
		switch e.typ {
		case 10:
			says = fmt.Sprintf("%x %04x", e.body[:2], plain(f.groups()))
		case 43:
			says = fmt.Sprintf("%x %04x", e.body[:1], plain(pairs(e.body[1:])))
		case 51:
			says = ""
			for _, s := range f.shares() {
				key := fmt.Sprint("+", len(s.key))
				if isGrease(s.group) {
					key = fmt.Sprintf("=%x", s.key)
				}
				says += fmt.Sprintf("%04x%s ", plain([]uint16{s.group}), key)
			}
		case 0xfe0d: // outer, KDF, AEAD, config, key, payload
			says = fmt.Sprintf("%x %x %x", e.body[:5], e.body[6:8], e.body[40:42])
		}
		lines = append(lines, fmt.Sprintf("%04x+%d %s", plain([]uint16{e.typ})[0], len(e.body), says))
	}
	return lines
}

func plain(words []uint16) []uint16 {
	words = slices.Clone(words)
	for i, w := range words {
		if isGrease(w) {
			words[i] = 0x0a0a
		}
	}
	return words
}

// sortShuffled brings the extensions between the two GREASE ones into one order.
func sortShuffled(lines []string) []string {
	lines = slices.Clone(lines)
	last := len(lines) - 1
	for !strings.HasPrefix(lines[last], "0a0a+1") { // padding
		last--
	}
	slices.Sort(lines[2:last])
	return lines
}
