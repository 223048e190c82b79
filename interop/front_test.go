package interop

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience ends a visitor that hangs; nothing is measured against it.
const patience = 30 * time.Second

// curl fetches from siteHost as served at addr and tells what came of it: curl's exit code, for each answer its
// status, version, whether it needed a new connection, the certificate, headers and a digest of everything.
func curl(t *testing.T, s *site, addr string, args ...string) string {
	t.Helper()
	const written = `%{stderr}%{response_code} HTTP/%{http_version} connects=%{num_connects} size=%{size_download} %{certs}\n`
	cmd := exec.Command("curl", append([]string{
		"--silent", "--include", "--noproxy", "*", "--max-time", "30", "--cacert", s.certFile,
		"--connect-to", siteHost + ":443:" + addr, "--write-out", written,
	}, args...)...)
	var body, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &body, &notes
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("curl is missing: apt-get install curl (%v)", err)
	}
	content := undated(body.Bytes())
	headers, _, _ := bytes.Cut(content, []byte("\r\n\r\n"))
	return fmt.Sprintf("exit %d\n%s%s\n%d bytes %x", cmd.ProcessState.ExitCode(), &notes, headers, len(content), sha256.Sum256(content))
}

func page(name string) string { return "https://" + siteHost + "/" + name }

func TestCurlSeesTheFront(t *testing.T) {
	s := newSite(t)
	upload := "@" + filepath.Join(s.dir, "1m")
	visits := []struct {
		name, want string // want: what a direct visit reports, so that two equal failures do not pass
		args       []string
	}{
		{"HTTP/2, TLS 1.3", "200 HTTP/2 ", []string{"--http2", "--tlsv1.3", page("4k")}},
		{"HTTP/2, TLS 1.3, 5 MB", "size=5242880", []string{"--http2", "--tlsv1.3", page("5m")}},
		{"HTTP/2, TLS 1.2, 5 MB", "200 HTTP/2 ", []string{"--http2", "--tls-max", "1.2", page("5m")}},
		{"HTTP/2, POST of 1 MB", "200 HTTP/2 ", []string{"--http2", "--data-binary", upload, page("post")}},
		{"HTTP/1.1, TLS 1.3", "200 HTTP/1.1 ", []string{"--http1.1", "--tlsv1.3", page("4k")}},
		{"HTTP/1.1, TLS 1.3, 5 MB", "size=5242880", []string{"--http1.1", "--tlsv1.3", page("5m")}},
		{"HTTP/1.1, TLS 1.2, 5 MB", "200 HTTP/1.1 ", []string{"--http1.1", "--tls-max", "1.2", page("5m")}},
		{"HTTP/1.1, POST of 1 MB", "200 HTTP/1.1 ", []string{"--http1.1", "--data-binary", upload, page("post")}},
		{"HTTP/1.1, several on one connection", "connects=0", []string{"--http1.1", page("64k"), page("4k"), page("missing"), page("1m")}},
		{"HTTP/2, several on one connection", "connects=0", []string{"--http2", page("64k"), page("4k"), page("missing"), page("1m")}},
		{"range", "206 ", []string{"--range", "1000-70000", page("1m")}},
		{"HEAD", "200 ", []string{"--head", page("1m")}},
		{"not found", "404 ", []string{page("missing")}},
		{"TLS 1.1 only", "exit 35", []string{"--tls-max", "1.1", page("4k")}},
	}
	for _, f := range []*origin{startNginx(t, s), startGoOrigin(t, s, originTimer)} {
		_, addr := proxyBefore(t, f.addr)
		for _, v := range visits {
			t.Run(f.name+"/"+v.name, func(t *testing.T) {
				direct, through := curl(t, s, f.addr, v.args...), curl(t, s, addr, v.args...)
				if !strings.Contains(direct, v.want) {
					t.Errorf("direct visit: want %q in\n%s", v.want, direct)
				}
				if direct != through {
					t.Errorf("direct:\n%s\nthrough the proxy:\n%s", direct, through)
				}
			})
		}
	}
}

