package interop

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Models of how Telegram's apps read what a proxy sends, as of their public sources in 2026: what they wait for, what
// they compare and where they give up. The apps that cannot run here (Desktop, Android, iOS) thus have a say. They know
// nothing of TLS: suite, key share and extensions pass unread.

// app is one app's end of a connection, from the moment when it has sent its ClientHello.
type app interface {
	// recv takes what one read of the socket returned. An error means that the app closes the connection.
	recv(p []byte) error
	// connected reports whether the app has taken the reply and would send its init.
	connected() bool
	// data returns the payload of the records that came behind the reply, as far as the app passed it on.
	data() []byte
}

// apps are all of them; each start takes the secret's key and the ClientHello as the app wrote it, in one record.
var apps = []struct {
	name  string
	start func(key [16]byte, hello []byte) app
}{
	{"Desktop", func(key [16]byte, hello []byte) app { return &desktopApp{greeter: newGreeter(key, hello)} }},
	{"TDLib", func(key [16]byte, hello []byte) app { return &tdlibApp{greeter: newGreeter(key, hello)} }},
	{"iOS", func(key [16]byte, hello []byte) app { return &iosApp{greeter: newGreeter(key, hello), need: headerLen} }},
	{"Android", func(key [16]byte, hello []byte) app { return newAndroidApp(key, hello) }},
}

const (
	headerLen = 5
	// behindHello is what all apps look for behind the ServerHello: a ChangeCipherSpec record and a header.
	behindHello = headerLen + 1 + headerLen
)

// The fixed bytes that apps compare; every header goes on with two bytes of length.
var (
	startOfReply = []byte{recordHandshake, 3, 3}
	startOfCCS   = []byte{recordCCS, 3, 3, 0, 1, 1, recordData, 3, 3}
	startOfData  = []byte{recordData, 3, 3}
)

var (
	errFirstHeader = errors.New("the reply does not begin with a handshake record")
	errSecond      = errors.New("no ChangeCipherSpec and data record behind the ServerHello")
	errDigest      = errors.New("the digest does not match")
	errDataHeader  = errors.New("not a data record")
)

// greeter is what all apps have in common.
type greeter struct {
	key    [16]byte
	random []byte // of the ClientHello
	up     bool
	out    []byte
}

func newGreeter(key [16]byte, hello []byte) greeter {
	return greeter{key: key, random: hello[helloRandomOffset:][:32]}
}

func (g *greeter) connected() bool { return g.up }
func (g *greeter) data() []byte    { return g.out }

// judge compares the digest in reply, which ends the greeting one way or the other.
func (g *greeter) judge(reply []byte) error {
	if len(reply) < helloRandomOffset+32 || !hmac.Equal(replyDigest(g.key, g.random, reply), reply[helloRandomOffset:][:32]) {
		return errDigest
	}
	g.up = true
	return nil
}

// replyDigest is HMAC-SHA256 over the client's random and the reply with its own random zero (PROTOCOL §3).
func replyDigest(key [16]byte, clientRandom, reply []byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	mac.Write(clientRandom)
	mac.Write(reply[:helloRandomOffset])
	mac.Write(make([]byte, 32))
	mac.Write(reply[helloRandomOffset+32:])
	return mac.Sum(nil)
}

// lengthAt returns the length field that ends a header at b[i:].
func lengthAt(b []byte, i int) int { return int(binary.BigEndian.Uint16(b[i:])) }

// replyIn returns the length of the three records that in begins with, 0 while they are not whole. Desktop and TDLib
// both gather bytes and compare each fixed part as soon as it and the length behind it are there.
func replyIn(in []byte) (int, error) {
	if len(in) < headerLen {
		return 0, nil
	}
	if !bytes.HasPrefix(in, startOfReply) {
		return 0, errFirstHeader
	}
	second := headerLen + lengthAt(in, 3)
	if len(in) < second+behindHello {
		return 0, nil
	}
	if !bytes.HasPrefix(in[second:], startOfCCS) {
		return 0, errSecond
	}
	whole := second + behindHello + lengthAt(in, second+behindHello-2)
	if len(in) < whole {
		return 0, nil
	}
	return whole, nil
}

// desktopApp is Telegram Desktop (mtproto_tls_socket.cpp).
type desktopApp struct {
	greeter
	in   []byte
	rest int // payload of the current record still to come
}

func (a *desktopApp) recv(p []byte) error {
	a.in = append(a.in, p...)
	if !a.up {
		n, err := replyIn(a.in)
		if n == 0 {
			return err
		}
		if err := a.judge(a.in[:n]); err != nil {
			return err
		}
		a.in = a.in[n:]
	}
	return a.records()
}

// records passes payload on as it comes. A header is looked at only with a byte behind it.
func (a *desktopApp) records() error {
	for len(a.in) > 0 {
		if a.rest == 0 {
			if len(a.in) <= headerLen {
				return nil
			}
			if !bytes.HasPrefix(a.in, startOfData) {
				return errDataHeader
			}
			a.rest = lengthAt(a.in, 3)
			a.in = a.in[headerLen:]
			continue
		}
		n := min(a.rest, len(a.in))
		a.out = append(a.out, a.in[:n]...)
		a.in, a.rest = a.in[n:], a.rest-n
	}
	return nil
}

