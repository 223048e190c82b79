package scout

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"

	"mtrelay/tlsfront"
)

func TestFlightOfGo(t *testing.T) {
	const p256, x25519, hybrid = tls.CurveP256, tls.X25519, tls.X25519MLKEM768
	for _, c := range []struct {
		name    string
		config  *tls.Config
		records int // 0 any
		want    [tlsfront.NumHelloKinds]tlsfront.Flight
	}{
		{"default", &tls.Config{}, 5, [...]tlsfront.Flight{
			{OK: true, Version: 0x304, Group: uint16(hybrid)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
			{OK: true, Version: 0x304, Group: uint16(hybrid)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
		}},
		{"no tickets", &tls.Config{SessionTicketsDisabled: true}, 4, [...]tlsfront.Flight{
			{OK: true, Version: 0x304, Group: uint16(hybrid)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
			{OK: true, Version: 0x304, Group: uint16(hybrid)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
		}},
		{"X25519 only", &tls.Config{CurvePreferences: []tls.CurveID{x25519}}, 5, [...]tlsfront.Flight{
			{OK: true, Version: 0x304, Group: uint16(x25519)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
			{OK: true, Version: 0x304, Group: uint16(x25519)},
		}},
		{"P-256 only", &tls.Config{CurvePreferences: []tls.CurveID{p256}}, 0, [...]tlsfront.Flight{
			{Retry: true, Version: 0x304, Group: uint16(p256)},
			{Retry: true, Version: 0x304, Group: uint16(p256)},
			{Retry: true, Version: 0x304, Group: uint16(p256)},
			{Retry: true, Version: 0x304, Group: uint16(p256)},
		}},
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, 0, [...]tlsfront.Flight{
			{Version: 0x303}, {Version: 0x303}, {Version: 0x303}, {Version: 0x303},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := serveTLS(t, c.config)
			for k := range tlsfront.NumHelloKinds {
				f, err := probeFlight(t.Context(), address, testHost, k, patient)
				if err != nil {
					t.Fatalf("%v: %v", k, err)
				}
				want := c.want[k]
				if f.OK != want.OK || f.Retry != want.Retry || f.Version != want.Version || f.Group != want.Group {
					t.Errorf("%v: %+v, want %+v", k, f, want)
				}
				if want.OK && (len(f.Records) != 1 || len(f.Records[0]) != c.records) {
					t.Errorf("%v: records %v, want one list of %d", k, f.Records, c.records)
				}
				if !want.OK && f.Records != nil {
					t.Errorf("%v: records %v, want none", k, f.Records)
				}
				if f.Version == 0x304 && !f.EchoesSessionID {
					t.Errorf("%v: Go echoes the session id", k)
				}
			}
		})
	}
}

// TestFlightIsWhatCryptoTLSSees compares with the other reader of ServerHellos at hand.
func TestFlightIsWhatCryptoTLSSees(t *testing.T) {
	for _, groups := range [][]tls.CurveID{{tls.X25519MLKEM768, tls.X25519}, {tls.X25519}} {
		address := serveTLS(t, &tls.Config{CurvePreferences: groups})
		conn, err := tls.Dial("tcp", address.String(), &tls.Config{InsecureSkipVerify: true, ServerName: testHost})
		if err != nil {
			t.Fatal(err)
		}
		s := conn.ConnectionState()
		conn.Close()
		f, err := probeFlight(t.Context(), address, testHost, tlsfront.HelloHybrid, patient)
		if err != nil {
			t.Fatal(err)
		}
		if f.Suite != s.CipherSuite || f.Group != uint16(s.CurveID) || f.Version != s.Version {
			t.Errorf("%+v, crypto/tls: suite %04x, group %v, version %04x", f, s.CipherSuite, s.CurveID, s.Version)
		}
		if want := []uint16{extensionSupportedVersions, extensionKeyShare}; !slices.Equal(f.Extensions, want) {
			t.Errorf("extensions %v, want %v", f.Extensions, want)
		}
	}
}

// TestFlightInPieces: an answer does not end inside a record, nor when the next comes in time.
func TestFlightInPieces(t *testing.T) {
	id := [32]byte{1}
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		hello := goldenAnswer(id)
		for _, b := range [][]byte{hello, record(23, 100)[:7], record(23, 100)[7:], record(23, 50)} {
			_, _ = theirs.Write(b)
		}
	}()
	f, err := readFlight(ours, id, maxQuiet)
	if err != nil || !f.OK || !slices.Equal(f.Records[0], []int{100, 50}) {
		t.Errorf("%+v, %v, want records 100 and 50", f, err)
	}
}

func TestUnreachable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	address := serve(t, func(net.Conn) {})
	if _, err := probeFlight(ctx, address, testHost, tlsfront.HelloHybrid, quick); err == nil {
		t.Error("a flight after the end of the context")
	}
}
