package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"

	"github.com/gotd/td/crypto"
	"github.com/gotd/td/mtproxy"
	"github.com/gotd/td/mtproxy/obfuscated2"

	"mtrelay/relay/relaytest"
)

// mtcuteDC is one for which mtcute opens as many connections for an upload as it ever does, eight.
const mtcuteDC = 3

func TestMtcute(t *testing.T) {
	for name, config := range map[string]string{
		"pass":      noScout,
		"reencrypt": noScout + "[relay]\ndownlink = \"reencrypt\"\n",
		"shaped":    "",
	} {
		t.Run(name, func(t *testing.T) {
			s := setMtcuteStage(t, downloadSize, config)
			runMtcute(t, s, s.addr, uploadSize)
			checkConnections(t, s.dc, []int16{-mtcuteDC, mtcuteDC})
			if names := s.front.names(); len(names) != 0 && name != "shaped" { // then the scout is there
				t.Errorf("the front saw ClientHellos for %q", names)
			}
		})
	}
}

// setMtcuteStage is setStage with mtcute's padding taken off before the DC.
func setMtcuteStage(t *testing.T, fileSize int, extra string) *stage {
	t.Helper()
	u := startUnpadder(t)
	s := setStage(t, fileSize, fmt.Sprintf("\"%d\" = [%q]\n%s", mtcuteDC, u.Addr(), extra))
	u.dc = s.dc.addr()
	for uint64(crypto.RSAFingerprint(&s.dc.key.RSA.PublicKey))>>60 == 0 {
		s.dc.key.RSA = newKey(t) // mtcute does not find a key whose fingerprint has a leading zero in hex
	}
	return s
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, crypto.RSAKeyBits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// mtcute is what client.js of ./mtcute prints.
type mtcute struct {
	DC   int // as help.getConfig had it
	Down struct {
		Size   int
		SHA256 string
	}
	Up struct {
		ID     int64 `json:",string"`
		Size   int
		SHA256 string
	}
}

// runMtcute has mtcute do the key exchange with the DC, download its file and upload so many bytes, by way of the proxy
// at addr, and compares the bytes.
func runMtcute(t *testing.T, s *stage, addr string, upload int) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "mtcute/client.js",
		host, port, faketls(stageKey), strconv.Itoa(mtcuteDC), strconv.Itoa(upload))
	cmd.Stdin = bytes.NewReader(publicKeyPEM(&s.dc.key.RSA.PublicKey))
	log := &syncBuffer{}
	cmd.Stderr = log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("mtcute: %v (install.sh beside this file installs what is missing)\n%s", err, log)
	}
	if text := log.String(); text != "" {
		t.Logf("mtcute's own log:\n%s", text)
	}
	var printed mtcute
	if err := json.Unmarshal(out, &printed); err != nil {
		t.Fatalf("mtcute printed %q: %v", out, err)
	}
	printed.check(t, s.dc)
}

func publicKeyPEM(key *rsa.PublicKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(key)})
}

// check compares what mtcute got and sent with what the DC has.
func (m *mtcute) check(t *testing.T, dc *fakeDC) {
	t.Helper()
	if m.DC != mtcuteDC {
		t.Errorf("help.getConfig: this_dc is %d", m.DC)
	}
	if m.Down.SHA256 != hexSHA256(dc.file) {
		t.Errorf("download: %d bytes that differ from the DC's %d", m.Down.Size, len(dc.file))
	}
	if stored := dc.upload(m.Up.ID); m.Up.SHA256 != hexSHA256(stored) {
		t.Errorf("upload: the DC has %d bytes that differ from the %d sent", len(stored), m.Up.Size)
	}
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// unpadder stands before the fake DC and takes off the padding of mtcute's frames: 0 to 15 bytes, as
// core.telegram.org/mtproto/mtproto-transports has it. The codec in the fake DC, gotd's, knows 0 to 3.
type unpadder struct {
	*relaytest.DC
	dc string // address; to be set before the first client comes
}

func startUnpadder(t *testing.T) *unpadder {
	t.Helper()
	l, err := relaytest.ListenDC("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &unpadder{DC: l}
	l.Serve(func(c *relaytest.DCConn) {
		if err := u.serve(c); err != nil {
			t.Errorf("before the fake DC: %v", err)
		}
	})
	t.Cleanup(func() { // after the proxy has gone
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// serve carries one connection to the DC. How it ends is no matter here: the client and the DC judge.
func (u *unpadder) serve(c *relaytest.DCConn) error {
	if c.Tag() != relaytest.PaddedIntermediate {
		return fmt.Errorf("transport %x", c.Tag())
	}
	conn, err := net.Dial("tcp", u.dc)
	if err != nil {
		return err
	}
	defer conn.Close()
	dc := obfuscated2.NewObfuscated2(rand.Reader, conn)
	tag := byte(c.Tag())
	if err := dc.Handshake([4]byte{tag, tag, tag, tag}, c.DC(), mtproxy.Secret{}); err != nil {
		return err
	}
	go func() {
		io.Copy(c, dc)
		c.Close()
	}()
	for frame := []byte(nil); err == nil; _, err = dc.Write(frame) {
		if frame, err = readUnpadded(c); err != nil {
			return nil
		}
	}
	return nil
}

// readUnpadded returns the next frame of r without its padding.
func readUnpadded(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.LittleEndian.Uint32(frame))...)
	if _, err := io.ReadFull(r, frame[4:]); err != nil {
		return nil, err
	}
	n := messageLen(frame[4:])
	binary.LittleEndian.PutUint32(frame, uint32(n))
	return frame[:4+n], nil
}

// messageLen returns the length of the MTProto message that b begins with (core.telegram.org/mtproto/description).
func messageLen(b []byte) int {
	const plainHeader = 8 + 8 + 4 // no key, message id, length
	if len(b) >= plainHeader && binary.LittleEndian.Uint64(b) == 0 {
		return min(len(b), plainHeader+int(binary.LittleEndian.Uint32(b[16:])))
	}
	const sealedHeader = 8 + 16 // key id, message key; what follows is in blocks of AES
	return len(b) - (len(b)-sealedHeader)%16
}
