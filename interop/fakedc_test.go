package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"math"
	mrand "math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gotd/td/bin"
	"github.com/gotd/td/crypto"
	"github.com/gotd/td/exchange"
	"github.com/gotd/td/mt"
	"github.com/gotd/td/mtproxy/obfuscated2"
	"github.com/gotd/td/proto"
	"github.com/gotd/td/proto/codec"
	"github.com/gotd/td/tg"
	"github.com/gotd/td/transport"
)

// fakeDC is a Telegram data centre as a proxy sees one: plain TCP, obfuscated2 without a secret, MTProto
// inside. It answers every DC id with one RSA key, its own. It serves one file and takes uploads.
//
// The protocol is gotd's, the server is not: gotd's own test server guards its key table with two different
// locks, which races as soon as several clients connect, and a connection that sends nothing blocks its accept.
type fakeDC struct {
	ln   net.Listener
	key  exchange.PrivateKey
	file []byte // what upload.getFile serves, whatever the location

	mu      sync.Mutex
	keys    map[[8]byte]crypto.AuthKey // by auth key id
	uploads map[int64]map[int][]byte   // by file id, by part
	seen    []obfuscated2.Metadata     // of each connection whose 64-byte init was read
	hangUp  int                        // answers after which a connection is closed; negative = never
	conns   map[net.Conn]struct{}
	serving sync.WaitGroup
}

// startDC runs a DC that serves fileSize bytes, until the test ends.
func startDC(t *testing.T, fileSize int) *fakeDC {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, crypto.RSAKeyBits)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDC{
		ln:      ln,
		key:     exchange.PrivateKey{RSA: key},
		file:    noiseBytes(fileSize, 'f'),
		keys:    map[[8]byte]crypto.AuthKey{},
		uploads: map[int64]map[int][]byte{},
		hangUp:  -1,
		conns:   map[net.Conn]struct{}{},
	}
	d.serving.Go(func() { d.accept(t) })
	t.Cleanup(d.stop)
	return d
}

// noiseBytes returns n bytes that are always the same for a seed and do not compress.
func noiseBytes(n int, seed byte) []byte {
	b := make([]byte, n)
	mrand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func (d *fakeDC) addr() string { return d.ln.Addr().String() }

// hangUpAfter makes every connection end, by FIN, after that many answers; with 0, where the first would be sent.
func (d *fakeDC) hangUpAfter(answers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangUp = answers
}

// dcs returns the DC ids that connections asked for so far, in the order of arrival.
func (d *fakeDC) dcs() []int16 {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]int16, len(d.seen))
	for i, m := range d.seen {
		ids[i] = int16(m.DC)
	}
	return ids
}

// tags returns the distinct transport tags of the connections so far.
func (d *fakeDC) tags() [][4]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var tags [][4]byte
	for _, m := range d.seen {
		if !slices.Contains(tags, m.Protocol) {
			tags = append(tags, m.Protocol)
		}
	}
	return tags
}

// upload returns the parts of an uploaded file, joined.
func (d *fakeDC) upload(id int64) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var whole []byte
	for part := range len(d.uploads[id]) {
		whole = append(whole, d.uploads[id][part]...)
	}
	return whole
}

func (d *fakeDC) stop() {
	d.ln.Close()
	d.mu.Lock()
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.serving.Wait()
}

func (d *fakeDC) accept(t *testing.T) {
	for {
		c, err := d.ln.Accept()
		if err != nil {
			return // stop closed the listener
		}
		d.mu.Lock()
		d.conns[c] = struct{}{}
		d.mu.Unlock()
		d.serving.Go(func() {
			err := d.serve(c)
			c.Close()
			d.mu.Lock()
			delete(d.conns, c)
			d.mu.Unlock()
			if err := unexpected(err); err != nil {
				t.Errorf("fake DC: %v", err)
			}
		})
	}
}

// unexpected drops the errors with which connections end in the normal course.
func unexpected(err error) error {
	var network *net.OpError // a reset, or stop closed the connection
	if errors.Is(err, errHangUp) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return nil
	}
	return err
}

var errHangUp = errors.New("as many answers as hangUpAfter allows")

