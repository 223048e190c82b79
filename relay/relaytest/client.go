// Package relaytest is the other half of every test of the proxy: a FakeTLS client and a DC, as net/http/httptest is
// for HTTP. It shares no code with the proxy, so that an error in one of them cannot hide behind the same error in the
// other: where the two disagree, a test fails.
//
// A Client is as strict as the strictest real client in what it accepts and as lax as the laxest in what it sends.
package relaytest

import (
	"bufio"
	"context"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	recordHeaderLen = 5
	maxRecord       = 16640 // payload bytes: the largest record that TLS 1.3 allows (RFC 8446 §5.2)

	typeChangeCipherSpec = 20
	typeHandshake        = 22
	typeApplicationData  = 23
)

const (
	// closeNotifyLen is the payload of an encrypted close_notify alert: 2 bytes, the content type and a 16-byte tag.
	// The proxy ends a session with a record of this length, as a site would; Telegram's clients take it as garbage.
	closeNotifyLen = 19

	// maxFrame is the longest frame, in bytes, that is not absurd to clients.
	maxFrame = 1 << 20

	// clientRecord is the payload of the largest record that current clients send.
	clientRecord = 2878
)

// changeCipherSpec is what a client sends before its first record, for middleboxes' sake (RFC 8446 §D.4).
var changeCipherSpec = []byte{typeChangeCipherSpec, 3, 3, 0, 1, 1}

// Client is a proxied connection as a Telegram client holds it: Read and Write carry what the client and the DC say to
// each other, free of TLS records and obfuscated2. One goroutine may read while another writes.
type Client struct {
	conn     net.Conn
	set      settings
	reply    []byte
	in       *bufio.Reader
	left     int // payload bytes of the current record not yet read
	up, down cipher.Stream
	init     [initLen]byte
	initSent bool
	wire     []byte // scratch of Write
}

// Dial connects to the proxy at addr, greets it with a ClientHello for the given secret, checks the reply and asks for
// the DC. A front's reply, or one that some real client would refuse, is an error. ctx bounds the dial and the
// handshake, not the life of the connection.
func Dial(ctx context.Context, addr string, key [16]byte, host string, dc int, opts ...Option) (*Client, error) {
	set := settingsOf(opts)
	conn, err := set.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, set: set, in: bufio.NewReaderSize(conn, set.readBuffer)}
	c.init, c.up, c.down = newInit(key, set.tag, dc, randomInit())
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.handshake(key, host); err != nil {
		conn.Close()
		return nil, fmt.Errorf("relaytest: %w", errors.Join(err, ctx.Err()))
	}
	return c, nil
}

func (c *Client) handshake(key [16]byte, host string) error {
	hello := clientHello(key, host, c.set)
	if _, err := c.conn.Write(Recut(hello, c.set.records)); err != nil {
		return fmt.Errorf("send the ClientHello: %w", err)
	}
	var err error
	if c.reply, err = readReply(c.conn); err != nil {
		return err
	}
	if err := checkReply(c.reply, hello, key); err != nil {
		return err
	}
	if c.set.lateInit {
		return nil
	}
	if _, err := c.Write(nil); err != nil {
		return fmt.Errorf("send the init: %w", err)
	}
	return nil
}

// Reply returns the proxy's answer to the ClientHello: three records.
func (c *Client) Reply() []byte { return c.reply }

// NetConn returns the connection to the proxy, for tests that reset it or write to it what they got from Seal.
func (c *Client) NetConn() net.Conn { return c.conn }

// Seal appends to dst what Write would send for p: the ChangeCipherSpec and the init if they were not sent yet (for an
// empty p too), then p in records of at most size bytes of payload. The caller must send it, whole and in order.
func (c *Client) Seal(dst, p []byte, size int) []byte {
	if !c.initSent {
		c.initSent = true
		dst = append(dst, changeCipherSpec...)
		dst = appendRecord(dst, c.init[:])
	}
	for len(p) > 0 {
		n := min(len(p), size)
		start := len(dst) + recordHeaderLen
		dst = appendRecord(dst, p[:n])
		c.up.XORKeyStream(dst[start:], dst[start:])
		p = p[n:]
	}
	return dst
}

