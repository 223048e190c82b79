package relaytest

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// translator is the least that stands between a Client and a DC: it takes every ClientHello, answers with reply, and
// relays one connection. It checks nothing and survives nothing.
type translator struct {
	addr  string
	reply func(hello []byte) []byte // without a digest
	dc    string
	end   [][]byte // plain records for the client after the DC's FIN, before its own
}

func startTranslator(t *testing.T, dc string, end ...[]byte) *translator {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr := &translator{addr: l.Addr().String(), dc: dc, reply: plainReply, end: end}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if err := tr.relay(conn.(*net.TCPConn)); err != nil {
				t.Errorf("translator: %v", err)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return tr
}

// plainReply answers with TLS_AES_128_GCM_SHA256 and X25519.
func plainReply(hello []byte) []byte {
	share := append([]byte{0x00, 0x33, 0, 36, 0x00, 0x1d, 0, 32}, x25519Share()...)
	body := slices.Concat([]byte{3, 3}, make([]byte, 32), []byte{32}, hello[sessionIDAt:sessionIDAt+32],
		[]byte{0x13, 0x01, 0}, appendVector16(nil, append([]byte{0x00, 0x2b, 0, 2, 3, 4}, share...)))
	message := append([]byte{2, 0}, appendVector16(nil, body)...)
	b := appendVector16([]byte{typeHandshake, 3, 3}, message)
	b = append(b, changeCipherSpec...)
	return appendRecord(b, random(900))
}

func (tr *translator) relay(client *net.TCPConn) error {
	hello, err := readRecord(client)
	if err != nil {
		return err
	}
	if _, err := client.Write(sign(tr.reply(hello), hello)); err != nil {
		return err
	}
	if _, err := io.ReadFull(client, make([]byte, len(changeCipherSpec))); err != nil {
		return nil // it did not like the reply
	}
	opening, err := readRecord(client)
	if err != nil || len(opening) != recordHeaderLen+initLen {
		return errors.Join(err, errors.New("no record with the init"))
	}
	up, down, id, err := openClientInit([initLen]byte(opening[recordHeaderLen:]))
	if err != nil {
		return err
	}
	server, err := net.Dial("tcp", tr.dc)
	if err != nil {
		return err
	}
	defer server.Close()
	init, serverUp, serverDown := newDCInit(PaddedIntermediate, id)
	if _, err := server.Write(init[:]); err != nil {
		return err
	}
	go func() {
		for {
			rec, err := readRecord(client)
			if err != nil {
				server.(*net.TCPConn).CloseWrite()
				return
			}
			payload := rec[recordHeaderLen:]
			up.XORKeyStream(payload, payload)
			serverUp.XORKeyStream(payload, payload)
			server.Write(payload)
		}
	}()
	for buf := make([]byte, 16401); ; {
		n, err := server.Read(buf)
		serverDown.XORKeyStream(buf[:n], buf[:n])
		down.XORKeyStream(buf[:n], buf[:n])
		if n > 0 {
			client.Write(appendRecord(nil, buf[:n]))
		}
		if err != nil {
			for _, plain := range tr.end {
				down.XORKeyStream(buf, plain)
				client.Write(appendRecord(nil, buf[:len(plain)]))
			}
			return client.CloseWrite()
		}
	}
}

// openClientInit undoes newInit: a client's init is a DC's whose keys went through SHA-256.
func openClientInit(init [initLen]byte) (up, down cipher.Stream, id int, err error) {
	up, down = streams(init, func(key []byte) []byte {
		sum := sha256.Sum256(slices.Concat(key, testKey[:]))
		return sum[:]
	})
	up.XORKeyStream(init[:], init[:])
	if !bytes.Equal(init[56:60], bytes.Repeat([]byte{byte(PaddedIntermediate)}, 4)) {
		return nil, nil, 0, errors.New("the init does not open")
	}
	return up, down, int(int16(binary.LittleEndian.Uint16(init[60:]))), nil
}

func sign(reply, hello []byte) []byte {
	mac := hmac.New(sha256.New, testKey[:])
	mac.Write(hello[randomAt : randomAt+32])
	mac.Write(reply)
	copy(reply[randomAt:], mac.Sum(nil))
	return reply
}

func readRecord(r io.Reader) ([]byte, error) {
	b := make([]byte, recordHeaderLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	b = append(b, make([]byte, binary.BigEndian.Uint16(b[3:]))...)
	_, err := io.ReadFull(r, b[recordHeaderLen:])
	return b, err
}

func startDC(t *testing.T, handle func(*DCConn)) *DC {
	t.Helper()
	dc, err := ListenDC("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dc.Serve(handle)
	t.Cleanup(func() {
		if err := dc.Close(); err != nil {
			t.Error(err)
		}
	})
	return dc
}

func dial(t *testing.T, addr string, dc int, opts ...Option) *Client {
	t.Helper()
	c, err := Dial(t.Context(), addr, testKey, testHost, dc, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEcho(t *testing.T) {
	ids := make(chan int, 10)
	dc := startDC(t, func(c *DCConn) {
		ids <- c.DC()
		Echo(c)
	})
	tr := startTranslator(t, dc.Addr())
	for name, opts := range map[string][]Option{
		"current": nil, "classic": {Classic()}, "late init": {LateInit()}, "long records": {RecordSize(65535)},
		"small buffer": {ReceiveBuffer(4096)},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, tr.addr, -203, opts...)
			const n = 300_000
			sent := make(chan error, 1)
			go func() { sent <- errors.Join(SendPattern(c, 5, n), c.CloseWrite()) }()
			if err := CheckPattern(c, 5, n); err != nil {
				t.Error(err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			if _, err := c.ReadEnd(); err != nil {
				t.Error(err)
			}
			if id := <-ids; id != -203 {
				t.Errorf("the DC was asked for %d", id)
			}
		})
	}
}

func TestSourceEnds(t *testing.T) {
	const n = 100_000
	dc := startDC(t, Source(9, n))
	frame, absurd := make([]byte, closeNotifyLen), bytes.Repeat([]byte{0xff}, closeNotifyLen)
	frame[1] = 4 // 1024 bytes
	for name, want := range map[string]struct {
		end    [][]byte
		notify bool
		err    string
	}{
		"plainly":                 {nil, false, ""},
		"with a close_notify":     {[][]byte{frame}, true, ""},
		"with a frame of 4 GiB":   {[][]byte{absurd}, true, "announces"},
		"with a frame of nothing": {[][]byte{make([]byte, closeNotifyLen)}, true, "announces"},
		"with something longer":   {[][]byte{make([]byte, 20)}, false, "20 bytes"},
		"with two":                {[][]byte{frame, frame}, true, "more bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := startTranslator(t, dc.Addr(), want.end...)
			lengths := 0
			c := dial(t, tr.addr, 2, OnRecord(func(n int) { lengths += n }))
			if err := CheckPattern(c, 9, n); err != nil {
				t.Fatal(err)
			}
			if lengths != n {
				t.Errorf("records of %d bytes were reported", lengths)
			}
			notify, err := c.ReadEnd()
			if notify != want.notify || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
				t.Errorf("close_notify %v, error %v", notify, err)
			}
		})
	}
}

// Every refusal of a reply that some real client would make.
func TestReplyRefused(t *testing.T) {
	tr := startTranslator(t, "127.0.0.1:9")
	for name, spoil := range map[string]func(reply []byte) []byte{
		"a byte behind it":         func(b []byte) []byte { return append(b, 0) },
		"two application records":  func(b []byte) []byte { return appendRecord(b, random(50)) },
		"an empty record":          func(b []byte) []byte { return appendRecord(b[:127+6], nil) },
		"a long record":            func(b []byte) []byte { return appendRecord(b[:127+6], random(iosMaxRecord+1)) },
		"no ChangeCipherSpec":      func(b []byte) []byte { return slices.Delete(b, 127, 127+6) },
		"two ChangeCipherSpecs":    func(b []byte) []byte { return slices.Insert(b, 127, changeCipherSpec...) },
		"another session id":       func(b []byte) []byte { b[sessionIDAt]++; return b },
		"a suite of TLS 1.2":       func(b []byte) []byte { b[76], b[77] = 0xc0, 0x2f; return b },
		"a GREASE suite":           func(b []byte) []byte { b[76], b[77] = 0x1a, 0x1a; return b },
		"a group it did not offer": func(b []byte) []byte { b[92] = 0x17; return b },
		"version 3.1":              func(b []byte) []byte { b[2] = 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			tr.reply = func(hello []byte) []byte { return spoil(plainReply(hello)) }
			if c, err := Dial(t.Context(), tr.addr, testKey, testHost, 2); err == nil {
				c.Close()
				t.Error("it was taken")
			} else {
				t.Log(err)
			}
		})
	}
}