func (d *fakeDC) serve(c net.Conn) error {
	streams, meta, err := obfuscated2.Accept(c, nil)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.seen = append(d.seen, meta)
	hangUp := d.hangUp
	d.mu.Unlock()

	frames, err := transportOf(meta.Protocol)
	if err != nil {
		return err
	}
	conn, err := frames.Handshake(deobfuscated{c, streams})
	if err != nil {
		return err
	}
	if hangUp >= 0 {
		conn = &shortLived{Conn: conn, answers: hangUp}
	}
	s := dcSession{dc: d, conn: conn, id: int16(meta.DC), cipher: crypto.NewServerCipher(rand.Reader), ids: proto.NewMessageIDGen(time.Now)}
	return s.run(context.Background())
}

// transportOf returns the framing that a tag names; the tag itself was in the init.
func transportOf(tag [4]byte) (transport.Protocol, error) {
	framings := map[[4]byte]codec.Codec{
		codec.PaddedIntermediateClientStart: codec.PaddedIntermediate{},
		codec.IntermediateClientStart:       codec.Intermediate{},
		{0xef, 0xef, 0xef, 0xef}:            codec.Abridged{},
	}
	framing, ok := framings[tag]
	if !ok {
		return transport.Protocol{}, fmt.Errorf("unknown transport tag %x", tag)
	}
	return transport.NewProtocol(func() transport.Codec { return codec.NoHeader{Codec: framing} }), nil
}

// deobfuscated is a connection whose bytes pass through the obfuscated2 streams.
type deobfuscated struct {
	net.Conn
	streams io.ReadWriter
}

func (c deobfuscated) Read(b []byte) (int, error)  { return c.streams.Read(b) }
func (c deobfuscated) Write(b []byte) (int, error) { return c.streams.Write(b) }

// shortLived ends the connection after a number of answers.
type shortLived struct {
	transport.Conn
	answers int // still allowed
}

func (c *shortLived) Send(ctx context.Context, b *bin.Buffer) error {
	if c.answers == 0 {
		return errHangUp
	}
	if err := c.Conn.Send(ctx, b); err != nil {
		return err
	}
	if c.answers--; c.answers == 0 {
		return errHangUp
	}
	return nil
}

// pushed gives one frame that was read already before those still to come.
type pushed struct {
	transport.Conn
	frame []byte
}

func (c *pushed) Recv(ctx context.Context, b *bin.Buffer) error {
	if c.frame == nil {
		return c.Conn.Recv(ctx, b)
	}
	b.ResetTo(c.frame)
	c.frame = nil
	return nil
}

// dcSession is one connection to the DC. Owned by one goroutine.
type dcSession struct {
	dc     *fakeDC
	conn   transport.Conn
	id     int16 // as the init named it: negative for media
	cipher crypto.Cipher
	ids    *proto.MessageIDGen

	key     crypto.AuthKey // of the message being answered
	session int64          // of the message being answered; 0 before the first
}

func (s *dcSession) run(ctx context.Context) error {
	var b bin.Buffer
	for {
		b.Reset()
		if err := s.conn.Recv(ctx, &b); err != nil {
			return err
		}
		var keyID [8]byte
		if err := b.PeekN(keyID[:], len(keyID)); err != nil {
			return err
		}
		var err error
		if keyID == [8]byte{} { // unencrypted: the start of a key exchange
			err = s.unencrypted(ctx, b.Copy())
		} else {
			err = s.encrypted(ctx, keyID, &b)
		}
		if err != nil {
			return err
		}
	}
}

func (s *dcSession) unencrypted(ctx context.Context, frame []byte) error {
	var m proto.UnencryptedMessage
	if err := m.Decode(&bin.Buffer{Buf: frame}); err != nil {
		return err
	}
	if proto.MessageID(m.MessageID).Type() != proto.MessageFromClient {
		return s.answerPing(ctx) // gotd's exchange would refuse the id
	}
	return s.exchangeKey(ctx, frame)
}

// answerPing answers one of the two req_pq_multi of TDLib's pingProxy, whose message ids are no client's. TDLib wants
// an unencrypted message with 12 bytes of body or more, and does not look into it.
func (s *dcSession) answerPing(ctx context.Context) error {
	var b bin.Buffer
	answer := proto.UnencryptedMessage{MessageID: s.ids.New(proto.MessageServerResponse), MessageData: make([]byte, 20)}
	if err := answer.Encode(&b); err != nil {
		return err
	}
	return s.conn.Send(ctx, &b)
}

