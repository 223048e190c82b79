package relaytest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// initLen is the length of obfuscated2's init (core.telegram.org/mtproto/mtproto-transports#transport-obfuscation):
//
//	[0:8] random · [8:40] key up · [40:56] IV up · [56:60] tag · [60:62] DC id · [62:64] random
//
// [56:] is sent encrypted with the stream that then goes on with the client's bytes. The down stream's key and IV are
// [8:56] backwards.
const initLen = 64

// Tag is a transport, by the byte that an init repeats four times.
type Tag byte

// The transports that a client can name in its init.
const (
	PaddedIntermediate Tag = 0xdd
	Intermediate       Tag = 0xee
	Abridged           Tag = 0xef
)

// frameLen returns how many bytes the frame at the beginning of b has, its own header included; b holds 4 or more.
func (t Tag) frameLen(b []byte) int {
	length := binary.LittleEndian.Uint32(b)
	switch {
	case t != Abridged:
		return 4 + int(length)
	case b[0] == 0x7f:
		return 4 + 4*int(length>>8)
	}
	return 1 + 4*int(b[0])
}

func randomInit() (b [initLen]byte) {
	rand.Read(b[:])
	return b
}

// newInit returns the init that a client with this secret key sends, made from 64 random bytes, and the client's two
// streams. No first byte is avoided: TDLib does not either when it speaks through FakeTLS.
func newInit(secret [16]byte, tag Tag, dc int, b [initLen]byte) (init [initLen]byte, up, down cipher.Stream) {
	up, down = streams(b, func(key []byte) []byte {
		sum := sha256.Sum256(append(slices.Clone(key), secret[:]...))
		return sum[:]
	})
	return initFor(b, tag, dc, up), up, down
}

// initFor returns the init made from 64 random bytes; up is their stream up, at its beginning, and moves past the init.
func initFor(b [initLen]byte, tag Tag, dc int, up cipher.Stream) (init [initLen]byte) {
	init = b
	copy(b[56:], []byte{byte(tag), byte(tag), byte(tag), byte(tag)})
	binary.LittleEndian.PutUint16(b[60:], uint16(int16(dc)))
	up.XORKeyStream(b[:], b[:])
	copy(init[56:], b[56:])
	return init
}

// openInit reads an init as a DC does: without a secret.
func openInit(init [initLen]byte) (tag Tag, dc int, up, down cipher.Stream, err error) {
	if err := checkFirstBytes(init); err != nil {
		return 0, 0, nil, nil, err
	}
	up, down = streams(init, func(key []byte) []byte { return key })
	up.XORKeyStream(init[:], init[:])
	tag = Tag(init[56])
	for _, b := range init[56:60] {
		if Tag(b) != tag {
			return 0, 0, nil, nil, fmt.Errorf("tag % x", init[56:60])
		}
	}
	if tag != PaddedIntermediate && tag != Intermediate && tag != Abridged {
		return 0, 0, nil, nil, fmt.Errorf("tag % x", init[56:60])
	}
	return tag, int(int16(binary.LittleEndian.Uint16(init[60:]))), up, down, nil
}

// checkFirstBytes refuses what a DC takes for another transport, or for HTTP or TLS.
func checkFirstBytes(init [initLen]byte) error {
	if init[0] == byte(Abridged) {
		return errors.New("init begins like abridged")
	}
	switch string(init[:4]) {
	case "HEAD", "POST", "GET ", "OPTI", "\x16\x03\x01\x02", "\xdd\xdd\xdd\xdd", "\xee\xee\xee\xee":
		return fmt.Errorf("init begins with % x", init[:4])
	}
	if binary.LittleEndian.Uint32(init[4:]) == 0 {
		return errors.New("init begins like full transport")
	}
	return nil
}

// streams returns the two streams of an init, both at their beginning; derive turns the keys in it into those in use.
func streams(init [initLen]byte, derive func(key []byte) []byte) (up, down cipher.Stream) {
	backwards := slices.Clone(init[8:56])
	slices.Reverse(backwards)
	return newCTR(derive(init[8:40]), init[40:56]), newCTR(derive(backwards[:32]), backwards[32:])
}

func newCTR(key, iv []byte) cipher.Stream {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("relaytest: " + err.Error())
	}
	return cipher.NewCTR(block, iv)
}
