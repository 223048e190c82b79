package interop

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/gotd/td/exchange"
	"github.com/gotd/td/proto/codec"
	"github.com/gotd/td/session"
	"github.com/gotd/td/telegram"
	"github.com/gotd/td/telegram/dcs"
	"github.com/gotd/td/telegram/downloader"
	"github.com/gotd/td/telegram/uploader"
	"github.com/gotd/td/tg"
	"github.com/gotd/td/transport"
)

const (
	downloadSize = 8 << 20
	uploadSize   = 2 << 20
	downloadPart = 512 << 10 // what the official clients ask for; the answer is one frame over many records
	uploadPart   = 32 << 10  // gotd puts a frame into one record, so it cannot send 64 KiB over FakeTLS

	clientPatience = 2 * time.Minute // ends a client that hangs
)

const (
	secretHost  = "front.example"
	stageKey    = "00112233445566778899aabbccddeeff"
	strangerKey = "ffeeddccbbaa99887766554433221100"
	mainDC      = 2
	anotherDC   = 4
	mediaDC     = -anotherDC
	manyAtOnce  = 10
)

// faketls returns the ee secret for a key, in hex.
func faketls(key string) string { return "ee" + key + hex.EncodeToString([]byte(secretHost)) }

// stage is a proxy between a front and a fake DC.
type stage struct {
	front *watchedFront
	dc    *fakeDC
	proxy *proxy
	addr  string // where clients dial
}

// setStage puts up front, DC and proxy until the test ends; extra is added to the proxy's configuration.
func setStage(t *testing.T, fileSize int, extra string) *stage {
	t.Helper()
	s := &stage{
		front: startWatchedFront(t, secretHost),
		dc:    startDC(t, fileSize),
		addr:  net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))),
	}
	host, port, err := net.SplitHostPort(s.front.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.proxy = startCheckedProxy(t, fmt.Sprintf(`
secret = %q
bind-to = %q

[domain-fronting]
host = %q
port = %s

[dc]
"*" = [%q]

%s`, faketls(stageKey), s.addr, host, port, s.dc.addr(), extra))
	s.front.forget()
	return s
}

