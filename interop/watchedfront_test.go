package interop

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// watchedFront is a web site over TLS that remembers who asked for it. Its certificate is signed by itself.
type watchedFront struct {
	addr string // host:port

	mu     sync.Mutex
	hellos []string // server names of the ClientHellos that arrived
}

// startWatchedFront serves a site for host until the test ends.
func startWatchedFront(t *testing.T, host string) *watchedFront {
	t.Helper()
	f := &watchedFront{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "welcome to "+host+"\n")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that break off are what is tested
	server.TLS = &tls.Config{
		Certificates:       []tls.Certificate{selfSigned(t, host)},
		GetConfigForClient: f.note,
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	f.addr = strings.TrimPrefix(server.URL, "https://")
	return f
}

func (f *watchedFront) note(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hellos = append(f.hellos, hello.ServerName)
	return nil, nil
}

// names returns the server names asked for so far, one per ClientHello.
func (f *watchedFront) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.hellos...)
}

// forget forgets them, such as that of the probe with which a proxy begins.
func (f *watchedFront) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hellos = nil
}

func selfSigned(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{host},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
