package relaytest

import (
	"crypto/cipher"
	"fmt"
	"net"
)

// Direct is a connection to a DC without a proxy's help, or through a relay that passes bytes on as they are: bare
// obfuscated2. Read and Write carry plain bytes. One goroutine may read while another writes.
type Direct struct {
	net.Conn
	up, down cipher.Stream
	wire     []byte // scratch of Write
}

// NewDirect sends the init over conn, asking for the DC, and returns the connection as the client holds it.
func NewDirect(conn net.Conn, dc int) (*Direct, error) {
	b := randomInit()
	for checkFirstBytes(b) != nil {
		b = randomInit()
	}
	up, down := streams(b, func(key []byte) []byte { return key })
	init := initFor(b, PaddedIntermediate, dc, up)
	if _, err := conn.Write(init[:]); err != nil {
		return nil, fmt.Errorf("relaytest: send the init: %w", err)
	}
	return &Direct{Conn: conn, up: up, down: down}, nil
}

// Read reads what the DC sent.
func (d *Direct) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.down.XORKeyStream(p[:n], p[:n])
	return n, err
}

// Write sends p to the DC and leaves p as it is.
func (d *Direct) Write(p []byte) (n int, err error) {
	if len(d.wire) < min(len(p), maxWire) {
		d.wire = make([]byte, min(len(p), maxWire))
	}
	for n < len(p) {
		part := d.wire[:min(len(p)-n, len(d.wire))]
		d.up.XORKeyStream(part, p[n:n+len(part)])
		m, err := d.Conn.Write(part)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// CloseWrite sends a FIN after what was written; Read goes on.
func (d *Direct) CloseWrite() error { return closeWrite(d.Conn) }
