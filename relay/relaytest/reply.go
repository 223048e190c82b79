package relaytest

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

const (
	iosMaxRecord    = 10240 // payload bytes: the iOS client takes no longer record in the reply
	androidMaxReply = 64 << 10
	androidLookLen  = 11 // bytes after the ServerHello record that the Android client expects in one segment with it
)

// errExtra: the Android client hashes all that it has read, so a byte behind the reply makes it refuse.
var errExtra = errors.New("bytes behind the reply, before the client has spoken")

// readReply reads the three records of the reply, and no more: what comes with them is an error.
func readReply(conn net.Conn) ([]byte, error) {
	buf := make([]byte, androidMaxReply+1)
	n := 0
	for {
		m, err := conn.Read(buf[n:])
		n += m
		size, more := replyLen(buf[:n])
		switch {
		case n > androidMaxReply:
			return nil, errors.New("reply over 64 KiB")
		case !more && n == size:
			return bytes.Clone(buf[:n]), nil
		case !more:
			return nil, fmt.Errorf("%w: %d", errExtra, n-size)
		case err == io.EOF:
			return nil, fmt.Errorf("reply ends after %d bytes: %w", n, io.ErrUnexpectedEOF)
		case err != nil:
			return nil, fmt.Errorf("read the reply: %w", err)
		}
		if err := checkSegment(buf[:n]); err != nil {
			return nil, err
		}
	}
}

// replyLen returns the length of the three records that b begins with; more means that b may be too short to tell.
// It stops at the first record of a wrong type: checkReply says what is wrong with it.
func replyLen(b []byte) (n int, more bool) {
	for _, typ := range []byte{typeHandshake, typeChangeCipherSpec, typeApplicationData} {
		if len(b) < n+recordHeaderLen {
			return n, true
		}
		if b[n] != typ {
			return len(b), false
		}
		n += recordHeaderLen + int(binary.BigEndian.Uint16(b[n+3:]))
	}
	return n, len(b) < n
}

// checkSegment refuses a reply whose reading stopped where the Android client would give up: it looks for the
// ChangeCipherSpec and the next header as soon as the ServerHello is whole.
func checkSegment(b []byte) error {
	if len(b) < recordHeaderLen {
		return nil
	}
	end := recordHeaderLen + int(binary.BigEndian.Uint16(b[3:]))
	if len(b) >= end && len(b) < end+androidLookLen {
		return fmt.Errorf("a segment ends %d bytes after the ServerHello record", len(b)-end)
	}
	return nil
}

// checkReply fails unless some client of each kind would accept the reply to this ClientHello (one record), and unless
// an observer would find in it nothing that the ClientHello did not offer.
func checkReply(reply, hello []byte, key [16]byte) error {
	server, rest, err := cutRecord(reply, typeHandshake)
	if err != nil {
		return fmt.Errorf("first record: %w", err)
	}
	ccs, rest, err := cutRecord(rest, typeChangeCipherSpec)
	if err != nil {
		return fmt.Errorf("second record: %w", err)
	}
	data, rest, err := cutRecord(rest, typeApplicationData)
	if err != nil {
		return fmt.Errorf("third record: %w", err)
	}
	if !bytes.Equal(ccs, []byte{1}) || len(rest) != 0 {
		return fmt.Errorf("ChangeCipherSpec % x, %d bytes behind the third record", ccs, len(rest))
	}
	if len(server) > iosMaxRecord || len(data) > iosMaxRecord || len(data) == 0 {
		return fmt.Errorf("records of %d and %d bytes", len(server), len(data))
	}
	if err := checkDigest(reply, hello, key); err != nil {
		return err
	}
	return checkServerHello(server, hello)
}

