package relaytest

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Option changes how a client greets the proxy or talks to it.
type Option func(*settings)

type settings struct {
	stamp         time.Time
	classic       bool
	records       int
	tag           Tag
	conn          net.Conn
	receiveBuffer int
	recordSize    int
	readBuffer    int
	lateInit      bool
	onRecord      func(n int)
}

func settingsOf(opts []Option) settings {
	set := settings{stamp: time.Now(), records: 1, tag: PaddedIntermediate, recordSize: clientRecord, readBuffer: 32 << 10}
	for _, o := range opts {
		o(&set)
	}
	return set
}

// Stamp signs the ClientHello with this time instead of the present one.
func Stamp(t time.Time) Option { return func(s *settings) { s.stamp = t } }

// Classic sends the ClientHello of older clients: 517 bytes, a key share for X25519 only.
func Classic() Option { return func(s *settings) { s.classic = true } }

// Records sends the ClientHello re-cut over n TLS records, as tools against inspection do; see Recut.
func Records(n int) Option { return func(s *settings) { s.records = n } }

// WithTag names another transport than padded intermediate in the init.
func WithTag(t Tag) Option { return func(s *settings) { s.tag = t } }

// OverConn uses a connection that exists already; Dial's addr is ignored, and Dial closes the connection on failure.
func OverConn(c net.Conn) Option { return func(s *settings) { s.conn = c } }

// ReceiveBuffer sets SO_RCVBUF before the connection is made, so that even its first window is small.
func ReceiveBuffer(bytes int) Option { return func(s *settings) { s.receiveBuffer = bytes } }

// RecordSize bounds the payload of the records that Write sends, 1 to 65535 bytes. Current clients stay below 2878;
// gotd puts a whole message into one record.
func RecordSize(bytes int) Option { return func(s *settings) { s.recordSize = bytes } }

// ReadBuffer sets how many bytes the client reads at a time, 32 KiB if it is not given, and keeps room for.
func ReadBuffer(bytes int) Option { return func(s *settings) { s.readBuffer = bytes } }

// LateInit keeps the ChangeCipherSpec and the init back until the first Write (or Seal), which sends them in one write
// with its own bytes, as TDLib does. Without it Dial sends them.
func LateInit() Option { return func(s *settings) { s.lateInit = true } }

// OnRecord has f called with the payload length of every record that Read meets.
func OnRecord(f func(n int)) Option { return func(s *settings) { s.onRecord = f } }

func (s *settings) connect(ctx context.Context, addr string) (net.Conn, error) {
	if s.conn != nil {
		return s.conn, nil
	}
	var d net.Dialer
	if s.receiveBuffer > 0 {
		d.Control = s.setReceiveBuffer
	}
	return d.DialContext(ctx, "tcp", addr)
}

func (s *settings) setReceiveBuffer(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, s.receiveBuffer)
	}); e != nil {
		return e
	}
	return err
}
