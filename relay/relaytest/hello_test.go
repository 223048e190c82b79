package relaytest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"
)

var (
	testKey  = [16]byte{0: 1, 7: 0x80, 15: 0xff}
	testHost = "www.example.com"
)

func TestClientHelloDigest(t *testing.T) {
	stamp := time.Unix(1_800_000_000, 0)
	h := ClientHello(testKey, testHost, Stamp(stamp))
	zeroed := slices.Concat(h[:11], make([]byte, 32), h[43:])
	mac := hmac.New(sha256.New, testKey[:])
	mac.Write(zeroed)
	sum := mac.Sum(nil)
	for i := range sum {
		sum[i] ^= h[11+i]
	}
	if !bytes.Equal(sum[:28], make([]byte, 28)) || int64(binary.LittleEndian.Uint32(sum[28:])) != stamp.Unix() {
		t.Errorf("digest opens to % x", sum)
	}
}

func TestClientHelloLength(t *testing.T) {
	for range 50 {
		if n := len(ClientHello(testKey, testHost, Classic())); n != classicLen {
			t.Fatalf("classic: %d bytes", n)
		}
		if n := len(ClientHello(testKey, testHost)); n < 1650 || n > 1988 {
			t.Fatalf("current: %d bytes", n)
		}
	}
}

// The share of the GREASE group is for the one that is offered. A server that checks this, such as OpenSSL, answers
// anything else with an alert (RFC 8446 §4.2.8), and a client's hello is never so.
func TestClientHelloGrease(t *testing.T) {
	for _, opts := range [][]Option{nil, {Classic()}} {
		for range 50 {
			hello := ClientHello(testKey, testHost, opts...)
			groups, shares := extensionOf(t, hello, 0x000a), extensionOf(t, hello, extensionKeyShare)
			if offered, shared := groups[2:4], shares[2:4]; !bytes.Equal(offered, shared) || offered[0]&0xf != 0xa {
				t.Fatalf("the first group is % x, the first share is for % x", offered, shared)
			}
		}
	}
}

// extensionOf returns the body of an extension of a ClientHello of ours.
func extensionOf(t *testing.T, hello []byte, typ uint16) []byte {
	t.Helper()
	c := cursor{b: hello[sessionIDAt+32:]}
	c.take(int(c.uint16())) // suites
	c.take(int(c.uint8()))  // compression
	c.uint16()
	for !c.bad && len(c.b) > 0 {
		found := c.uint16()
		if body := c.take(int(c.uint16())); found == typ {
			return body
		}
	}
	t.Fatalf("extension %04x is missing", typ)
	return nil
}

// crypto/tls reads the ClientHello, and answers it as a site would; our reading of its ServerHello is checked with it.
func TestClientHelloAgainstCryptoTLS(t *testing.T) {
	for name, opts := range map[string][]Option{"current": nil, "classic": {Classic()}} {
		t.Run(name, func(t *testing.T) {
			hello := ClientHello(testKey, testHost, opts...)
			info, reply := serverFlight(t, hello)
			if info.ServerName != testHost || !slices.Equal(info.SupportedProtos, []string{"h2", "http/1.1"}) {
				t.Errorf("SNI %q, ALPN %q", info.ServerName, info.SupportedProtos)
			}
			hybrid := slices.Contains(info.SupportedCurves, tls.X25519MLKEM768)
			if hybrid != (name == "current") || !slices.Contains(info.SupportedCurves, tls.X25519) {
				t.Errorf("groups %v", info.SupportedCurves)
			}
			payload, _, err := cutRecord(reply, typeHandshake)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkServerHello(payload, hello); err != nil {
				t.Errorf("a genuine ServerHello was refused: %v", err)
			}
			if err := checkDigest(reply, hello, testKey); err == nil {
				t.Error("the digest of a genuine site was taken")
			}
		})
	}
}

// serverFlight hands the ClientHello to a crypto/tls server and returns what that read and its first flight.
func serverFlight(t *testing.T, hello []byte) (info tls.ClientHelloInfo, reply []byte) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	config := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}, NextProtos: []string{"h2"}}
	config.GetConfigForClient = func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		info = *i
		return nil, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer server.Close()
		tls.Server(server, config).Handshake()
	}()
	if _, err := client.Write(hello); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8192)
	n, err := io.ReadAtLeast(client, buf, 128)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	<-done
	return info, buf[:n]
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{testHost}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestRecut(t *testing.T) {
	hello := ClientHello(testKey, testHost)
	for _, n := range []int{1, 2, 3, 64} {
		var joined []byte
		records := 0
		for rest := Recut(hello, n); len(rest) > 0; records++ {
			size := int(binary.BigEndian.Uint16(rest[3:]))
			if rest[0] != typeHandshake || size == 0 {
				t.Fatalf("record header % x", rest[:5])
			}
			joined = append(joined, rest[5:5+size]...)
			rest = rest[5+size:]
		}
		if records != n || !bytes.Equal(joined, hello[5:]) {
			t.Errorf("%d records in place of %d, or other contents", records, n)
		}
	}
}

func TestDialRefusesSite(t *testing.T) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		config := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
		tls.Server(server, config).Handshake()
	}()
	if _, err := Dial(t.Context(), "", testKey, testHost, 2, OverConn(client)); err == nil {
		t.Error("a site's handshake was taken for the proxy's")
	}
}

func TestDialCanceled(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		io.ReadFull(server, make([]byte, 100))
		cancel()
	}()
	if _, err := Dial(ctx, "", testKey, testHost, 2, OverConn(client)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