// steadyLines are those lines of s_client's report that hold no randomness, times or addresses and do not depend on whether
// a session ticket came in before its input ended.
var steadyLines = regexp.MustCompile(`(?m)^(subject=|issuer=|New, |Server public key|Verification|Peer signature|Peer signing|Server Temp Key|ALPN|No ALPN|Early data|Secure Renegotiation|Compression| 0 s:|   i:).*$`)

var pemBlock = regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----`)

// sClient connects with openssl and returns what its report says about the server, certificates included, and
// the answer to one request.
func sClient(t *testing.T, s *site, addr string, args ...string) (report, answer string) {
	t.Helper()
	connect := append([]string{"s_client", "-connect", addr, "-servername", siteHost, "-CAfile", s.certFile}, args...)
	out := openssl(t, "", append(connect, "-showcerts")...)
	report = strings.Join(append(steadyLines.FindAllString(out, -1), pemBlock.FindAllString(out, -1)...), "\n")
	request := "GET /64k HTTP/1.1\r\nHost: " + siteHost + "\r\nConnection: close\r\n\r\n"
	answer = openssl(t, request, append(connect, "-quiet", "-ign_eof")...)
	return report, string(undated([]byte(answer)))
}

// openssl runs the command with input and returns its output. That it may fail is part of what is compared.
func openssl(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("openssl", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("openssl is missing: apt-get install openssl (%v)", err)
	}
	return string(out)
}

func TestOpenSSLSeesTheFront(t *testing.T) {
	s := newSite(t)
	own, err := os.ReadFile(s.certFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*origin{startNginx(t, s), startGoOrigin(t, s, originTimer)} {
		_, addr := proxyBefore(t, f.addr)
		for _, version := range []string{"-tls1_3", "-tls1_2"} {
			t.Run(f.name+"/"+version, func(t *testing.T) {
				report, answer := sClient(t, s, f.addr, version)
				for _, want := range []string{"Verification: OK", strings.TrimSpace(string(own))} {
					if !strings.Contains(report, want) {
						t.Errorf("direct visit: want %q in\n%s", want, report)
					}
				}
				if !strings.HasSuffix(answer, string(pattern(siteFiles["64k"]))) {
					t.Errorf("direct visit: the answer of %d bytes does not end with the file", len(answer))
				}
				throughReport, throughAnswer := sClient(t, s, addr, version)
				if report != throughReport {
					t.Errorf("direct:\n%s\nthrough the proxy:\n%s", report, throughReport)
				}
				if answer != throughAnswer {
					t.Errorf("answers differ: %d bytes directly, %d through the proxy", len(answer), len(throughAnswer))
				}
			})
		}
	}
}

// TestHalfClose has a client that ends its sending side after the request and waits for the whole answer; the front
// begins it only then. (nginx drops such a client by itself, so only net/http serves here.)
func TestHalfClose(t *testing.T) {
	s := newSite(t)
	f := startGoOrigin(t, s, originTimer)
	_, addr := proxyBefore(t, f.addr)
	want := fetchThenFIN(t, s, f.addr)
	if !bytes.HasSuffix(want, pattern(siteFiles["5m"])) {
		t.Fatalf("direct visit: the answer of %d bytes does not end with the file", len(want))
	}
	if got := fetchThenFIN(t, s, addr); !bytes.Equal(got, want) {
		t.Errorf("%d bytes through the proxy, %d directly, or other ones", len(got), len(want))
	}
}

func fetchThenFIN(t *testing.T, s *site, addr string) []byte {
	t.Helper()
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(s.cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: siteHost, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET /after-end HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", siteHost)
	err = errors.Join(conn.CloseWrite(), conn.NetConn().(*net.TCPConn).CloseWrite())
	answer, readErr := io.ReadAll(conn)
	if err := errors.Join(err, readErr); err != nil {
		t.Errorf("%s: %v", addr, err)
	}
	return undated(answer)
}

// TestFrontResetsInTheMiddle fetches a page whose server dies after 64 KiB of it.
func TestFrontResetsInTheMiddle(t *testing.T) {
	s := newSite(t)
	f := startGoOrigin(t, s, originTimer)
	_, addr := proxyBefore(t, f.addr)
	direct, through := curl(t, s, f.addr, "--http1.1", page("reset")), curl(t, s, addr, "--http1.1", page("reset"))
	if !strings.Contains(direct, "size=65536") || strings.Contains(direct, "exit 0") {
		t.Errorf("direct visit:\n%s", direct)
	}
	if direct != through {
		t.Errorf("direct:\n%s\nthrough the proxy:\n%s", direct, through)
	}
}

// rawFront runs serve on every connection to a TCP port until the test ends, and closes what serve leaves open.
func rawFront(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	ln := listen(t, "127.0.0.1:0")
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(patience))
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return ln.Addr().String()
}

// stranger is what the clients of raw fronts send: no TLS, so nothing is waited for.
const stranger = "GET / HTTP/1.1\r\nHost: front.example\r\n\r\n"

func readStranger(c *net.TCPConn) { io.ReadFull(c, make([]byte, len(stranger))) }

// TestEndingsOfTheFront has servers end connections in every way there is.
func TestEndingsOfTheFront(t *testing.T) {
	big := pattern(3 << 20)
	for _, c := range []struct {
		name  string
		end   ending // as seen directly
		size  int
		serve func(*net.TCPConn)
	}{
		{"closes after reading", endFIN, 0, func(c *net.TCPConn) { readStranger(c) }},
		{"closes with bytes unread", endRST, 0, func(c *net.TCPConn) { c.Read(make([]byte, 5)) }},
		{"resets after reading", endRST, 0, func(c *net.TCPConn) { readStranger(c); c.SetLinger(0) }},
		{"resets after an answer", endRST, 64 << 10, func(c *net.TCPConn) { readStranger(c); c.Write(big[:64<<10]); resetOnceSent(c) }},
		{"closes after an answer", endFIN, 3 << 20, func(c *net.TCPConn) { readStranger(c); c.Write(big) }},
		{"ends its side and reads on", endFIN, 4, func(c *net.TCPConn) { readStranger(c); c.Write(big[:4]); c.CloseWrite(); io.Copy(io.Discard, c) }},
		{"speaks and holds", endHeld, 4, func(c *net.TCPConn) { readStranger(c); c.Write(big[:4]); io.Copy(io.Discard, c) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			front := rawFront(t, c.serve)
			_, addr := proxyBefore(t, front)
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, where := range []string{front, addr} {
				wg.Go(func() {
					o, err := observe(where, text(stranger))
					if err != nil || o.end != c.end || !bytes.Equal(o.got, big[:c.size]) {
						t.Errorf("directly %v: %d bytes, then %s (%v); want %d, then %s", where == front, len(o.got), o.end, err, c.size, c.end)
					}
				})
			}
		})
	}
}

// TestFrontClosesAtOnce has a server that closes what it accepts. Whether that shows as FIN or RST is a race
// with the client's bytes, directly as well.
func TestFrontClosesAtOnce(t *testing.T) {
	front := rawFront(t, func(*net.TCPConn) {})
	_, addr := proxyBefore(t, front)
	for range 20 {
		o, err := observe(addr, text(stranger))
		if err != nil {
			t.Fatal(err)
		}
		if o.end == endHeld || len(o.got) > 0 {
			t.Fatalf("%d bytes, then %s", len(o.got), o.end)
		}
	}
}

// TestFrontSeesTheClient looks from the other side: the front gets every byte in order and the client's own ending.
func TestFrontSeesTheClient(t *testing.T) {
	half := clientHello()[:200]
	big := append([]byte(stranger), pattern(2<<20)...)
	hello := clientHello()
	for _, c := range []struct {
		name   string
		sent   []byte
		end    ending
		script []step
	}{
		{"bytes, FIN", big, endFIN, []step{send(big), fin()}},
		{"bytes, RST", []byte(stranger), endRST, []step{text(stranger), pause(100 * time.Millisecond), rst()}},
		{"hello, RST", hello, endRST, []step{send(hello), pause(100 * time.Millisecond), rst()}},
		{"hello, FIN", hello, endFIN, []step{send(hello), fin()}},
		{"half a hello, FIN", half, endFIN, []step{send(half), fin()}},
		{"nothing, FIN", nil, endFIN, []step{fin()}},
		{"small segments, FIN", big[:3000], endFIN, []step{trickle(big[:3000], 7, 0), fin()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan observation, 2)
			front := rawFront(t, func(conn *net.TCPConn) {
				seen <- watch(conn, time.Now())
			})
			_, addr := proxyBefore(t, front)
			<-seen // the proxy's own probe
			for _, where := range []string{front, addr} {
				if _, err := observe(where, c.script...); err != nil {
					t.Fatal(err)
				}
				if o := <-seen; o.end != c.end || !bytes.Equal(o.got, c.sent) {
					t.Errorf("directly %v: the front saw %d bytes, then %s; want %d, then %s", where == front, len(o.got), o.end, len(c.sent), c.end)
				}
			}
		})
	}
}

// rst resets the connection.
func rst() step {
	return func(c *net.TCPConn) error {
		c.SetLinger(0)
		return c.Close()
	}
}

// TestWritingAfterTheEnd looks at a connection that the front has closed: a write is answered with RST where
// nobody reads any more and with nothing where somebody still does.
func TestWritingAfterTheEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  bool // RST
		serve func(*net.TCPConn)
	}{
		{"front closed", true, func(c *net.TCPConn) { readStranger(c); c.Write([]byte("bye")) }},
		{"front ended its side", false, func(c *net.TCPConn) { readStranger(c); c.Write([]byte("bye")); c.CloseWrite(); io.Copy(io.Discard, c) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			front := rawFront(t, c.serve)
			_, addr := proxyBefore(t, front)
			for _, where := range []string{front, addr} {
				if got := resetAfterEnd(t, where); got != c.want {
					t.Errorf("directly %v: RST %v, want %v", where == front, got, c.want)
				}
			}
		})
	}
}

// resetAfterEnd writes to a connection whose peer has sent FIN and tells whether RST comes back.
func resetAfterEnd(t *testing.T, addr string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, stranger)
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal(err)
	}
	for range 10 { // the RST of one write is seen by a later one
		if _, err := conn.Write([]byte("more")); errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// TestFrontComesAndGoes stops the front and starts it again on the same address.
func TestFrontComesAndGoes(t *testing.T) {
	s := newSite(t)
	f := startGoOrigin(t, s, originTimer)
	p, addr := proxyBefore(t, f.addr)
	direct := curl(t, s, f.addr, page("4k"))
	if got := curl(t, s, addr, page("4k")); got != direct {
		t.Errorf("before: %s\ninstead of: %s", got, direct)
	}

	f.stop()
	before := frontDialFailures(t, p)
	for _, script := range [][]step{{text(stranger)}, {send(clientHello())}, {fin()}} {
		o, err := observe(addr, script...)
		if err != nil {
			t.Fatal(err)
		}
		if len(o.got) > 0 || o.end == endHeld {
			t.Errorf("front down: %s, then %s; want no bytes and an end", maskReply(o.got), o.end)
		}
	}
	if counted := frontDialFailures(t, p) - before; counted != 3 {
		t.Errorf("front down: %d of 3 failures counted", counted)
	}

	serveGo(t, s, f.addr, originTimer)
	if got := curl(t, s, addr, page("4k")); got != direct {
		t.Errorf("after: %s\ninstead of: %s", got, direct)
	}
}

// frontDialFailures returns how many clients found no front, by the proxy's own count.
func frontDialFailures(t *testing.T, p *proxy) int {
	t.Helper()
	resp, err := http.Get(p.stats + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	const name = "mtrelay_front_unreachable_total "
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in /metrics:\n%s", name, page)
	return 0
}