func (s *dcSession) exchangeKey(ctx context.Context, first []byte) error {
	id := int(s.id)
	if id < 0 {
		id = -id // a media DC shares its DC's keys
	}
	result, err := exchange.NewExchanger(&pushed{s.conn, first}, id).Server(s.dc.key).Run(ctx)
	if err != nil {
		return err
	}
	s.dc.mu.Lock()
	defer s.dc.mu.Unlock()
	s.dc.keys[result.Key.ID] = result.Key
	return nil
}

func (s *dcSession) encrypted(ctx context.Context, keyID [8]byte, b *bin.Buffer) error {
	s.dc.mu.Lock()
	key, ok := s.dc.keys[keyID]
	s.dc.mu.Unlock()
	if !ok {
		var answer bin.Buffer
		answer.PutInt32(-codec.CodeAuthKeyNotFound)
		return s.conn.Send(ctx, &answer)
	}
	var m crypto.EncryptedMessage
	if err := m.DecodeWithoutCopy(b); err != nil {
		return err
	}
	msg, err := s.cipher.Decrypt(key, &m)
	if err != nil {
		return err
	}
	if s.key = key; s.session != msg.SessionID {
		s.session = msg.SessionID
		created := mt.NewSessionCreated{FirstMsgID: msg.MessageID, ServerSalt: msg.Salt}
		if err := s.send(ctx, proto.MessageFromServer, &created); err != nil {
			return err
		}
	}
	return s.handle(ctx, msg.MessageID, &bin.Buffer{Buf: msg.Data()})
}

func (s *dcSession) send(ctx context.Context, typ proto.MessageType, msg bin.Encoder) error {
	var b bin.Buffer
	if err := msg.Encode(&b); err != nil {
		return err
	}
	err := s.cipher.Encrypt(s.key, crypto.EncryptedMessageData{
		SessionID:              s.session,
		MessageID:              s.ids.New(typ),
		MessageDataLen:         int32(b.Len()),
		MessageDataWithPadding: b.Copy(),
	}, &b)
	if err != nil {
		return err
	}
	return s.conn.Send(ctx, &b)
}

func (s *dcSession) result(ctx context.Context, id int64, result bin.Encoder) error {
	var b bin.Buffer
	if err := result.Encode(&b); err != nil {
		return err
	}
	return s.send(ctx, proto.MessageServerResponse, &proto.Result{RequestMessageID: id, Result: b.Raw()})
}

func (s *dcSession) refuse(ctx context.Context, id int64, code int, text string) error {
	return s.result(ctx, id, &mt.RPCError{ErrorCode: code, ErrorMessage: text})
}

// handle answers one message, wrappers and service messages included.
func (s *dcSession) handle(ctx context.Context, id int64, b *bin.Buffer) error {
	typ, err := b.PeekID()
	if err != nil {
		return err
	}
	switch typ {
	case proto.MessageContainerTypeID:
		return s.handleContainer(ctx, b)
	case proto.GZIPTypeID:
		var packed proto.GZIP
		if err := packed.Decode(b); err != nil {
			return err
		}
		return s.handle(ctx, id, &bin.Buffer{Buf: packed.Data})
	case mt.MsgsAckTypeID:
		return nil
	case mt.PingRequestTypeID:
		var ping mt.PingRequest
		return s.answer(ctx, b, &ping, func() bin.Encoder { return &mt.Pong{MsgID: id, PingID: ping.PingID} })
	case mt.PingDelayDisconnectRequestTypeID:
		var ping mt.PingDelayDisconnectRequest
		return s.answer(ctx, b, &ping, func() bin.Encoder { return &mt.Pong{MsgID: id, PingID: ping.PingID} })
	case mt.GetFutureSaltsRequestTypeID:
		var salts mt.GetFutureSaltsRequest
		eternal := []mt.FutureSalt{{ValidSince: 1, ValidUntil: math.MaxInt32, Salt: 10}}
		return s.answer(ctx, b, &salts, func() bin.Encoder {
			return &mt.FutureSalts{ReqMsgID: id, Now: int(time.Now().Unix()), Salts: eternal}
		})
	}
	return s.handleRPC(ctx, id, typ, b)
}

