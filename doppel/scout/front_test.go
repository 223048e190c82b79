package scout

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

const testHost = "front.test"

// quick are limits under which a hostile front is given up in a moment.
var quick = limits{
	flightTime: time.Second, fetchTime: 2 * time.Second, raidTime: 20 * time.Second,
	fetchBytes: 1 << 20, raidBytes: 4 << 20,
	between: time.Millisecond, pauses: []time.Duration{20 * time.Millisecond}, retryFirst: time.Millisecond,
}

// patient are limits that an honest front on a busy machine stays below.
var patient = limits{
	flightTime: 20 * time.Second, fetchTime: 60 * time.Second, raidTime: 120 * time.Second,
	fetchBytes: fetchBytes, raidBytes: raidBytes,
	between: time.Millisecond, pauses: []time.Duration{20 * time.Millisecond}, retryFirst: time.Millisecond,
}

var testCertificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{testHost}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// serve has talk answer each connection to the address that it returns, and waits for all at the end of the test.
func serve(t *testing.T, talk func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				talk(c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// serveTLS shakes hands, and then hangs up when the client does.
func serveTLS(t *testing.T, config *tls.Config) netip.AddrPort {
	config.Certificates = []tls.Certificate{testCertificate()}
	return serve(t, func(c net.Conn) {
		s := tls.Server(c, config)
		if s.Handshake() == nil {
			_, _ = io.Copy(io.Discard, s)
		}
	})
}
