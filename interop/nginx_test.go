package interop

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// siteHost is the site that the secret of these tests names.
const siteHost = "front.example"

// originTimer is how long the fronts wait for a handshake or a request: short, so that a connection which the front
// holds open ends by the front's own timer inside the window in which a test looks.
const originTimer = 2 * time.Second

// siteFiles are what the fronts serve, in bytes.
var siteFiles = map[string]int{"4k": 4 << 10, "64k": 64 << 10, "1m": 1 << 20, "5m": 5 << 20}

// origin is a web site on loopback.
type origin struct {
	name string
	addr string // 127.0.0.1:port
	stop func() // ends it before the test does; may be called again
}

// site is what both fronts show: one certificate and one directory of files.
type site struct {
	dir      string // of the files
	certFile string // PEM
	keyFile  string
	cert     tls.Certificate
}

// makeKey is shared by all tests of a run: generating RSA keys is the slowest thing that they do. RSA because its
// signatures have one length; ECDSA's vary by a byte or two and would make equal answers look different.
var makeKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func newSite(t *testing.T) *site {
	t.Helper()
	key, err := makeKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: siteHost},
		DNSNames:     []string{siteHost},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &site{
		dir: filepath.Join(dir, "files"), certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem"),
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}
	writeFile(t, s.certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writeFile(t, s.keyFile, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range siteFiles {
		writeFile(t, filepath.Join(s.dir, name), pattern(size))
	}
	return s
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pattern returns n bytes that look random and are the same in every run.
func pattern(n int) []byte {
	b := make([]byte, n)
	mrand.NewChaCha8([32]byte{'p', 'a', 't', 't', 'e', 'r', 'n'}).Read(b)
	return b
}

// nginxConf serves files and hands /post to an application server, as real sites do. Nothing of the machine's own
// nginx is touched. Verbs: 1 its directory, 2 user, 3 group, 4 timer in seconds, 5 address, 6 certificate, 7 key,
// 8 files, 9 address of the application.
const nginxConf = `
worker_processes 1;
user %[2]s %[3]s;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    client_header_timeout %[4]ds;
    client_body_timeout %[4]ds;
    keepalive_timeout %[4]ds;
    send_timeout 30s;
    server {
        listen %[5]s ssl http2;
        server_name front.example;
        ssl_certificate %[6]s;
        ssl_certificate_key %[7]s;
        ssl_protocols TLSv1.2 TLSv1.3;
        root %[8]s;
        client_max_body_size 8m;
        location /post { proxy_pass http://%[9]s; }
    }
}
`

// startNginx runs Debian's nginx in front of s until the test ends.
func startNginx(t *testing.T, s *site) *origin {
	t.Helper()
	return runNginx(t, s, nginxConf)
}

func runNginx(t *testing.T, s *site, conf string) *origin {
	t.Helper()
	binary, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatal("nginx is missing: apt-get install nginx-light")
	}
	me, group := whoAmI(t)
	dir := t.TempDir()
	ln := listen(t, "127.0.0.1:0").(*net.TCPListener)
	defer ln.Close()
	socket, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	addr, errorLog := ln.Addr().String(), filepath.Join(dir, "error.log")
	conf = fmt.Sprintf(conf, dir, me, group, int(originTimer.Seconds()), addr, s.certFile, s.keyFile, s.dir, startApplication(t))
	writeFile(t, filepath.Join(dir, "nginx.conf"), []byte(conf))

	cmd := exec.Command(binary, "-p", dir, "-c", "nginx.conf", "-e", errorLog, "-g", "daemon off;")
	// As in an upgrade of nginx the socket is handed down, so no other process can take the port in between, and
	// whoever connects too early waits in the backlog.
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Env = append(os.Environ(), "NGINX=3;")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait() // non-zero is no defect of what is tested here
	})
	t.Cleanup(func() {
		stop()
		if text, err := os.ReadFile(errorLog); t.Failed() && err == nil {
			t.Logf("error log of nginx:\n%s", text)
		}
	})
	return &origin{name: "nginx", addr: addr, stop: stop}
}

// whoAmI returns the user and group that nginx's worker must have to read a test's private files.
func whoAmI(t *testing.T) (name, group string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	g, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return me.Username, g.Name
}

// startApplication serves POST /post over plain HTTP, behind nginx.
func startApplication(t *testing.T) string {
	t.Helper()
	ln := listen(t, "127.0.0.1:0")
	srv := &http.Server{Handler: http.HandlerFunc(answerPost), ErrorLog: log.New(io.Discard, "", 0)}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

// answerPost says what it got, so that both ends of an upload can be compared.
func answerPost(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%d bytes %x\n", n, h.Sum(nil))
}

// startGoOrigin runs net/http in front of s until the test ends. With timer 0 it waits for a peer for ever.
func startGoOrigin(t *testing.T, s *site, timer time.Duration) *origin {
	t.Helper()
	return serveGo(t, s, "127.0.0.1:0", timer)
}

func serveGo(t *testing.T, s *site, addr string, timer time.Duration) *origin {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(s.dir)))
	mux.HandleFunc("/post", answerPost)
	mux.HandleFunc("/reset", answerThenReset)
	mux.HandleFunc("/after-end", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // the client's end was read: an answer before it could be cut by the RST that late bytes bring
		http.ServeFile(w, r, filepath.Join(s.dir, "5m"))
	})
	srv := &http.Server{
		Handler:           mux,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{s.cert}},
		ReadHeaderTimeout: timer,
		IdleTimeout:       timer,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	ln := listen(t, addr)
	go srv.ServeTLS(ln, "", "")
	stop := func() { srv.Close() }
	t.Cleanup(stop)
	return &origin{name: "go", addr: ln.Addr().String(), stop: stop}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// answerThenReset sends 64 KiB of a longer body and then resets the connection, as a crashing server does.
func answerThenReset(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // HTTP/2: not asked for here
		return
	}
	fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", 1<<20)
	buf.Write(pattern(64 << 10))
	buf.Flush()
	resetOnceSent(conn.(*tls.Conn).NetConn().(*net.TCPConn))
}

// resetOnceSent sends RST when the peer's kernel has everything: an earlier one would destroy an unknown part.
func resetOnceSent(conn *net.TCPConn) {
	for unsent(conn) > 0 {
		time.Sleep(time.Millisecond)
	}
	conn.SetLinger(0)
	conn.Close()
}

// unsent returns how many bytes written to conn its peer has not acknowledged; 0 once conn is broken.
func unsent(conn *net.TCPConn) int {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	var n int
	raw.Control(func(fd uintptr) { n = outQueue(fd) })
	return n
}