// through returns a resolver that reaches every DC through the proxy, with an ee secret in hex.
func (s *stage) through(t *testing.T, secret string) dcs.Resolver {
	t.Helper()
	raw, err := hex.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := dcs.MTProxy(s.addr, raw, dcs.MTProxyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return resolver
}

// TestFakeDC checks the DC itself: gotd speaks obfuscated2 to it with nothing between them.
func TestFakeDC(t *testing.T) {
	dc := startDC(t, downloadSize)
	direct := dcs.Plain(dcs.PlainOptions{Protocol: transport.PaddedIntermediate, Obfuscated: true})
	if err := exercise(t, dc, direct, 'u'); err != nil {
		t.Error(err)
	}
	checkConnections(t, dc, []int16{mainDC})
}

func TestGotd(t *testing.T) {
	for name, config := range map[string]string{
		"pass":      noScout,
		"reencrypt": noScout + "[relay]\ndownlink = \"reencrypt\"\n",
		"shaped":    "",
	} {
		t.Run(name, func(t *testing.T) {
			s := setStage(t, downloadSize, config)
			if err := exercise(t, s.dc, s.through(t, faketls(stageKey)), 'u'); err != nil {
				t.Error(err)
			}
			checkConnections(t, s.dc, []int16{mainDC})
			if names := s.front.names(); len(names) != 0 && name != "shaped" { // then the scout is there
				t.Errorf("the front saw ClientHellos for %q", names)
			}
		})
	}
}

func TestGotdMediaDC(t *testing.T) {
	s := setStage(t, downloadSize, "")
	err := connectGotd(t, s.dc, s.through(t, faketls(stageKey)), nil, func(ctx context.Context, client *telegram.Client) error {
		media, err := client.MediaOnly(ctx, anotherDC, 2)
		if err != nil {
			return fmt.Errorf("media DC: %w", err)
		}
		defer media.Close()
		return transferFiles(ctx, s.dc, tg.NewClient(media), 'm')
	})
	if err != nil {
		t.Error(err)
	}
	checkConnections(t, s.dc, []int16{mediaDC, mainDC})
}

func TestGotdManyAtOnce(t *testing.T) {
	s := setStage(t, downloadSize, "")
	resolver := s.through(t, faketls(stageKey))
	var clients sync.WaitGroup
	for i := range manyAtOnce {
		clients.Go(func() {
			if err := exercise(t, s.dc, resolver, byte(i)); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	clients.Wait()
}

func TestGotdWrongSecret(t *testing.T) {
	s := setStage(t, 0, noScout)
	ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
	defer cancel()
	conn, err := s.through(t, faketls(strangerKey)).Primary(ctx, mainDC, dcs.List{})
	if err == nil {
		conn.Close()
		t.Error("the handshake succeeded")
	}
	if ctx.Err() != nil {
		t.Error("no answer")
	}
	if names := s.front.names(); !slices.Equal(names, []string{secretHost}) {
		t.Errorf("the front saw ClientHellos for %q, want one for %s", names, secretHost)
	}
	if ids := s.dc.dcs(); len(ids) != 0 {
		t.Errorf("the DC was dialled for %d", ids)
	}
}

// TestGotdReconnects has the DC hang up every few answers: to the client this is a lost connection and nothing
// worse, whatever the proxy sends before its FIN (PROTOCOL.md §4 wants a record like a close_notify).
func TestGotdReconnects(t *testing.T) {
	s := setStage(t, downloadPart, "")
	const hangUp, calls = 8, 20
	s.dc.hangUpAfter(hangUp)
	var lost deaths
	err := connectGotd(t, s.dc, s.through(t, faketls(stageKey)), lost.note, func(ctx context.Context, client *telegram.Client) error {
		for call := range calls {
			if err := persist(ctx, client, call); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := len(s.dc.dcs()); n < calls/hangUp {
		t.Errorf("%d connections for %d calls: the DC did not hang up as the test wants", n, calls)
	}
	t.Logf("the client lost its connection with: %q", lost.list())
}

// persist asks for the configuration until it comes: a request under way when a connection is lost may fail.
func persist(ctx context.Context, client *telegram.Client, call int) error {
	for {
		_, err := client.API().HelpGetConfig(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("call %d: %w, after %w", call, ctx.Err(), err)
		}
	}
}

// deaths gathers why connections of a client died. Safe for concurrent use.
type deaths struct {
	mu   sync.Mutex
	errs []string
}

func (d *deaths) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs = append(d.errs, fmt.Sprint(err))
}

func (d *deaths) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(d.errs)))
}

// connectGotd runs f with a connected gotd client and returns f's error. onDead, if not nil, learns of lost connections.
func connectGotd(t *testing.T, dc *fakeDC, resolver dcs.Resolver, onDead func(error), f func(context.Context, *telegram.Client) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
	defer cancel()
	client := telegram.NewClient(1, "hash", telegram.Options{
		PublicKeys:     []exchange.PublicKey{dc.key.Public()},
		DC:             mainDC,
		DCList:         dcs.List{Options: dc.config(mainDC).DCOptions},
		Resolver:       resolver,
		NoUpdates:      true,
		SessionStorage: &session.StorageMemory{},
		OnDead:         onDead,
		RetryInterval:  10 * clientPatience, // a request sent again would hide that an answer was lost
		ReconnectionBackoff: func() backoff.BackOff {
			return backoff.NewConstantBackOff(10 * time.Millisecond)
		},
	})
	return client.Run(ctx, func(ctx context.Context) error { return f(ctx, client) })
}

// exercise has a client do what a person's client does: key exchange, help.getConfig, a download and an upload
// of bytes that seed chooses.
func exercise(t *testing.T, dc *fakeDC, resolver dcs.Resolver, seed byte) error {
	return connectGotd(t, dc, resolver, nil, func(ctx context.Context, client *telegram.Client) error {
		config, err := client.API().HelpGetConfig(ctx)
		if err != nil {
			return fmt.Errorf("help.getConfig: %w", err)
		}
		if config.ThisDC != mainDC {
			return fmt.Errorf("help.getConfig: this_dc is %d", config.ThisDC)
		}
		return transferFiles(ctx, dc, client.API(), seed)
	})
}

// transferFiles downloads the DC's file and uploads another, several requests at a time, and compares the bytes.
func transferFiles(ctx context.Context, dc *fakeDC, api *tg.Client, seed byte) error {
	var got fileBuffer
	location := &tg.InputDocumentFileLocation{ID: 1, FileReference: []byte{1}}
	_, err := downloader.NewDownloader().WithPartSize(downloadPart).Download(api, location).WithThreads(4).Parallel(ctx, &got)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if !bytes.Equal(got.b, dc.file) {
		return fmt.Errorf("download: %d bytes that differ from the DC's %d", len(got.b), len(dc.file))
	}

	sent := noiseBytes(uploadSize, seed)
	file, err := uploader.NewUploader(api).WithPartSize(uploadPart).FromBytes(ctx, "file", sent)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	if stored := dc.upload(file.(*tg.InputFile).ID); !bytes.Equal(stored, sent) {
		return fmt.Errorf("upload: the DC has %d bytes that differ from the %d sent", len(stored), len(sent))
	}
	return nil
}

// fileBuffer is a file in memory. Safe for concurrent use.
type fileBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (f *fileBuffer) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := int(off) + len(p); end > len(f.b) {
		f.b = append(f.b, make([]byte, end-len(f.b))...)
	}
	return copy(f.b[off:], p), nil
}

// checkConnections wants connections to the DC for exactly these ids, sorted, all of them padded intermediate.
func checkConnections(t *testing.T, dc *fakeDC, want []int16) {
	t.Helper()
	ids := slices.Compact(slices.Sorted(slices.Values(dc.dcs())))
	if !slices.Equal(ids, want) {
		t.Errorf("the DC was dialled for %d, want %d", ids, want)
	}
	if tags := dc.tags(); !slices.Equal(tags, [][4]byte{codec.PaddedIntermediateClientStart}) {
		t.Errorf("transport tags at the DC: %x", tags)
	}
}
