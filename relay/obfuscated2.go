package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/bits"
	"slices"
)

// The obfuscated2 init (core.telegram.org/mtproto/mtproto-transports#transport-obfuscation):
//
//	0       8                40          56     60      62     64
//	| random | key           | IV        | tag  | DC id | random |
//	         |<-- reversed: key and IV of the opposite direction
//	                                     |<-- sent encrypted
const (
	initLen      = 64
	initKey      = 8
	initIV       = initKey + aesKeyLen
	initTag      = initIV + aes.BlockSize
	initDC       = initTag + 4
	initTail     = initDC + 2
	aesKeyLen    = 32
	keySecretLen = 16
)

// Transport tags, the same bytes in either byte order.
const (
	tagPaddedIntermediate = 0xdddddddd // all clients with an ee secret
	tagIntermediate       = 0xeeeeeeee
	tagAbridged           = 0xefefefef
)

// First words, little-endian, by which a DC recognises other protocols than obfuscated2.
const (
	wordHEAD     = 'H' | 'E'<<8 | 'A'<<16 | 'D'<<24
	wordPOST     = 'P' | 'O'<<8 | 'S'<<16 | 'T'<<24
	wordGET      = 'G' | 'E'<<8 | 'T'<<16 | ' '<<24
	wordOPTI     = 'O' | 'P'<<8 | 'T'<<16 | 'I'<<24
	wordTLS      = 0x02010316
	byteAbridged = 0xef
)

// maxRolls bounds the search for an init that a DC accepts. One roll fails with a chance of 1 in 256,
// so only a random source that is broken gets here.
const maxRolls = 64

// keyIV is one direction of obfuscated2: an AES-256-CTR key and the IV it starts with.
type keyIV struct {
	key [aesKeyLen]byte
	iv  [aes.BlockSize]byte
}

// keysAt reads the 48 bytes of key and IV in b.
func keysAt(b []byte) (k keyIV) {
	copy(k.key[:], b)
	copy(k.iv[:], b[aesKeyLen:])
	return k
}

// reversed returns the keys of the opposite direction: the 48 bytes, last one first.
func (k keyIV) reversed() keyIV {
	b := k.bytes()
	slices.Reverse(b[:])
	return keysAt(b[:])
}

func (k keyIV) bytes() (b [aesKeyLen + aes.BlockSize]byte) {
	copy(b[:], k.key[:])
	copy(b[aesKeyLen:], k.iv[:])
	return b
}

// mixed returns k as a proxy secret alters it: only the key changes.
func (k keyIV) mixed(secret *[keySecretLen]byte) keyIV {
	var b [aesKeyLen + keySecretLen]byte
	copy(b[:], k.key[:])
	copy(b[aesKeyLen:], secret[:])
	k.key = sha256.Sum256(b[:])
	return k
}

// clientKeys are those of a client's init, and the secret that alters them.
type clientKeys struct {
	sent   *keyIV
	secret *[keySecretLen]byte
}

// up is what the client encrypts with.
func (k clientKeys) up() keyIV { return k.sent.mixed(k.secret) }

// down is what the client decrypts with.
func (k clientKeys) down() keyIV { return k.sent.reversed().mixed(k.secret) }

// stream returns the key stream from its first byte. It keeps about 512 B.
func (k keyIV) stream() cipher.Stream {
	block, err := aes.NewCipher(k.key[:])
	if err != nil {
		panic("relay: internal error: " + err.Error())
	}
	return cipher.NewCTR(block, k.iv[:])
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

// clientInit is what the 64 bytes of a client say.
type clientInit struct {
	tag  uint32
	dc   int           // as the client named it: -32768..32767
	sent keyIV         // as the bytes have it
	up   cipher.Stream // decrypts what follows the init
	down keyIV         // what the client decrypts the downlink with
}

// parseInit reads a client's init, with the secret its ClientHello proved. The bytes are changed in
// place: afterwards they are garbage. ok is false if the tag is none we know, as with another secret.
func parseInit(b *[initLen]byte, secret *[keySecretLen]byte) (c clientInit, ok bool) {
	c.sent = keysAt(b[initKey:])
	keys := clientKeys{&c.sent, secret}
	c.up, c.down = keys.up().stream(), keys.down()
	c.up.XORKeyStream(b[:], b[:])
	c.tag = binary.LittleEndian.Uint32(b[initTag:])
	c.dc = int(int16(binary.LittleEndian.Uint16(b[initDC:])))
	switch c.tag {
	case tagPaddedIntermediate, tagIntermediate, tagAbridged:
		return c, true
	}
	return c, false
}

// dcInit writes into b an init for the DC whose downlink needs no translation, and returns the stream that
// encrypts what follows it. The DC's down keys are the init's key and IV reversed, so we put the
// client's down keys there reversed: the DC then encrypts with the very key stream that the client
// decrypts with. The bytes that DCs are particular about are among the first eight, which stay free.
func (c *clientInit) dcInit(b *[initLen]byte, id int, rnd io.Reader) cipher.Stream {
	keys := c.down.reversed().bytes()
	copy(b[initKey:], keys[:])
	roll(b, b[:initKey], rnd)
	readRandom(rnd, b[initTail:])
	return c.seal(b, id)
}

// dcInitOwn writes into b an init with keys of our own, and returns the streams that encrypt the uplink and
// decrypt the downlink.
func (c *clientInit) dcInitOwn(b *[initLen]byte, id int, rnd io.Reader) (up, down cipher.Stream) {
	roll(b, b[:], rnd)
	down = keysAt(b[initKey:]).reversed().stream()
	return c.seal(b, id), down
}

// seal writes tag and id, encrypts from the tag on, and returns the stream positioned after the init.
func (c *clientInit) seal(b *[initLen]byte, id int) cipher.Stream {
	binary.LittleEndian.PutUint32(b[initTag:], c.tag)
	binary.LittleEndian.PutUint16(b[initDC:], uint16(int16(id)))
	up := keysAt(b[initKey:]).stream()
	var sealed [initLen]byte
	up.XORKeyStream(sealed[:], b[:])
	copy(b[initTag:], sealed[initTag:])
	return up
}

// roll fills free, a part of b, with random bytes until b begins as a DC allows.
func roll(b *[initLen]byte, free []byte, rnd io.Reader) {
	for range maxRolls {
		readRandom(rnd, free)
		if initAllowed(b) {
			return
		}
	}
	panic("relay: internal error: the random source repeats itself")
}

// initAllowed reports whether a DC takes an init that begins like this for obfuscated2.
func initAllowed(b *[initLen]byte) bool {
	if b[0] == byteAbridged || binary.LittleEndian.Uint32(b[4:]) == 0 {
		return false
	}
	switch binary.LittleEndian.Uint32(b[:]) {
	case wordHEAD, wordPOST, wordGET, wordOPTI, wordTLS, tagPaddedIntermediate, tagIntermediate:
		return false
	}
	return true
}

// readRandom fills b. A source that fails is our fault, never a peer's: going on with what it left
// would send predictable keys.
func readRandom(rnd io.Reader, b []byte) {
	if _, err := io.ReadFull(rnd, b); err != nil {
		panic("relay: internal error: random source: " + err.Error())
	}
}
