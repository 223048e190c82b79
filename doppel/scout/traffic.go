package scout

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"mtrelay/doppel"
)

// Numbers of our choosing.
const (
	maxPage      = 64 << 10 // of a page that is read for its links
	maxRedirects = 4
	maxHeader    = 64 << 10 // of a response

	partingTime = 500 * time.Millisecond // that a server has to end a connection, beside round trips
)

// userAgent is a common visitor's: some sites answer others differently.
const userAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"

// errOneConnection is what net/http gets when it wants a second connection.
var errOneConnection = errors.New("the server closed the connection")

// plan is what one connection is for.
type plan struct {
	urls   []*url.URL
	follow bool          // fetch what the pages show, too
	limit  int           // bytes down
	pause  time.Duration // before the largest is fetched again
	hangUp bool          // ask the server to end the connection
}

// fetched is what one connection showed.
type fetched struct {
	trace    doppel.Trace
	tickets  []int
	ending   ending
	urls     int // of the plan, were asked for
	bytes    int // records that came down
	problems []string
}

// fetch makes one connection and fetches the URLs over it one after the other, as one visitor would: by HTTP/2 if
// the server takes it, else by HTTP/1.1. Then it rests and fetches the largest once more, so that it is seen whether the
// sizes of records begin anew.
//
// A connection that reaches a limit ends there, which is no error as long as there is a response to learn from. Nothing is decompressed,
// and the certificate only reported on.
func fetch(ctx context.Context, address netip.AddrPort, serverName string, p plan, lim limits) (fetched, error) {
	v, err := visit(ctx, address, serverName, p.limit, lim)
	if err != nil {
		return fetched{}, err
	}
	err = v.tour(ctx, p)
	v.leave(ctx, p.hangUp && err == nil)
	v.trace.Bursts, v.tickets = v.wire.trace()
	v.bytes = v.wire.bytes()
	if v.hungUp && len(v.trace.Bursts) > 0 { // its header is another
		v.trace.Bursts = v.trace.Bursts[:len(v.trace.Bursts)-1]
	}
	if v.down {
		v.trace.Bursts = nil
		err = errors.New("the site behind the front is down")
	}
	if len(v.trace.Bursts) == 0 {
		if err == nil {
			err = errors.New("no response")
		}
		return v.fetched, fmt.Errorf("fetch %s: %w", p.urls[0], err)
	}
	return v.fetched, nil
}

// visitor is at the front.
type visitor struct {
	fetched
	wire *wire
	http *http.Transport
	host string

	down    bool     // a response was that of a front whose site does not answer: nothing to learn from
	largest *url.URL // of those fetched
	most    int      // its response's bytes, on the wire
	least   *url.URL // the one with the shortest response
	few     int      // its bytes
	hungUp  bool     // the last response is one that was to end the connection
}

// visit connects and shakes hands.
func visit(ctx context.Context, address netip.AddrPort, serverName string, limit int, lim limits) (*visitor, error) {
	began := time.Now()
	conn, rtt, err := dial(ctx, address, lim.fetchTime)
	if err != nil {
		return nil, err
	}
	v := &visitor{wire: newWire(conn, began, quietAfter(rtt), limit), host: serverName}
	v.trace.RTT = rtt
	secure := tls.Client(v.wire, v.config())
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	v.wire.shaking, v.wire.kept = false, true
	v.http = transport(secure)
	return v, nil
}

func (v *visitor) config() *tls.Config {
	return &tls.Config{
		ServerName:         v.host,
		NextProtos:         []string{"h2", "http/1.1"}, // as in the hellos of Telegram's clients
		ClientSessionCache: v.wire,
		InsecureSkipVerify: true, // certificate looks at it
		VerifyConnection:   v.certificate,
	}
}

// certificate reports what a browser would object to. It refuses nothing: we bring no secrets and believe no answer.
func (v *visitor) certificate(s tls.ConnectionState) error {
	o := x509.VerifyOptions{DNSName: v.host, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := s.PeerCertificates[0].Verify(o); err != nil {
		v.problem("browsers would warn of its certificate: %v", err)
	}
	return nil
}

func (v *visitor) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// transport speaks HTTP over this one connection.
func transport(conn net.Conn) *http.Transport {
	once := make(chan net.Conn, 1)
	once <- conn
	return &http.Transport{
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the request says what may come, and nothing is unpacked
		MaxResponseHeaderBytes: maxHeader,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errOneConnection
			}
		},
	}
}

