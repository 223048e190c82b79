package relaytest

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	mathrand "math/rand/v2"
)

// Places in a ClientHello that is one record: 5 bytes of record header, 4 of handshake header, 2 of version.
const (
	randomAt    = 11
	sessionIDAt = randomAt + 32 + 1
	helloStart  = recordHeaderLen + 4
)

// classicLen is the length that older clients pad their ClientHello to, record header included.
const classicLen = 517

// Code points that both the ClientHello and the check of its answer name.
const (
	extensionKeyShare          = 0x0033
	extensionSupportedVersions = 0x002b
	extensionPadding           = 0x0015

	groupX25519         = 0x001d
	groupX25519MLKEM768 = 0x11ec
)

// ClientHello returns a fresh ClientHello as current clients send it (about 1.8 KB, X25519MLKEM768 and X25519 shares,
// GREASE, extensions in random order), in one record, signed with the secret's key. Of the options Stamp and Classic
// apply.
func ClientHello(key [16]byte, host string, opts ...Option) []byte {
	return clientHello(key, host, settingsOf(opts))
}

func clientHello(key [16]byte, host string, set settings) []byte {
	h := unsigned(host, set.classic)
	mac := hmac.New(sha256.New, key[:])
	mac.Write(h)
	digest := mac.Sum(nil)
	stamp := binary.LittleEndian.Uint32(digest[28:]) ^ uint32(set.stamp.Unix())
	binary.LittleEndian.PutUint32(digest[28:], stamp)
	copy(h[randomAt:], digest)
	return h
}

// unsigned returns the ClientHello with 32 zero bytes for its random.
func unsigned(host string, classic bool) []byte {
	b := []byte{typeHandshake, 3, 1, 0, 0, 1, 0, 0, 0, 3, 3}
	b = append(b, make([]byte, 32)...)
	b = append(append(b, 32), random(32)...) // session id
	b = appendVector16(b, cipherSuites())
	b = append(b, 1, 0) // no compression
	ext := extensions(host, classic)
	if classic {
		ext = padTo(ext, classicLen-len(b)-2)
	}
	b = appendVector16(b, ext)
	binary.BigEndian.PutUint16(b[3:], uint16(len(b)-recordHeaderLen))
	binary.BigEndian.PutUint16(b[7:], uint16(len(b)-helloStart)) // the upper of the three bytes stays 0
	return b
}

// padTo lengthens the extensions to n bytes with a padding extension (RFC 7685).
func padTo(ext []byte, n int) []byte {
	return appendExtension(ext, extensionPadding, make([]byte, n-len(ext)-4))
}

func cipherSuites() []byte {
	return append(grease(),
		0x13, 0x01, 0x13, 0x02, 0x13, 0x03, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30, 0xcc, 0xa9,
		0xcc, 0xa8, 0xc0, 0x13, 0xc0, 0x14, 0x00, 0x9c, 0x00, 0x9d, 0x00, 0x2f, 0x00, 0x35)
}

// extensions returns Chrome's: a GREASE one at either end, the others shuffled.
func extensions(host string, classic bool) []byte {
	group := grease() // of the share too: RFC 8446 §4.2.8 allows no share for a group that is not offered
	groups := bytes.Clone(group)
	if !classic {
		groups = append(groups, 0x11, 0xec)
	}
	groups = append(groups, 0x00, 0x1d, 0x00, 0x17, 0x00, 0x18)
	name := appendVector16([]byte{0}, []byte(host))
	list := [][]byte{
		appendExtension(nil, 0x0000, appendVector16(nil, name)),
		appendExtension(nil, 0x0005, []byte{1, 0, 0, 0, 0}),
		appendExtension(nil, 0x000a, appendVector16(nil, groups)),
		appendExtension(nil, 0x000b, []byte{1, 0}),
		appendExtension(nil, 0x000d, appendVector16(nil, []byte{4, 3, 8, 4, 4, 1, 5, 3, 8, 5, 5, 1, 8, 6, 6, 1})),
		appendExtension(nil, 0x0010, appendVector16(nil, []byte("\x02h2\x08http/1.1"))),
		appendExtension(nil, 0x0012, nil),
		appendExtension(nil, 0x0017, nil),
		appendExtension(nil, 0x001b, []byte{2, 0, 2}),
		appendExtension(nil, 0x0023, nil),
		appendExtension(nil, extensionSupportedVersions, append(append([]byte{6}, grease()...), 3, 4, 3, 3)),
		appendExtension(nil, 0x002d, []byte{1, 1}),
		appendExtension(nil, extensionKeyShare, appendVector16(nil, keyShares(group, classic))),
		appendExtension(nil, 0x44cd, []byte{0, 3, 2, 'h', '2'}),
		appendExtension(nil, 0xff01, []byte{0}),
	}
	if !classic {
		list = append(list, appendExtension(nil, 0xfe0d, greaseECH()))
	}
	mathrand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	first, last := grease(), grease()
	for bytes.Equal(first, last) { // an extension may come once only (RFC 8446 §4.2)
		last = grease()
	}
	b := appendVector16(first, nil)
	b = append(b, bytes.Join(list, nil)...)
	return appendVector16(append(b, last...), []byte{0})
}

func keyShares(grease []byte, classic bool) []byte {
	b := appendVector16(grease, []byte{0})
	if !classic {
		key, err := mlkem.GenerateKey768()
		if err != nil {
			panic("relaytest: " + err.Error())
		}
		hybrid := append(key.EncapsulationKey().Bytes(), x25519Share()...)
		b = appendVector16(append(b, 0x11, 0xec), hybrid)
	}
	return appendVector16(append(b, 0x00, 0x1d), x25519Share())
}

func x25519Share() []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic("relaytest: " + err.Error())
	}
	return key.PublicKey().Bytes()
}

// greaseECH returns an encrypted_client_hello extension that encrypts nothing: HKDF-SHA256, AES-128-GCM, a random
// config id, a point, and a payload of one of the lengths that browsers choose from.
func greaseECH() []byte {
	b := append([]byte{0, 0, 1, 0, 1}, random(1)...)
	b = appendVector16(b, x25519Share())
	return appendVector16(b, random(144+32*mathrand.IntN(4)))
}

// grease returns a reserved code point (RFC 8701).
func grease() []byte {
	v := byte(mathrand.IntN(16))<<4 | 0x0a
	return []byte{v, v}
}

func appendExtension(b []byte, typ uint16, body []byte) []byte {
	return appendVector16(binary.BigEndian.AppendUint16(b, typ), body)
}

func appendVector16(b, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// Recut returns the ClientHello, given as one record, spread over so many records of nearly equal length. The digest
// in it stays that of the single record: the client signed what it wrote, and the tool that cut it knew no key.
func Recut(hello []byte, records int) []byte {
	payload := hello[recordHeaderLen:]
	var b []byte
	for i := range records {
		part := payload[len(payload)*i/records : len(payload)*(i+1)/records]
		b = appendVector16(append(b, hello[:3]...), part)
	}
	return b
}