// tdlibApp is TDLib (TlsInit.cpp, TlsReaderByteFlow.cpp). Its record reader had a limit of 16,384 bytes in 2019, which
// is gone from 1.8.0 of 2021.
type tdlibApp struct {
	greeter
	in []byte
}

func (a *tdlibApp) recv(p []byte) error {
	a.in = append(a.in, p...)
	if !a.up {
		n, err := replyIn(a.in)
		if n == 0 {
			return err
		}
		if err := a.judge(a.in[:n]); err != nil {
			return err
		}
		a.in = a.in[n:]
	}
	for len(a.in) >= headerLen {
		if !bytes.HasPrefix(a.in, startOfData) {
			return errDataHeader
		}
		end := headerLen + lengthAt(a.in, 3)
		if len(a.in) < end {
			return nil
		}
		a.out = append(a.out, a.in[headerLen:end]...)
		a.in = a.in[end:]
	}
	return nil
}

// iosApp is Telegram for iOS (MTTcpConnection.m): it asks its socket for an exact number of bytes, and again. To ask
// for none is to wait for ever: GCDAsyncSocket does not even answer.
type iosApp struct {
	greeter
	in    []byte
	reply []byte // as far as it was read
	need  int    // bytes that were asked for
	body  bool   // of a data record is what they are
}

// iosMost is the longest record in a reply. Lengths are signed, so that a data record has at most 32,767 bytes.
const iosMost = 10 << 10

func (a *iosApp) recv(p []byte) error {
	a.in = append(a.in, p...)
	for a.need > 0 && len(a.in) >= a.need {
		part := a.in[:a.need]
		a.in = a.in[a.need:]
		step := a.greet
		if a.up {
			step = a.record
		}
		if err := step(part); err != nil {
			return err
		}
	}
	return nil
}

// greet takes the next part of the reply: a header, the ServerHello with all that is behind it, the last payload.
func (a *iosApp) greet(part []byte) error {
	first, second := len(a.reply) == 0, len(a.reply) == headerLen
	a.reply = append(a.reply, part...)
	next := lengthAt(part, len(part)-2)
	switch {
	case first && !bytes.HasPrefix(part, startOfReply):
		return errFirstHeader
	case second && !bytes.HasPrefix(part[len(part)-behindHello:], startOfCCS):
		return errSecond
	case (first || second) && next > iosMost:
		return fmt.Errorf("a record of %d bytes in the reply", next)
	case first:
		a.need = next + behindHello
	case second:
		a.need = next
	default:
		a.need = headerLen
		return a.judge(a.reply)
	}
	return nil
}

func (a *iosApp) record(part []byte) error {
	if a.body {
		a.out = append(a.out, part...)
		a.need, a.body = headerLen, false
		return nil
	}
	if !bytes.HasPrefix(part, startOfData) {
		return errDataHeader
	}
	if a.need, a.body = lengthAt(part, 3), true; a.need > 32767 {
		return fmt.Errorf("a data record of %d bytes", a.need)
	}
	return nil
}

// androidApp is Telegram for Android (tgnet, ConnectionSocket.cpp). It reads the reply into the buffer that its
// ClientHello is in, looks at it anew after each read, and looks before it knows that the bytes have come: a read that
// ends behind the ServerHello has it compare bytes of its own hello. The digest is over all that it has read.
type androidApp struct {
	greeter
	buf [androidMost + 1024]byte
	n   int    // bytes of the reply in it
	in  []byte // behind the reply
}

const androidMost = 64 << 10

func newAndroidApp(key [16]byte, hello []byte) *androidApp {
	a := &androidApp{greeter: newGreeter(key, hello)}
	copy(a.buf[:], hello)
	return a
}

func (a *androidApp) recv(p []byte) error {
	if a.up {
		return a.records(p)
	}
	if a.n+len(p) > androidMost {
		return errors.New("too long a reply")
	}
	a.n += copy(a.buf[a.n:], p)
	if a.n < 16 {
		return nil
	}
	return a.look()
}

func (a *androidApp) look() error {
	if !bytes.HasPrefix(a.buf[:], startOfReply) {
		return errFirstHeader
	}
	second := headerLen + lengthAt(a.buf[:], 3)
	if a.n < second {
		return nil
	}
	if !bytes.HasPrefix(a.buf[second:], startOfCCS) { // come or not
		return errSecond
	}
	last := lengthAt(a.buf[:], second+behindHello-2) // come or not
	if second+behindHello+last > androidMost {
		return fmt.Errorf("a record of %d bytes in the reply", last)
	}
	if a.n < second+behindHello+last {
		return nil
	}
	return a.judge(a.buf[:a.n])
}

// records passes on whole records.
func (a *androidApp) records(p []byte) error {
	a.in = append(a.in, p...)
	for len(a.in) >= headerLen {
		if !bytes.HasPrefix(a.in, startOfData) {
			return errDataHeader
		}
		end := headerLen + lengthAt(a.in, 3)
		if len(a.in) < end {
			break
		}
		a.out = append(a.out, a.in[headerLen:end]...)
		a.in = a.in[end:]
	}
	return nil
}
