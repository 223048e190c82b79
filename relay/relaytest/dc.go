package relaytest

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// DC is a fake data centre: it opens obfuscated2 as Telegram's do, with no secret, and leaves what is inside to the
// test. Close it in the end.
type DC struct {
	listener net.Listener
	mu       sync.Mutex
	open     map[net.Conn]struct{}
	refused  error
	closed   bool
	serving  sync.WaitGroup
}

// ListenDC listens on addr, "127.0.0.1:0" for any free port.
func ListenDC(addr string) (*DC, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("relaytest: %w", err)
	}
	return DCOn(l), nil
}

// DCOn takes a listener, which the DC closes.
func DCOn(l net.Listener) *DC { return &DC{listener: l, open: make(map[net.Conn]struct{})} }

// Addr returns the address as "127.0.0.1:port".
func (d *DC) Addr() string { return d.listener.Addr().String() }

// Accept waits for a connection and for its init. Use either Accept or Serve.
func (d *DC) Accept() (*DCConn, error) {
	conn, err := d.accept()
	if err != nil {
		return nil, err
	}
	return d.greet(conn)
}

// Serve calls handle for every connection whose init is good, each in a goroutine of its own, and closes the connection
// when handle returns. It returns at once and serves until Close.
func (d *DC) Serve(handle func(*DCConn)) {
	d.serving.Go(func() {
		for {
			conn, err := d.accept()
			if err != nil {
				return
			}
			d.serving.Go(func() {
				defer d.forget(conn)
				if c, err := d.greet(conn); err == nil {
					handle(c)
				}
			})
		}
	})
}

func (d *DC) accept() (net.Conn, error) {
	conn, err := d.listener.Accept()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	d.open[conn] = struct{}{}
	return conn, nil
}

func (d *DC) greet(conn net.Conn) (*DCConn, error) {
	c := &DCConn{Conn: conn}
	var init [initLen]byte
	n, err := io.ReadFull(conn, init[:])
	if err == nil {
		c.tag, c.id, c.up, c.down, err = openInit(init)
	}
	if err == nil {
		return c, nil
	}
	err = fmt.Errorf("relaytest: init: %w", err)
	if n > 0 { // a connection without a byte is a client that left while the proxy dialled
		d.refuse(err)
	}
	d.forget(conn)
	return nil, err
}

func (d *DC) refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused == nil && !d.closed {
		d.refused = err
	}
}

func (d *DC) forget(conn net.Conn) {
	d.mu.Lock()
	delete(d.open, conn)
	d.mu.Unlock()
	conn.Close()
}

// Open returns the number of connections that are being served or were accepted and not closed by Close.
func (d *DC) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// Close closes the listener and every connection, waits for the handlers and returns why the first connection was
// refused, if one was: its init ended early or was one that no proxy may send.
func (d *DC) Close() error {
	d.mu.Lock()
	d.closed = true
	err := d.listener.Close()
	for conn := range d.open {
		conn.Close()
	}
	d.mu.Unlock()
	d.serving.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(d.refused, err)
}

// DCConn is a connection as the DC holds it: Read and Write carry plain bytes. One goroutine may read while another
// writes.
type DCConn struct {
	net.Conn
	tag      Tag
	id       int
	up, down cipher.Stream
	wire     []byte // scratch of Write
}

// maxWire bounds the scratch of Write, in bytes.
const maxWire = 64 << 10

// DC returns the id that the init asked for.
func (c *DCConn) DC() int { return c.id }

// Tag returns the transport that the init named.
func (c *DCConn) Tag() Tag { return c.tag }

// Read reads what the client sent.
func (c *DCConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.up.XORKeyStream(p[:n], p[:n])
	return n, err
}

// Write sends p to the client and leaves p as it is.
func (c *DCConn) Write(p []byte) (n int, err error) {
	if len(c.wire) < min(len(p), maxWire) { // no more than is needed: there may be 100,000 that echo a little
		c.wire = make([]byte, min(len(p), maxWire))
	}
	for n < len(p) {
		part := c.wire[:min(len(p)-n, len(c.wire))]
		c.down.XORKeyStream(part, p[n:n+len(part)])
		m, err := c.Conn.Write(part)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// CloseWrite sends a FIN after what was written; Read goes on.
func (c *DCConn) CloseWrite() error { return closeWrite(c.Conn) }

// Echo sends back what it gets until the client's FIN, then closes.
func Echo(c *DCConn) { io.Copy(c, c) }

// Sink takes what it gets until the client's FIN, then closes.
func Sink(c *DCConn) { io.Copy(io.Discard, c) }

// Source returns a handler that sends the first n bytes of the pattern and closes at once. "At once" means that its FIN
// follows its last byte; what the client sends is read to the end first, since closing over unread bytes makes the
// kernel drop what is on its way out.
func Source(seed uint64, n int64) func(*DCConn) {
	return func(c *DCConn) {
		if SendPattern(c, seed, n) == nil && c.CloseWrite() == nil {
			Sink(c)
		}
	}
}
