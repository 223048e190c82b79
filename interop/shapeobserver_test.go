package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// A wireRecord is a TLS record of the downlink as an observer on the path sees it.
type wireRecord struct {
	at   time.Duration // arrival of its last byte, since the connection began
	size int           // payload
	typ  byte
}

// alertRecord is the payload of an encrypted alert.
const alertRecord = 19

// A wiretap is a TCP connection that an observer watches. It is all that the observer has: the same code for a site's visitor and
// for a client of the proxy. Bytes are read and their time is taken at once, whenever whoever uses the connection takes them.
type wiretap struct {
	*net.TCPConn
	began time.Time

	mu       sync.Mutex
	came     sync.Cond
	queue    bytes.Buffer // read from the kernel, not handed out yet
	err      error        // what came behind it
	endedAt  time.Duration
	down     []wireRecord
	header   [5]byte
	have     int // bytes of header
	rest     int // payload to come
	finished int // records of down that came before the client's first encrypted record; -1 before it
	asks     []ask
	done     chan struct{}
}

// ask says that a request leaves, before record `first` of the downlink.
type ask struct {
	at    time.Duration
	first int
}

// tapOn watches a new connection to addr.
func tapOn(ctx context.Context, addr string) (*wiretap, error) {
	began := time.Now()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &wiretap{TCPConn: conn.(*net.TCPConn), began: began, finished: -1, done: make(chan struct{})}
	w.came.L = &w.mu
	w.SetDeadline(began.Add(2 * patience))
	go w.pump()
	return w, nil
}

func (w *wiretap) pump() {
	defer close(w.done)
	buf := make([]byte, 256<<10)
	for {
		n, err := w.TCPConn.Read(buf)
		w.note(buf[:n], err)
		if err != nil {
			return
		}
	}
}

func (w *wiretap) note(p []byte, err error) {
	at := time.Since(w.began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.Write(p)
	if err != nil {
		w.err, w.endedAt = err, at
	}
	for len(p) > 0 {
		if w.have < len(w.header) {
			n := copy(w.header[w.have:], p)
			p = p[n:]
			if w.have += n; w.have < len(w.header) {
				break
			}
			w.rest = int(binary.BigEndian.Uint16(w.header[3:]))
		}
		n := min(w.rest, len(p))
		p = p[n:]
		if w.rest -= n; w.rest == 0 {
			w.down = append(w.down, wireRecord{at, int(binary.BigEndian.Uint16(w.header[3:])), w.header[0]})
			w.have = 0
		}
	}
	w.came.Broadcast()
}

func (w *wiretap) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.Len() == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.came.Wait()
	}
	return w.queue.Read(p)
}

// Write notes when the client's first encrypted record leaves: there the handshake ends.
func (w *wiretap) Write(p []byte) (int, error) {
	if bytes.Contains(p[:min(len(p), 12)], []byte{23, 3, 3}) {
		w.mu.Lock()
		if w.finished < 0 {
			w.finished = len(w.down)
		}
		w.mu.Unlock()
	}
	return w.TCPConn.Write(p)
}

// Close ends the client's side; what the server does then is still watched.
func (w *wiretap) Close() error { return w.TCPConn.CloseWrite() }

func (w *wiretap) asking() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks = append(w.asks, ask{time.Since(w.began), len(w.down)})
}

// A download is what an observer saw of one connection with one response.
type download struct {
	flight  []wireRecord // up to the client's first encrypted record
	records []wireRecord // behind it, without the alert that ends the connection
	bytes   int          // of payload in records
	took    time.Duration
	asked   int           // records that came before the request
	end     string        // how the connection ended
	late    time.Duration // of the end behind the last record
	alert   bool          // it ended with an alert
}

// result closes the connection, after the server has had its time to do so.
func (w *wiretap) result() (d download) {
	w.CloseWrite()
	select {
	case <-w.done:
	case <-time.After(observationWindow):
	}
	w.TCPConn.Close()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	d.end = string(endingOf(w.err))
	if errors.Is(w.err, net.ErrClosed) {
		d.end = string(endHeld)
	}
	d.flight, d.records = w.down[:max(w.finished, 0)], w.down[max(w.finished, 0):]
	if n := len(d.records); n > 0 {
		d.late = w.endedAt - d.records[n-1].at
		if d.alert = d.records[n-1].size == alertRecord; d.alert {
			d.records = d.records[:n-1]
		}
	}
	for _, r := range d.records {
		d.bytes += r.size
	}
	if len(w.asks) > 0 && len(d.records) > 0 {
		d.asked = min(max(w.asks[0].first-w.finished, 0), len(d.records))
		d.took = d.records[len(d.records)-1].at - w.asks[0].at
	}
	return d
}

// sizes of all records behind the handshake, tickets included.
func (d *download) sizes() (all []int) {
	for _, r := range d.records {
		all = append(all, r.size)
	}
	return all
}

// gaps between the records of the response.
func (d *download) gaps() (all []int) {
	for i := d.asked + 1; i < len(d.records); i++ {
		all = append(all, int(d.records[i].at-d.records[i-1].at))
	}
	return all
}

// who ends a connection.
type ender bool

