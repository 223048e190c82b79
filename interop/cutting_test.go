package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gotd/td/telegram"
	"github.com/gotd/td/tg"

	"mtrelay/relay/relaytest"
)

// cuts are the pieces that a forwarder cuts what passes into, and how many bytes are worth carrying so: less than a
// record header; half of what a mobile network carries; what it carries, so that a ClientHello takes two.
var cuts = []struct{ piece, bytes int }{{1, 17_000}, {700, 1 << 20}, {1400, 1 << 20}}

// everyCut runs a test for each of them.
func everyCut(t *testing.T, test func(t *testing.T, piece, bytes int)) {
	for _, cut := range cuts {
		t.Run(fmt.Sprintf("%d bytes", cut.piece), func(t *testing.T) { test(t, cut.piece, cut.bytes) })
	}
}

// TestCutRelaytest: ClientHellos of all kinds, an echo and a download, in pieces.
func TestCutRelaytest(t *testing.T) {
	kinds := map[string][]relaytest.Option{
		"hybrid":                 nil,
		"hybrid in 2 records":    {relaytest.Records(2)},
		"hybrid in 3 records":    {relaytest.Records(3)},
		"hybrid in 17 records":   {relaytest.Records(17)},
		"hybrid in 64 records":   {relaytest.Records(64)},
		"classic":                {relaytest.Classic()},
		"classic in 64 records":  {relaytest.Classic(), relaytest.Records(64)},
		"init with the data":     {relaytest.LateInit()},
		"data in small records":  {relaytest.RecordSize(3)},
		"data in one big record": {relaytest.RecordSize(65535)},
	}
	s := startScene(t, sceneConfig{})
	everyCut(t, func(t *testing.T, piece, n int) {
		c := startCutter(t, s.addr, piece)
		for name, options := range kinds {
			t.Run(name, func(t *testing.T) {
				echoThrough(t, c, options)
				downloadThrough(t, s, c, options, int64(n))
			})
		}
	})
}

func echoThrough(t *testing.T, c *cutter, options []relaytest.Option) {
	t.Helper()
	client := dialPatiently(t, c.addr(), echoID, options)
	for _, n := range []int64{1, 18, 1500} {
		if err := relaytest.SendPattern(client, seedUp, n); err != nil {
			t.Fatal(err)
		}
		if err := relaytest.CheckPattern(client, seedUp, n); err != nil {
			t.Fatalf("echo of %d bytes: %v", n, err)
		}
	}
}

func downloadThrough(t *testing.T, s *scene, c *cutter, options []relaytest.Option, n int64) {
	t.Helper()
	var records recordSizes
	job := s.onDC(func(c *relaytest.DCConn) error {
		return errors.Join(relaytest.CheckPattern(c, seedUp, 1), relaytest.SendPattern(c, seedDown, n), c.CloseWrite())
	})
	client := dialPatiently(t, c.addr(), job.id, append(slices.Clone(options), relaytest.OnRecord(records.note)))
	err := errors.Join(relaytest.SendPattern(client, seedUp, 1), relaytest.CheckPattern(client, seedDown, n))
	if err != nil {
		t.Fatal(err)
	}
	records.check(t)
	expectEnd(t, client)
	if err := job.result(); err != nil {
		t.Errorf("DC: %v", err)
	}
}

// dialPatiently is dialAt with a client that waits for the reply whatever pieces it comes in. The other clients of
// relaytest refuse one whose reading stops behind the ServerHello, as Android's does; here it is not the proxy that cuts.
func dialPatiently(t *testing.T, addr string, dc int, options []relaytest.Option) *relaytest.Client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return dialAt(t, addr, dc, append(options, relaytest.OverConn(&patient{TCPConn: conn.(*net.TCPConn)}))...)
}

// patient is a connection whose first Read returns three whole records.
type patient struct {
	*net.TCPConn
	greeted bool
}

func (p *patient) Read(b []byte) (n int, err error) {
	if p.greeted {
		return p.TCPConn.Read(b)
	}
	p.greeted = true
	for range 3 {
		var header, payload int
		if header, err = io.ReadFull(p.TCPConn, b[n:][:5]); err != nil {
			return n + header, err
		}
		length := int(binary.BigEndian.Uint16(b[n+3:]))
		payload, err = io.ReadFull(p.TCPConn, b[n+5:][:length])
		if n += header + payload; err != nil {
			return n, err
		}
	}
	return n, nil
}

// TestCutGotd: key exchange, a download in one frame and an upload in one record.
func TestCutGotd(t *testing.T) {
	everyCut(t, func(t *testing.T, piece, n int) {
		s := setStage(t, n, "")
		through := *s
		through.addr = startCutter(t, s.addr, piece).addr()
		resolver := through.through(t, faketls(stageKey))
		err := connectGotd(t, s.dc, resolver, nil, func(ctx context.Context, client *telegram.Client) error {
			api := client.API()
			return errors.Join(fetchWhole(ctx, s.dc, api), saveOnePart(ctx, s.dc, api, min(n, uploadPart)))
		})
		if err != nil {
			t.Error(err)
		}
		checkConnections(t, s.dc, []int16{mainDC})
	})
}

func fetchWhole(ctx context.Context, dc *fakeDC, api *tg.Client) error {
	location := &tg.InputDocumentFileLocation{ID: 1, FileReference: []byte{1}}
	got, err := api.UploadGetFile(ctx, &tg.UploadGetFileRequest{Location: location, Limit: len(dc.file)})
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if file, ok := got.(*tg.UploadFile); !ok || !bytes.Equal(file.Bytes, dc.file) {
		return errors.New("download: other bytes than the DC's")
	}
	return nil
}

