package interop

import (
	"bytes"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mtrelay/relay/relaytest"
)

// tapped is a connection that keeps what passes it.
type tapped struct {
	*net.TCPConn
	hello []byte // written first
	got   []byte // read
}

func dialTapped(t *testing.T, addr string, control func(network, address string, c syscall.RawConn) error) *tapped {
	t.Helper()
	d := net.Dialer{Control: control}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return &tapped{TCPConn: conn.(*net.TCPConn)}
}

func (c *tapped) Write(p []byte) (int, error) {
	if c.hello == nil {
		c.hello = bytes.Clone(p)
	}
	return c.TCPConn.Write(p)
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.got = append(c.got, p[:n]...)
	return n, err
}

// answers are what the DC sends at a time: the shortest that it has to say, a quick ack and an error, and what lies
// around the sizes of records, of several records and of the proxy's reads, above all a few bytes more than whole ones.
var answers = slices.Concat(
	[]int{1, 4, 8, 17, 18, 19, 23, 2878, 10240, 16383, 16384, 16385, 16640},
	near(16401), near(2*16401), near(3*16401), near(4*16401), []int{65483, 65484, 65536, 300_000},
)

func near(n int) []int { return []int{n - 1, n, n + 1, n + 4, n + 17, n + 18} }

// TestEveryAppReadsTheRelay: what the proxy sends from its first byte to its FIN, read by every app in pieces of many
// sizes. All of them have to pass on the same bytes, those that were in the records.
func TestEveryAppReadsTheRelay(t *testing.T) {
	bothDownlinks(t, func(t *testing.T, s *scene) {
		conn, reply := converse(t, s)
		stream := conn.got[reply:]
		want := payloads(t, stream)
		for _, kind := range apps {
			for _, piece := range []int{1, 4, 5, 6, 18, 700, 1448, 16384, len(stream)} {
				a := kind.start(sceneKey, conn.hello)
				err := takes(a, conn.got[:reply])
				for chunk := range slices.Chunk(stream, piece) {
					err = errors.Join(err, a.recv(chunk))
				}
				if err != nil || !bytes.Equal(a.data(), want) {
					t.Errorf("%s, reading %d bytes at a time: %v; %d bytes of %d, or others",
						kind.name, piece, err, len(a.data()), len(want))
				}
			}
		}
	})
}

// converse has a client ask for every one of the answers, wait for it and check it, and then for the end. It returns
// what passed and the length of the reply to the hello.
func converse(t *testing.T, s *scene) (conn *tapped, reply int) {
	t.Helper()
	job := s.onDC(func(c *relaytest.DCConn) error {
		for i, n := range answers {
			if err := relaytest.CheckPattern(c, seedUp, 1); err != nil {
				return err
			}
			if _, err := c.Write(noiseBytes(n, byte(i))); err != nil {
				return err
			}
		}
		return c.CloseWrite()
	})
	var records recordSizes
	conn = dialTapped(t, s.addr, nil)
	client := s.dial(t, job.id, relaytest.OverConn(conn), relaytest.OnRecord(records.note))
	for i, n := range answers {
		records = records[:0]
		if err := relaytest.SendPattern(client, seedUp, 1); err != nil {
			t.Fatal(err)
		}
		if err := readNoise(client, n, byte(i)); err != nil {
			t.Fatalf("answer of %d bytes: %v", n, err)
		}
		if slices.Max(records) > 16401 || slices.Min(records) < min(n, 18) {
			t.Errorf("answer of %d bytes in records of %d: in TLS 1.3 they have 18 to 16401 bytes", n, records)
		}
	}
	expectEnd(t, client)
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
	return conn, len(client.Reply())
}

func readNoise(c *relaytest.Client, n int, seed byte) error {
	got := make([]byte, 0, n)
	for len(got) < n {
		m, err := c.Read(got[len(got):n])
		if got = got[:len(got)+m]; err != nil {
			return err
		}
	}
	if !bytes.Equal(got, noiseBytes(n, seed)) {
		return errors.New("other bytes")
	}
	return nil
}

// payloads returns what is in the records that stream consists of.
func payloads(t *testing.T, stream []byte) (all []byte) {
	t.Helper()
	for rest := stream; len(rest) > 0; {
		if len(rest) < headerLen || len(rest) < headerLen+lengthAt(rest, 3) {
			t.Fatalf("%d bytes of a record at the end", len(rest))
		}
		end := headerLen + lengthAt(rest, 3)
		all = append(all, rest[headerLen:end]...)
		rest = rest[end:]
	}
	return all
}

// TestReplySuitsThePath: clients whose kernels announce an MSS around the length of a hybrid ServerHello. Where a
// segment of the reply would end in the bytes that Android's app cannot do without, the answer has to be a shorter one.
func TestReplySuitsThePath(t *testing.T) {
	s := startScene(t, sceneConfig{})
	option := timestampsLen(t)
	short := 0
	for segment := 1205; segment <= 1235; segment++ {
		conn := dialTapped(t, s.addr, announcing(segment+option))
		client := s.dial(t, echoID, relaytest.OverConn(conn))
		reply := client.Reply()
		if err := trip(client); err != nil {
			t.Errorf("segments of %d bytes: %v", segment, err)
		}
		suits(t, sceneKey, conn.hello, reply, segment)
		if lengthAt(reply, 3) < 1000 {
			short++
		}
	}
	if short == 0 || short > 11 {
		t.Errorf("%d answers without the hybrid group, want them for the 11 lengths that need it at most", short)
	}
}

func trip(c *relaytest.Client) error {
	return errors.Join(relaytest.SendPattern(c, seedUp, 100), relaytest.CheckPattern(c, seedUp, 100))
}

// announcing has a socket announce this MSS.
func announcing(mss int) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, mss)
		})
		return errors.Join(failed, err)
	}
}

// timestampsLen returns what the option of that name takes from every segment (RFC 7323), if the kernel uses it.
func timestampsLen(t *testing.T) int {
	t.Helper()
	setting, err := os.ReadFile("/proc/sys/net/ipv4/tcp_timestamps")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(setting)) == "0" {
		return 0
	}
	return 12
}