const (
	clientEnds ender = false
	serverEnds ender = true
)

// tcpOnly makes the closing of a TLS connection that of the TCP connection below: no close_notify, as Telegram's clients send none.
type tcpOnly struct{ *wiretap }

func (c tcpOnly) Write(p []byte) (int, error) {
	if len(p) == 5+alertRecord {
		return len(p), nil
	}
	return c.wiretap.Write(p)
}

// visitFront downloads a file from a front as its visitor, who ends a connection as a client of the proxy does. A server
// that is to end one has to be hasty.
func visitFront(ctx context.Context, addr, name string, proto string, who ender) (download, error) {
	w, err := tapOn(ctx, addr)
	if err != nil {
		return download{}, err
	}
	secure := tls.Client(tcpOnly{w}, &tls.Config{ServerName: siteHost, InsecureSkipVerify: true, NextProtos: []string{proto}})
	if err := secure.HandshakeContext(ctx); err != nil {
		w.TCPConn.Close()
		return download{}, err
	}
	err = getFrom(ctx, w, secure, name, who)
	return w.result(), err
}

// visit downloads from the address of the front where connections end like that.
func (f *shapeFront) visit(ctx context.Context, name string, who ender) (download, error) {
	addr := f.addr
	if who == serverEnds {
		addr = f.hasty
	}
	return visitFront(ctx, addr, name, f.proto, who)
}

func getFrom(ctx context.Context, w *wiretap, secure *tls.Conn, name string, who ender) error {
	once := make(chan net.Conn, 1)
	once <- secure
	transport := &http.Transport{
		ForceAttemptHTTP2: true, DisableCompression: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("a second connection")
			}
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+siteHost+"/"+name, nil)
	if err != nil {
		return err
	}
	w.asking()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d with %d bytes", resp.StatusCode, n)
	}
	if who == clientEnds {
		transport.CloseIdleConnections()
	} else {
		<-w.done
	}
	return err
}

// order is what a client of the proxy writes to the DC of these tests: how many bytes it wants, and whether the
// DC is to close behind them.
const orderLen = 200

func newOrder(n int, who ender) []byte {
	o := make([]byte, orderLen)
	binary.BigEndian.PutUint64(o, uint64(n))
	if who == serverEnds {
		o[8] = thenCloses
	}
	return o
}

// What the DC does, in byte 8 of an order.
const (
	thenCloses = 1 // when the connection was idle for hastyTimer
	endlessly  = 2 // and without the cost of content: zeros that nobody encrypts
)

// serveOrders is that DC.
func serveOrders(c *relaytest.DCConn) {
	o := make([]byte, orderLen)
	for {
		if _, err := io.ReadFull(c, o); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(o))
		if o[8] == endlessly {
			for buf := make([]byte, 256<<10); ; {
				if _, err := c.Conn.Write(buf); err != nil {
					return
				}
			}
		}
		if inFrames(n, func(n int64) error { return sendFrame(c, n) }) != nil {
			return
		}
		if o[8] == thenCloses {
			time.Sleep(hastyTimer)
			c.CloseWrite()
			io.Copy(io.Discard, c)
			return
		}
	}
}

// inFrames calls each with the lengths of the frames that n bytes come in: those in which clients fetch files.
func inFrames(n int64, each func(n int64) error) error {
	const most, least = 512 << 10, 64
	for n > 0 {
		k := min(n, most)
		if n-k > 0 && n-k < least {
			k -= least
		}
		if err := each(k); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// sendFrame sends n bytes as a DC sends a message: behind its length, as the padded intermediate transport has it.
func sendFrame(c *relaytest.DCConn, n int64) error {
	_, err := c.Write(binary.LittleEndian.AppendUint32(nil, uint32(n-4)))
	return errors.Join(err, relaytest.SendPattern(c, seedDown, n-4))
}

func checkFrame(c *relaytest.Client, n int64) error {
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	if got := int64(binary.LittleEndian.Uint32(length[:])); got != n-4 {
		return fmt.Errorf("a frame of %d bytes, want %d", got, n-4)
	}
	return relaytest.CheckPattern(c, seedDown, n-4)
}

// visitProxy downloads n bytes of payload as a client of the proxy.
func visitProxy(ctx context.Context, addr string, n int, who ender) (download, error) {
	w, err := tapOn(ctx, addr)
	if err != nil {
		return download{}, err
	}
	c, err := relaytest.Dial(ctx, "", sceneKey, siteHost, shapeDC, relaytest.OverConn(w))
	if err != nil {
		w.TCPConn.Close()
		return download{}, err
	}
	w.asking()
	_, err = c.Write(newOrder(n, who))
	if err == nil {
		err = inFrames(int64(n), func(n int64) error { return checkFrame(c, n) })
	}
	if err == nil && who == serverEnds {
		_, err = c.ReadEnd()
	}
	return w.result(), err
}

// collect makes n downloads, some at once, and returns them in order.
func collect(t *testing.T, n, atOnce int, one func(ctx context.Context, i int) (download, error)) []download {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	all := make([]download, n)
	errs := make([]error, n)
	turn := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range all {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			all[i], errs[i] = one(ctx, i)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("download %d: %v", i, err)
		}
	}
	return all
}