func saveOnePart(ctx context.Context, dc *fakeDC, api *tg.Client, n int) error {
	const id = 77
	part := noiseBytes(n, 'p')
	if _, err := api.UploadSaveFilePart(ctx, &tg.UploadSaveFilePartRequest{FileID: id, Bytes: part}); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	if !bytes.Equal(dc.upload(id), part) {
		return errors.New("upload: the DC has other bytes")
	}
	return nil
}

func TestCutMtcute(t *testing.T) {
	everyCut(t, func(t *testing.T, piece, n int) {
		s := setMtcuteStage(t, n, "")
		runMtcute(t, s, startCutter(t, s.addr, piece).addr(), n)
		checkConnections(t, s.dc, []int16{-mtcuteDC, mtcuteDC})
	})
}

func TestCutTDLib(t *testing.T) {
	if !isolated(t) {
		return
	}
	everyCut(t, func(t *testing.T, piece, _ int) {
		s := setStage(t, 0, "")
		if answer := ping(t, startCutter(t, s.addr, piece).addr(), faketls(stageKey)); answer.Error != "" {
			t.Errorf("pingProxy: %d %s", answer.Code, answer.Error)
		}
		checkConnections(t, s.dc, []int16{1})
	})
}

// cutter is a path that carries every byte, FIN and RST, in both directions, in TCP segments of at most so many bytes.
type cutter struct {
	ln    net.Listener
	to    string
	piece int
	done  chan struct{} // closed at the end of the test
	pumps sync.WaitGroup
	moved atomic.Int64 // segments
}

// startCutter forwards to an address until the test ends. It fails the test when the kernel sent fewer segments than
// there were pieces.
func startCutter(t *testing.T, to string, piece int) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, to: to, piece: piece, done: make(chan struct{})}
	c.pumps.Go(func() { c.accept(t) })
	t.Cleanup(func() {
		close(c.done)
		ln.Close()
		c.pumps.Wait()
		if c.moved.Load() == 0 {
			t.Error("nothing passed the forwarder")
		}
		t.Logf("%d segments of up to %d bytes", c.moved.Load(), piece)
	})
	return c
}

func (c *cutter) addr() string { return c.ln.Addr().String() }

func (c *cutter) accept(t *testing.T) {
	for {
		client, err := c.ln.Accept()
		if err != nil {
			return // the end of the test
		}
		server, err := net.Dial("tcp", c.to)
		if err != nil {
			reset(client) // such as the kernel of a host with no such port
			continue
		}
		c.pumps.Go(func() { c.carry(t, client.(*net.TCPConn), server.(*net.TCPConn)) })
	}
}

func (c *cutter) carry(t *testing.T, client, server *net.TCPConn) {
	ended := make(chan struct{})
	defer close(ended)
	c.pumps.Go(func() { // nobody may be kept in a Read
		select {
		case <-c.done:
		case <-ended:
		}
		client.Close()
		server.Close()
	})
	var both sync.WaitGroup
	both.Go(func() { c.pump(t, server, client) })
	both.Go(func() { c.pump(t, client, server) })
	both.Wait()
}

// pump moves one direction to its end. A FIN becomes a FIN, a RST a RST.
func (c *cutter) pump(t *testing.T, to, from *net.TCPConn) {
	raw, err := to.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	pieces := 0
	for buf := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = from.Read(buf)
		for piece := range slices.Chunk(buf[:n], c.piece) {
			if _, failed := to.Write(piece); failed != nil || !c.sent(raw) {
				reset(from)
				return
			}
			pieces++
		}
	}
	if segments, ok := dataSegments(raw); ok && segments < pieces {
		t.Errorf("%d pieces were sent in %d segments", pieces, segments)
	}
	c.moved.Add(int64(pieces))
	if err == io.EOF {
		to.CloseWrite()
	} else {
		reset(to)
	}
}

// sent waits until the kernel has sent all that was written: what is written next cannot join a segment that has gone.
// There is no event for that, so it asks again and again. It is false when the connection or the test is over.
func (c *cutter) sent(raw syscall.RawConn) bool {
	for {
		unsent, dead := 0, false
		if raw.Control(func(fd uintptr) {
			if unsent = unsentBytes(fd); unsent > 0 {
				failure, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
				dead = err != nil || failure != 0
			}
		}) != nil {
			return false
		}
		if unsent == 0 || dead {
			return !dead
		}
		select {
		case <-c.done:
			return false
		default:
			runtime.Gosched()
		}
	}
}

// unsentBytes returns SIOCOUTQNSD of a TCP socket: bytes in the send queue that were never sent.
func unsentBytes(fd uintptr) int {
	const siocOutQNSD = 0x894b // linux/sockios.h
	var n int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, siocOutQNSD, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return 0
	}
	return int(n)
}

// dataSegments returns how many segments with data the kernel has sent on a connection. It is not ok when the connection
// was closed here meanwhile.
func dataSegments(raw syscall.RawConn) (n int, ok bool) {
	const dataSegsOut = 156 // tcpi_data_segs_out in struct tcp_info, linux/tcp.h
	var info [dataSegsOut + 4]byte
	size := uint32(len(info))
	err := raw.Control(func(fd uintptr) {
		_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		ok = errno == 0
	})
	return int(binary.NativeEndian.Uint32(info[dataSegsOut:])), ok && err == nil
}