// leave has the server end the connection, or hangs up, and sees how the server does its part.
func (v *visitor) leave(ctx context.Context, askServer bool) {
	if askServer {
		v.wire.ask()
		if resp, err := v.http.RoundTrip(closing(v.request(ctx, v.least, false))); err == nil {
			v.hungUp = true
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	v.ending = v.wire.leave(askServer, quietAfter(v.trace.RTT)+partingTime)
	v.http.CloseIdleConnections()
}

func closing(r *http.Request) *http.Request {
	r.Close = true
	return r
}

// tour fetches the URLs, what the first of them shows, and the largest again.
func (v *visitor) tour(ctx context.Context, p plan) error {
	for _, u := range p.urls {
		v.urls++
		page, base, err := v.redirected(ctx, u, p.follow)
		if err != nil {
			return err
		}
		for _, a := range assets(page, base) {
			if _, err := v.get(ctx, a, false); err != nil {
				return err
			}
		}
	}
	if !rest(ctx, p.pause) {
		return ctx.Err()
	}
	_, err := v.get(ctx, v.largest, false)
	return err
}

// redirected fetches u, or where that leads on the same site: base.
func (v *visitor) redirected(ctx context.Context, u *url.URL, read bool) (page []byte, base *url.URL, err error) {
	for range maxRedirects {
		a, err := v.get(ctx, u, read)
		if err != nil || a.location == nil {
			return a.page, u, err
		}
		if !sameSite(a.location, v.host) {
			v.problem("%s redirects to %s, another site: better name that in the secret, or set urls", u, a.location.Hostname())
			return nil, u, nil
		}
		u = a.location
	}
	v.problem("%s redirects more than %d times", u, maxRedirects)
	return nil, u, nil
}

// reply is what one request brought.
type reply struct {
	location *url.URL // of a redirection
	page     []byte   // HTML, when it was to be read and is small
}

// get fetches u whatever the status, and remembers the largest response.
func (v *visitor) get(ctx context.Context, u *url.URL, read bool) (reply, error) {
	before := v.wire.bytes()
	v.wire.ask()
	resp, err := v.http.RoundTrip(v.request(ctx, u, read))
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	var r reply
	if r.page, err = readBody(resp, read); err != nil {
		return reply{}, err
	}
	if n := v.wire.bytes() - before; v.largest == nil || n > v.most {
		v.largest, v.most = u, n
	}
	if n := v.wire.bytes() - before; v.least == nil || n < v.few {
		v.least, v.few = u, n
	}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if l, err := u.Parse(resp.Header.Get("Location")); err == nil {
			r.location = l
		}
	}
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		v.down = true
	}
	if resp.StatusCode >= 400 {
		v.problem("%s answers with status %d", u, resp.StatusCode)
	}
	return r, nil
}

// request asks as a browser does, but for a page that is to be read: that must not come compressed.
func (v *visitor) request(ctx context.Context, u *url.URL, read bool) *http.Request {
	encoding := "gzip, deflate, br"
	if read {
		encoding = "identity"
	}
	there := *u
	there.Host = net.JoinHostPort(v.host, "443") // one name for net/http, which knows its connections by it
	r := &http.Request{
		Method: http.MethodGet, URL: &there, Host: u.Host,
		Header: http.Header{
			"User-Agent": {userAgent}, "Accept": {"*/*"}, "Accept-Language": {"en-US,en;q=0.9"}, "Accept-Encoding": {encoding},
		},
	}
	return r.WithContext(ctx)
}

// readBody reads a body to its end as fast as it comes. It returns the page when that is to be read.
func readBody(resp *http.Response, read bool) (page []byte, err error) {
	typ, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if read && typ == "text/html" && resp.Header.Get("Content-Encoding") == "" {
		if page, err = io.ReadAll(io.LimitReader(resp.Body, maxPage+1)); err != nil {
			return nil, err
		}
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return nil, err
	}
	if len(page) > maxPage {
		return nil, nil
	}
	return page, nil
}