func appendRecord(dst, payload []byte) []byte {
	dst = append(dst, typeApplicationData, 3, 3)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(payload)))
	return append(dst, payload...)
}

// Write sends p to the DC. It returns early only with an error, and then the number is that of the bytes whose records
// were handed to the kernel whole.
func (c *Client) Write(p []byte) (n int, err error) {
	const atATime = 48 << 10 // of plain text; bounds the scratch
	for first := true; first || n < len(p); first = false {
		part := p[n:min(len(p), n+atATime)]
		c.wire = c.Seal(c.wire[:0], part, c.set.recordSize)
		if _, err := c.conn.Write(c.wire); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Read reads what the DC sent. A record that a real client would refuse is an error; so is EOF inside a record.
// The record with which the proxy ends a session is data like any other here; see ReadEnd.
func (c *Client) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if c.left == 0 {
		if c.left, err = c.nextRecord(); err != nil {
			return 0, err
		}
	}
	n, err = c.in.Read(p[:min(len(p), c.left)])
	c.down.XORKeyStream(p[:n], p[:n])
	c.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// nextRecord reads a record's header and returns the length of its payload.
func (c *Client) nextRecord() (int, error) {
	h, err := c.in.Peek(recordHeaderLen)
	if err != nil {
		if len(h) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	c.in.Discard(recordHeaderLen)
	n := int(binary.BigEndian.Uint16(h[3:]))
	// An empty record hangs the iOS client.
	if h[0] != typeApplicationData || h[1] != 3 || h[2] != 3 || n == 0 || n > maxRecord {
		return 0, fmt.Errorf("relaytest: record header % x", h)
	}
	if c.set.onRecord != nil {
		c.set.onRecord(n)
	}
	return n, nil
}

// ReadEnd reads to the proxy's FIN and fails unless nothing comes before it but, at most, the record that stands for a
// site's close_notify; closeNotify tells whether that came. Its bytes must look like the beginning of a frame of
// ordinary length: at anything else TDLib reports a broken protocol in place of a lost connection.
func (c *Client) ReadEnd() (closeNotify bool, err error) {
	if c.left > 0 {
		return false, fmt.Errorf("relaytest: %d bytes left in the current record", c.left)
	}
	n, err := c.nextRecord()
	if err == io.EOF {
		return false, nil
	}
	if err == nil && n != closeNotifyLen {
		err = fmt.Errorf("relaytest: a record of %d bytes in place of the end", n)
	}
	var farewell [closeNotifyLen]byte
	if err == nil {
		_, err = io.ReadFull(c.in, farewell[:])
	}
	if err != nil {
		return false, err
	}
	c.down.XORKeyStream(farewell[:], farewell[:])
	if n := c.set.tag.frameLen(farewell[:]); n <= closeNotifyLen || n > maxFrame {
		return true, fmt.Errorf("relaytest: the close_notify announces a frame of %d bytes", n)
	}
	if _, err = c.in.ReadByte(); err == io.EOF {
		return true, nil
	}
	return true, fmt.Errorf("relaytest: after the close_notify: %w", orExtra(err))
}

func orExtra(err error) error {
	if err == nil {
		return errors.New("more bytes")
	}
	return err
}

// CloseWrite sends a FIN after what was written; Read goes on. The connection must be one that can, as TCP can.
func (c *Client) CloseWrite() error { return closeWrite(c.conn) }

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("relaytest: a %T cannot be half-closed", c)
	}
	return half.CloseWrite()
}

func (c *Client) Close() error                       { return c.conn.Close() }
func (c *Client) LocalAddr() net.Addr                { return c.conn.LocalAddr() }
func (c *Client) RemoteAddr() net.Addr               { return c.conn.RemoteAddr() }
func (c *Client) SetDeadline(t time.Time) error      { return c.conn.SetDeadline(t) }
func (c *Client) SetReadDeadline(t time.Time) error  { return c.conn.SetReadDeadline(t) }
func (c *Client) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }
