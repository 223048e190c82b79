package scout

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// Numbers of our choosing.
const (
	// maxSeen bounds the records that are remembered of one connection: 8 MiB are 512 full ones, or 6,500 of the size
	// that a ramp begins with.
	maxSeen = 16 << 10
	// readAhead is asked from the kernel at once; records that come together share an instant.
	readAhead = 64 << 10
	// farewell is the payload of an encrypted close_notify: alert, content type, AEAD tag. It belongs to the end of a
	// connection, not to a response.
	farewell = 2 + 1 + 16
)

// errEnough ends a connection that brought as much as we want to see.
var errEnough = errors.New("enough seen")

// seen is a record that came down.
type seen struct {
	at     time.Duration // since the connection began
	size   int           // payload
	typ    byte
	ticket bool
}

// ask is a request that left.
type ask struct {
	at    time.Duration // since the connection began
	first int           // record of its response, of down
}

// wire is a connection under crypto/tls that watches the records pass. A Read hands out bytes of one record only, so that
// what crypto/tls finds is known to be in that one.
//
// As net.Conn it takes one Read and one Write at a time, side by side.
type wire struct {
	net.Conn
	began time.Time
	quiet time.Duration // what ends the server's flight
	limit int           // bytes down, to come

	reading sync.Mutex // held by who reads
	leaving atomic.Bool
	kept    bool // Close leaves the connection open: leave is still to come

	buf     []byte // readAhead
	ready   []byte // of buf: read from the kernel, not handed out yet
	err     error  // what came behind it
	inHead  head   // of what was read
	outHead head   // of what was handed out

	shaking bool // the handshake is going on

	mu       sync.Mutex
	down     []seen
	handed   int  // of down, whole
	finished int  // of down, came before our Finished, when that is protected: TLS 1.3
	left     int  // records of down that came before we left; -1: we did not
	eof      bool // the server hung up
	asking   bool // the next bytes up are a request
	asks     []ask
}

func newWire(conn net.Conn, began time.Time, quiet time.Duration, limit int) *wire {
	return &wire{
		Conn: conn, began: began, quiet: quiet, limit: limit,
		buf: make([]byte, readAhead), shaking: true, left: -1,
	}
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	for len(w.ready) == 0 && !w.leaving.Load() {
		if w.err != nil {
			return 0, w.err
		}
		w.err = w.fill()
	}
	if w.leaving.Load() {
		return 0, net.ErrClosed
	}
	n, end := w.outHead.take(w.ready[:min(len(p), len(w.ready))])
	copy(p, w.ready[:n])
	w.ready = w.ready[n:]
	if end {
		w.mu.Lock()
		w.handed++
		w.mu.Unlock()
	}
	return n, nil
}

// fill reads from the kernel what there is, at least a byte.
func (w *wire) fill() error {
	have := copy(w.buf, w.ready)
	n, err := w.Conn.Read(w.buf[have:min(len(w.buf), have+w.limit)])
	w.ready = w.buf[:have+n]
	w.limit -= n
	if !w.note(w.ready[have:], err) || w.limit <= 0 {
		return errEnough
	}
	return err
}

// note remembers the records that end in p, which has just come, and whether it was the last; false when there are too
// many.
func (w *wire) note(p []byte, err error) bool {
	at := time.Since(w.began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.eof = err == io.EOF
	for len(p) > 0 && len(w.down) < maxSeen {
		n, end := w.inHead.take(p)
		p = p[n:]
		if end {
			w.down = append(w.down, seen{at: at, size: w.inHead.size(), typ: w.inHead.typ()})
		}
	}
	return len(w.down) < maxSeen
}

// Write implements net.Conn. p is whole records, as crypto/tls writes them.
//
// Before our Finished it waits until the server's flight has ended: what comes then is an answer to the Finished. Without
// that, a ticket of Go, which belongs to the flight, could not be told from one of OpenSSL.
func (w *wire) Write(p []byte) (int, error) {
	if w.leaving.Load() || w.kept && len(p) == tlsfront.RecordHeaderLen+farewell { // Telegram's clients take no leave
		return len(p), nil
	}
	if carriesData(p) {
		if w.shaking {
			w.settle()
			w.finish()
		}
		w.sent()
	}
	return w.Conn.Write(p)
}

func (w *wire) settle() {
	for w.err == nil && len(w.ready) < len(w.buf) {
		_ = w.SetReadDeadline(time.Now().Add(w.quiet))
		err := w.fill()
		_ = w.SetReadDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		w.err = err
	}
}

func (w *wire) finish() {
	w.mu.Lock()
	w.finished = len(w.down)
	w.mu.Unlock()
}

// sent takes the time of a request that goes up.
func (w *wire) sent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking {
		w.asking = false
		w.asks = append(w.asks, ask{time.Since(w.began), len(w.down)})
	}
}

// ask says that what goes up next is a request.
func (w *wire) ask() {
	w.mu.Lock()
	w.asking = true
	w.mu.Unlock()
}

// Put implements tls.ClientSessionCache: crypto/tls calls it while it is at the record that was handed out last. A
// configuration without a cache would not ask for tickets, and get none.
func (w *wire) Put(string, *tls.ClientSessionState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handed > 0 && w.handed <= len(w.down) { // else it is behind the records that are kept
		w.down[w.handed-1].ticket = true
	}
}

// Get implements tls.ClientSessionCache: every connection is a new visitor's.
func (w *wire) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

// bytes returns how many came down, records that are whole.
func (w *wire) bytes() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.down {
		n += tlsfront.RecordHeaderLen + s.size
	}
	return n
}

// trace returns what was seen behind the handshake, once nobody reads any more: the tickets that came first, and the
// responses.
func (w *wire) trace() (bursts []doppel.Burst, tickets []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	down := w.down
	if w.left >= 0 {
		down = down[:w.left]
	}
	if n := len(down); n > 0 && w.eof && down[n-1].size == farewell {
		down = down[:n-1]
	}
	start := w.finished
	for ; start < len(down) && down[start].ticket; start++ {
		tickets = append(tickets, down[start].size)
	}
	for i, a := range w.asks {
		lo, hi := max(a.first, start), len(down)
		if i == 0 { // what a server says before it is asked, SETTINGS of HTTP/2 above all
			lo = start
		}
		if i+1 < len(w.asks) {
			hi = min(hi, w.asks[i+1].first)
		}
		if records := dataRecords(down[min(lo, hi):hi]); len(records) > 0 {
			cut := i == len(w.asks)-1 && w.err == errEnough
			bursts = append(bursts, doppel.Burst{Asked: a.at, Records: records, Cut: cut})
		}
	}
	return bursts, tickets
}

// Close implements net.Conn.
func (w *wire) Close() error {
	if w.kept {
		return nil
	}
	return w.Conn.Close()
}

// ending is how a server ended a connection.
type ending struct {
	clientFirst bool // behind our FIN
	said        tlsfront.Farewell
}

// leave ends the connection as Telegram's clients do, with a bare FIN, and returns what the server does then. It waits for the
// server's end as long as patience, before that FIN if serverFirst.
func (w *wire) leave(serverFirst bool, patience time.Duration) (e ending) {
	w.leaving.Store(true)
	_ = w.SetReadDeadline(time.Unix(1, 0)) // whoever reads is to return
	w.reading.Lock()
	defer w.reading.Unlock()
	defer w.Conn.Close()
	w.mu.Lock()
	w.left = len(w.down)
	w.mu.Unlock()
	if serverFirst || w.said() { // whoever read that did not read on to the FIN
		w.drain(patience)
	}
	if e.clientFirst = !w.eof; e.clientFirst {
		c, ok := w.Conn.(interface{ CloseWrite() error })
		if !ok || c.CloseWrite() != nil {
			return e
		}
		w.drain(patience)
	}
	e.said = w.farewell()
	return e
}

// drain reads to the server's end, if it comes in time.
func (w *wire) drain(patience time.Duration) {
	if errors.Is(w.err, os.ErrDeadlineExceeded) {
		w.err = nil
	}
	_ = w.SetReadDeadline(time.Now().Add(patience))
	for w.err == nil {
		w.ready = nil
		w.err = w.fill()
	}
}

// farewell says what came before the server's FIN.
func (w *wire) farewell() tlsfront.Farewell {
	switch {
	case !w.eof:
		return tlsfront.FarewellUnknown
	case w.said():
		return tlsfront.FarewellSaid
	}
	return tlsfront.FarewellOmitted
}

// said reports whether the last record is a farewell.
func (w *wire) said() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.down)
	return n > 0 && w.down[n-1].size == farewell
}

// dataRecords leaves out what TLS 1.2 sends in the clear, and lengths that a model has no use for.
func dataRecords(down []seen) (records []doppel.Record) {
	for _, s := range down {
		if s.typ == tlsfront.RecordApplicationData && s.size >= tlsfront.MinRecord && s.size <= tlsfront.MaxRecord {
			records = append(records, doppel.Record{At: s.at, Size: s.size})
		}
	}
	return records
}

// carriesData reports whether there is application data, be it only in name, among whole records.
func carriesData(p []byte) bool {
	for len(p) >= tlsfront.RecordHeaderLen {
		if p[0] == tlsfront.RecordApplicationData {
			return true
		}
		p = p[min(len(p), tlsfront.RecordHeaderLen+int(binary.BigEndian.Uint16(p[3:]))):]
	}
	return false
}

// head finds the records in a stream of bytes, cut anywhere.
type head struct {
	b    [tlsfront.RecordHeaderLen]byte // of the current record, or the last one between two
	have int                            // bytes of it; 0 between two
	rest int                            // payload bytes to come, once the header is whole
}

// take takes bytes of p, which is not empty, as far as the current record goes; end when that is over.
func (h *head) take(p []byte) (n int, end bool) {
	if h.have < len(h.b) {
		n = copy(h.b[h.have:], p)
		if h.have += n; h.have < len(h.b) {
			return n, false
		}
		h.rest = h.size()
	}
	k := min(h.rest, len(p)-n)
	if h.rest -= k; h.rest > 0 {
		return n + k, false
	}
	h.have = 0
	return n + k, true
}

func (h *head) typ() byte { return h.b[0] }
func (h *head) size() int { return int(binary.BigEndian.Uint16(h.b[3:])) }