// answer decodes a service request and sends what f makes of it, unwrapped.
func (s *dcSession) answer(ctx context.Context, b *bin.Buffer, request bin.Decoder, f func() bin.Encoder) error {
	if err := request.Decode(b); err != nil {
		return err
	}
	return s.send(ctx, proto.MessageServerResponse, f())
}

func (s *dcSession) handleContainer(ctx context.Context, b *bin.Buffer) error {
	var container proto.MessageContainer
	if err := container.Decode(b); err != nil {
		return err
	}
	for _, m := range container.Messages {
		if err := s.handle(ctx, m.ID, &bin.Buffer{Buf: m.Body}); err != nil {
			return err
		}
	}
	return nil
}

func (s *dcSession) handleRPC(ctx context.Context, id int64, typ uint32, b *bin.Buffer) error {
	var inner innerQuery
	switch typ {
	case tg.InvokeWithLayerRequestTypeID:
		return s.unwrap(ctx, id, b, &tg.InvokeWithLayerRequest{Query: &inner})
	case tg.InitConnectionRequestTypeID:
		return s.unwrap(ctx, id, b, &tg.InitConnectionRequest{Query: &inner})
	case tg.InvokeWithoutUpdatesRequestTypeID:
		return s.unwrap(ctx, id, b, &tg.InvokeWithoutUpdatesRequest{Query: &inner})
	case tg.HelpGetConfigRequestTypeID:
		return s.result(ctx, id, s.dc.config(s.id))
	case tg.UploadGetFileRequestTypeID:
		return s.getFile(ctx, id, b)
	case tg.UploadSaveFilePartRequestTypeID:
		return s.savePart(ctx, id, b)
	case tg.UsersGetUsersRequestTypeID, tg.AuthExportAuthorizationRequestTypeID:
		return s.refuse(ctx, id, 401, "AUTH_KEY_UNREGISTERED")
	}
	return s.refuse(ctx, id, 501, "METHOD_NOT_IMPLEMENTED")
}

// innerQuery stands for the query inside a wrapper: it takes nothing, so the buffer is left in front of it.
type innerQuery struct{}

func (*innerQuery) Decode(*bin.Buffer) error { return nil }
func (*innerQuery) Encode(*bin.Buffer) error { return errors.New("innerQuery is only decoded") }

func (s *dcSession) unwrap(ctx context.Context, id int64, b *bin.Buffer, wrapper bin.Decoder) error {
	if err := wrapper.Decode(b); err != nil {
		return err
	}
	return s.handle(ctx, id, b)
}

// config names this DC for the ids 2 and 4, which is where a client looks ids up before it opens media connections.
func (d *fakeDC) config(id int16) *tg.Config {
	addr := d.ln.Addr().(*net.TCPAddr)
	options := []tg.DCOption{
		{ID: 2, IPAddress: addr.IP.String(), Port: addr.Port},
		{ID: 4, IPAddress: addr.IP.String(), Port: addr.Port},
	}
	now := int(time.Now().Unix())
	return &tg.Config{Date: now, Expires: now + 3600, ThisDC: int(id), DCOptions: options, DCTxtDomainName: "dc.example"}
}

func (s *dcSession) getFile(ctx context.Context, id int64, b *bin.Buffer) error {
	var request tg.UploadGetFileRequest
	if err := request.Decode(b); err != nil {
		return err
	}
	from := min(request.Offset, int64(len(s.dc.file)))
	to := min(from+int64(request.Limit), int64(len(s.dc.file)))
	return s.result(ctx, id, &tg.UploadFile{Type: &tg.StorageFilePartial{}, Bytes: s.dc.file[from:to]})
}

func (s *dcSession) savePart(ctx context.Context, id int64, b *bin.Buffer) error {
	var request tg.UploadSaveFilePartRequest
	if err := request.Decode(b); err != nil {
		return err
	}
	s.dc.mu.Lock()
	if s.dc.uploads[request.FileID] == nil {
		s.dc.uploads[request.FileID] = map[int][]byte{}
	}
	s.dc.uploads[request.FileID][request.FilePart] = bytes.Clone(request.Bytes)
	s.dc.mu.Unlock()
	return s.result(ctx, id, &tg.BoolTrue{})
}
