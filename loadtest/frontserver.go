package loadtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"

	"mtrelay/loadtest/netns"
	"mtrelay/relay/relaytest"
)

// frontServer is the fake front: a web site of the standard library that answers with as much of a pattern as is asked
// for, with a certificate that nobody but its visitors here trusts.
type frontServer struct {
	listener net.Listener
	server   *http.Server
	roots    *x509.CertPool
}

func startFront(h hosts, addr string) (*frontServer, error) {
	if addr == "" {
		addr = h.anyPort(netns.Front)
	}
	certificate, err := selfSigned(ownHost)
	if err != nil {
		return nil, err
	}
	l, err := h.listen(netns.Front, addr)
	if err != nil {
		return nil, fmt.Errorf("the fake front: %w", err)
	}
	f := &frontServer{listener: l, roots: x509.NewCertPool()}
	f.roots.AddCert(certificate.Leaf)
	f.server = &http.Server{
		Handler:   http.HandlerFunc(page),
		ErrorLog:  log.New(io.Discard, "", 0), // scanners are part of the load
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	go f.server.ServeTLS(l, "", "")
	return f, nil
}

func (f *frontServer) addr() string { return f.listener.Addr().String() }

func (f *frontServer) close() error { return f.server.Close() }

// page answers /?seed=S&bytes=N with N bytes of the pattern S.
func page(w http.ResponseWriter, r *http.Request) {
	seed, _ := strconv.ParseUint(r.FormValue("seed"), 10, 64)
	n, _ := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	relaytest.SendPattern(w, seed, n)
}

// selfSigned makes a certificate as sites have them: ECDSA over P-256.
func selfSigned(host string) (c tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return c, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