// cutRecord splits a record of the given type off the front of b.
func cutRecord(b []byte, typ byte) (payload, rest []byte, err error) {
	if len(b) < recordHeaderLen || b[0] != typ || b[1] != 3 || b[2] != 3 {
		return nil, nil, fmt.Errorf("not of type %d, version 3.3: % x", typ, b[:min(len(b), recordHeaderLen)])
	}
	end := recordHeaderLen + int(binary.BigEndian.Uint16(b[3:]))
	if len(b) < end {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return b[recordHeaderLen:end], b[end:], nil
}

func checkDigest(reply, hello []byte, key [16]byte) error {
	if len(reply) < randomAt+32 {
		return io.ErrUnexpectedEOF
	}
	mac := hmac.New(sha256.New, key[:])
	mac.Write(hello[randomAt : randomAt+32])
	mac.Write(reply[:randomAt])
	mac.Write(make([]byte, 32))
	mac.Write(reply[randomAt+32:])
	if !hmac.Equal(mac.Sum(nil), reply[randomAt:randomAt+32]) {
		return errors.New("the digest in the ServerHello does not match: not our proxy, or another secret")
	}
	return nil
}

// serverHello is what an observer reads in a ServerHello of TLS 1.3.
type serverHello struct {
	sessionID []byte
	suite     uint16
	version   uint16
	group     uint16
	share     []byte
}

func checkServerHello(payload, hello []byte) error {
	sh, err := parseServerHello(payload)
	if err != nil {
		return err
	}
	if want := hello[sessionIDAt : sessionIDAt+32]; !bytes.Equal(sh.sessionID, want) {
		return fmt.Errorf("session id % x is not the client's", sh.sessionID)
	}
	if sh.suite < 0x1301 || sh.suite > 0x1303 {
		return fmt.Errorf("cipher suite %04x is none of TLS 1.3 that the client offered", sh.suite)
	}
	if sh.version != 0x0304 {
		return fmt.Errorf("supported_versions names %04x", sh.version)
	}
	return checkShare(sh, len(hello) != classicLen)
}

func checkShare(sh serverHello, hybridOffered bool) error {
	point := sh.share
	switch {
	case sh.group == groupX25519MLKEM768 && hybridOffered && len(sh.share) == 1088+32:
		point = sh.share[1088:]
	case sh.group == groupX25519 && len(sh.share) == 32:
	default:
		return fmt.Errorf("key share of %d bytes for group %04x", len(sh.share), sh.group)
	}
	if _, err := ecdh.X25519().NewPublicKey(point); err != nil {
		return fmt.Errorf("key share: %w", err)
	}
	return nil
}

// parseServerHello reads the handshake message that the payload must hold exactly.
func parseServerHello(payload []byte) (sh serverHello, err error) {
	c := cursor{b: payload}
	head := c.take(4)
	if c.bad || head[0] != 2 || head[1] != 0 || int(binary.BigEndian.Uint16(head[2:])) != len(c.b) {
		return sh, fmt.Errorf("not one ServerHello: % x", head)
	}
	version := c.uint16()
	c.take(32)
	sh.sessionID = c.take(int(c.uint8()))
	sh.suite = c.uint16()
	compression := c.uint8()
	ext := cursor{b: c.take(int(c.uint16()))}
	for len(ext.b) > 0 && !ext.bad {
		sh.extension(ext.uint16(), ext.take(int(ext.uint16())))
	}
	if c.bad || ext.bad || len(c.b) > 0 || version != 0x0303 || compression != 0 {
		return sh, errors.New("malformed ServerHello")
	}
	return sh, nil
}

func (sh *serverHello) extension(typ uint16, body []byte) {
	c := cursor{b: body}
	switch typ {
	case extensionSupportedVersions:
		sh.version = c.uint16()
	case extensionKeyShare:
		sh.group = c.uint16()
		sh.share = c.take(int(c.uint16()))
	}
}

// cursor takes fields off the front of b; once one is missing, bad is set and the rest read as zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return make([]byte, n)
	}
	part := c.b[:n:n]
	c.b = c.b[n:]
	return part
}

func (c *cursor) uint8() uint8   { return c.take(1)[0] }
func (c *cursor) uint16() uint16 { return binary.BigEndian.Uint16(c.take(2)) }
