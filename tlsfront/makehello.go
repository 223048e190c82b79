package tlsfront

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"

	"mtrelay/clock"
)

// HelloKind is a shape of ClientHello.
type HelloKind uint8

const (
	// HelloHybrid is what current clients send: 1,725 to 1,821 bytes with a server name of 15, shares for X25519MLKEM768
	// and X25519.
	HelloHybrid HelloKind = iota
	// HelloX25519 is HelloHybrid without its hybrid group: it shows what a server chooses when it has no choice.
	HelloX25519
	// HelloAES256 is what builds for Apple's systems send: TLS_AES_256_GCM_SHA384 first, both shares, always in one order.
	HelloAES256
	// HelloClassic is what clients sent before there were hybrid groups: padded to 517 bytes, an X25519 share only.
	HelloClassic

	NumHelloKinds // how many there are
)

var helloKindNames = [NumHelloKinds]string{
	HelloHybrid: "hybrid", HelloX25519: "x25519", HelloAES256: "aes256", HelloClassic: "classic",
}

func (k HelloKind) String() string { return helloKindNames[k] }

// AppendClientHello appends a ClientHello in one record to dst, such as a Telegram client sends and, but for the digest,
// the browser that it imitates: at most 2,061 bytes, 1,988 with the longest server name that a secret carries (182).
// serverName is sent as it is, 1 to 255 bytes. The caller recognises its hello by sessionID. With a key the random is
// the digest that proves that the sender holds it, made at stamp (from 1970 to 2106); with nil it is random, and stamp
// is not used.
//
// rnd determines all bytes that vary. Nobody has the private keys of the shares: a server completes its flight, and
// that is as far as the handshake can go. Safe for concurrent use if rnd is; not for a hot path (0.1 ms).
func AppendClientHello(
	dst []byte, kind HelloKind, serverName string, sessionID [32]byte, key *[16]byte, stamp clock.Unix, rnd io.Reader,
) []byte {
	if serverName == "" || len(serverName) > maxServerNameLen {
		panic("tlsfront: internal error: server name of no bytes or of over 255")
	}
	m := helloMaker{helloShape: &helloShapes[kind], serverName: serverName, rnd: rnd, start: len(dst)}
	m.drawGrease()
	dst = append(dst, RecordHandshake, 3, 1)
	dst = appendVector16(dst, func(dst []byte) []byte {
		dst = append(dst, typeClientHello, 0) // a length of 24 bits, the first 8 zero
		return appendVector16(dst, func(dst []byte) []byte { return m.appendHello(dst, sessionID) })
	})
	if key != nil {
		signClientHello(dst[m.start:], key, stamp)
	}
	return dst
}

// signClientHello puts the digest in the random's place, the client's clock mixed into its last four bytes.
func signClientHello(record []byte, key *[16]byte, stamp clock.Unix) {
	random := record[recordRandom:recordRandomEnd]
	clear(random)
	mac := hmac.New(sha256.New, key[:])
	mac.Write(record)
	mac.Sum(random[:0])
	mixed := binary.LittleEndian.Uint32(random[stampOffset:]) ^ uint32(stamp)
	binary.LittleEndian.PutUint32(random[stampOffset:], mixed)
}

// Code points of extensions that only a client has to know: RFC 8446 §4.2 unless another source is named.
const (
	extensionStatusRequest        = 5
	extensionSupportedGroups      = 10
	extensionPointFormats         = 11 // RFC 8422
	extensionSignatureAlgorithms  = 13
	extensionALPN                 = 16
	extensionSCT                  = 18
	extensionPadding              = 21 // RFC 7685
	extensionExtendedMasterSecret = 23 // RFC 7627
	extensionCompressCertificate  = 27 // RFC 8879
	extensionSessionTicket        = 35
	extensionPSKModes             = 45
	extensionALPS                 = 0x44cd // Chrome's application settings, draft-vvv-tls-alps
	extensionOldALPS              = 0x4469 // the same until 2024
	extensionECH                  = 0xfe0d // RFC 9849
	extensionRenegotiationInfo    = 0xff01 // RFC 5746

	extensionHeaderLen = 4
)

// anyGrease stands for a value of RFC 8701 in the lists below; each hello draws its own.
const anyGrease = 0x0a0a

// How a certificate may be compressed, RFC 8879 §7.3.
const (
	certificateZlib   = 1
	certificateBrotli = 2
)

// A client of RFC 7685 pads a handshake message of 256 to 511 bytes to 512: some load balancer hangs on those.
const paddedHello = RecordHeaderLen + 512

// The AEAD output that a browser without a key for ECH invents (RFC 9849 §6.2): a hello padded to a multiple of 32 and
// 16 bytes of tag. Of the four lengths, the longest makes the 1,988 bytes that were seen with the longest server name.
const (
	minECHPayload   = 128 + 16
	echPayloadStep  = 32
	echPayloadSizes = 4
)

// helloShape is what the hellos of a kind have in common.
type helloShape struct {
	suites, groups, signatures []uint16
	compression                uint16 // of certificates
	extensions                 []uint16
	shuffled                   bool // the extensions come in any order
}

var helloShapes = [NumHelloKinds]helloShape{
	HelloHybrid:  {chromeSuites, hybridGroups, chromeSignatures, certificateBrotli, chromeExtensions, true},
	HelloX25519:  {chromeSuites, classicGroups, chromeSignatures, certificateBrotli, chromeExtensions, true},
	HelloAES256:  {appleSuites, appleGroups, appleSignatures, certificateZlib, appleExtensions, false},
	HelloClassic: {chromeSuites, classicGroups, chromeSignatures, certificateBrotli, classicExtensions, true},
}

var (
	chromeSuites = []uint16{anyGrease, suiteAES128GCM, suiteAES256GCM, suiteChaCha20Poly1305,
		0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035}
	// Apple's builds have two lists, this one and a shorter one, and keep to one of them until they are restarted.
	appleSuites = []uint16{anyGrease, suiteAES256GCM, suiteChaCha20Poly1305, suiteAES128GCM,
		0xc02c, 0xc02b, 0xcca9, 0xc030, 0xc02f, 0xcca8, 0xc00a, 0xc009, 0xc014, 0xc013,
		0x009d, 0x009c, 0x0035, 0x002f, 0xc008, 0xc012, 0x000a}

	// The last two or three are P-256, P-384 and P-521.
	hybridGroups  = []uint16{anyGrease, groupX25519MLKEM768, groupX25519, 0x17, 0x18}
	classicGroups = []uint16{anyGrease, groupX25519, 0x17, 0x18}
	appleGroups   = []uint16{anyGrease, groupX25519MLKEM768, groupX25519, 0x17, 0x18, 0x19}

	chromeSignatures = []uint16{0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601}
	// Apple names 0805 twice.
	appleSignatures = []uint16{0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0805, 0x0501, 0x0806, 0x0601, 0x0201}

	helloVersions = []uint16{anyGrease, versionTLS13, 0x0303}

	chromeExtensions  = append([]uint16{extensionALPS, extensionECH}, commonExtensions...)
	classicExtensions = append([]uint16{extensionOldALPS}, commonExtensions...)
	commonExtensions  = []uint16{
		extensionServerName, extensionStatusRequest, extensionSupportedGroups, extensionPointFormats,
		extensionSignatureAlgorithms, extensionALPN, extensionSCT, extensionExtendedMasterSecret,
		extensionCompressCertificate, extensionSessionTicket, extensionSupportedVersions, extensionPSKModes,
		extensionKeyShare, extensionRenegotiationInfo,
	}
	appleExtensions = []uint16{ // in its order
		extensionServerName, extensionExtendedMasterSecret, extensionRenegotiationInfo, extensionSupportedGroups,
		extensionPointFormats, extensionALPN, extensionStatusRequest, extensionSignatureAlgorithms, extensionSCT,
		extensionKeyShare, extensionPSKModes, extensionSupportedVersions, extensionCompressCertificate,
	}
)

// fixedBodies are the extensions that say the same in every hello; what is in neither place is empty.
var fixedBodies = map[uint16]string{
	extensionStatusRequest:     "\x01\x00\x00\x00\x00", // OCSP, no responders, no extensions
	extensionPointFormats:      "\x01\x00",             // uncompressed
	extensionALPN:              "\x00\x0c\x02h2\x08http/1.1",
	extensionPSKModes:          "\x01\x01", // psk_dhe_ke
	extensionALPS:              "\x00\x03\x02h2",
	extensionOldALPS:           "\x00\x03\x02h2",
	extensionRenegotiationInfo: "\x00",
}

// helloMaker makes one hello.
type helloMaker struct {
	*helloShape
	serverName string
	rnd        io.Reader
	start      int // of the record in dst
	shares     shareMaker
	draw       [1]byte // scratch of below

	greaseSuite, greaseGroup, greaseVersion, greaseFirst, greaseLast uint16
}

// drawGrease draws values of RFC 8701. The two extensions must differ, since none may come twice.
func (m *helloMaker) drawGrease() {
	for _, v := range []*uint16{&m.greaseSuite, &m.greaseGroup, &m.greaseVersion, &m.greaseFirst, &m.greaseLast} {
		*v = uint16(m.below(16))*0x1010 | anyGrease
	}
	if m.greaseFirst == m.greaseLast {
		m.greaseLast ^= 0x1010
	}
}

// below draws a uniform number below n, which is at most 256.
func (m *helloMaker) below(n int) int { return below(m.rnd, &m.draw, n) }

// below draws by rejection. scratch is the caller's, lest it be allocated.
func below(rnd io.Reader, scratch *[1]byte, n int) int {
	for {
		fill(rnd, scratch[:])
		if x := int(scratch[0]); x < 256-256%n {
			return x % n
		}
	}
}

// appendHello appends the message behind its header, RFC 8446 §4.1.2.
func (m *helloMaker) appendHello(dst []byte, sessionID [32]byte) []byte {
	dst = append(dst, 3, 3)
	dst = appendRandom(dst, m.rnd, randomLen)
	dst = append(append(dst, byte(len(sessionID))), sessionID[:]...)
	dst = appendWords16(dst, m.suites, m.greaseSuite)
	dst = append(dst, 1, 0) // no compression
	return appendVector16(dst, m.appendExtensions)
}

// appendExtensions appends the extensions between two of RFC 8701, the first empty, the last of one byte; padding, which
// needs to know the length of all others, comes behind.
func (m *helloMaker) appendExtensions(dst []byte) []byte {
	dst = append(binary.BigEndian.AppendUint16(dst, m.greaseFirst), 0, 0)
	for _, typ := range m.order() {
		dst = binary.BigEndian.AppendUint16(dst, typ)
		dst = appendVector16(dst, func(dst []byte) []byte { return m.appendBody(dst, typ) })
	}
	dst = append(binary.BigEndian.AppendUint16(dst, m.greaseLast), 0, 1, 0)

	if padding := paddedHello - extensionHeaderLen - (len(dst) - m.start); padding > 0 {
		dst = binary.BigEndian.AppendUint16(dst, extensionPadding)
		dst = binary.BigEndian.AppendUint16(dst, uint16(padding))
		dst = append(dst, make([]byte, padding)...)
	}
	return dst
}

// order returns the extensions in this hello's order, each of which is as likely as any other when they are shuffled.
func (m *helloMaker) order() []uint16 {
	if !m.shuffled {
		return m.extensions
	}
	order := slices.Clone(m.extensions)
	for i := len(order) - 1; i > 0; i-- {
		j := m.below(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

func (m *helloMaker) appendBody(dst []byte, typ uint16) []byte {
	switch typ {
	case extensionServerName: // a list of one name, RFC 6066 §3
		return appendVector16(dst, func(dst []byte) []byte {
			return appendVector16(append(dst, 0), func(dst []byte) []byte { return append(dst, m.serverName...) })
		})
	case extensionSupportedGroups:
		return appendWords16(dst, m.groups, m.greaseGroup)
	case extensionSignatureAlgorithms:
		return appendWords16(dst, m.signatures, 0)
	case extensionSupportedVersions:
		return appendWords(append(dst, byte(2*len(helloVersions))), helloVersions, m.greaseVersion)
	case extensionCompressCertificate:
		return append(dst, 2, 0, byte(m.compression))
	case extensionKeyShare:
		return appendVector16(dst, m.appendShares)
	case extensionECH:
		return m.appendECH(dst)
	}
	return append(dst, fixedBodies[typ]...)
}

// appendShares appends a share for each group up to X25519; the others exist only for a server that asks again.
func (m *helloMaker) appendShares(dst []byte) []byte {
	for _, group := range m.groups[:slices.Index(m.groups, groupX25519)+1] {
		if group == anyGrease {
			dst = append(binary.BigEndian.AppendUint16(dst, m.greaseGroup), 0, 1, 0)
			continue
		}
		dst = binary.BigEndian.AppendUint16(dst, group)
		dst = appendVector16(dst, func(dst []byte) []byte {
			if group == groupX25519MLKEM768 {
				dst = m.shares.appendMLKEMKey(dst, m.rnd)
			}
			return m.shares.appendX25519(dst, m.rnd)
		})
	}
	return dst
}

// appendECH appends what a browser sends to a site whose key for Encrypted Client Hello it does not know (RFC 9849
// §5 and §6.2): an outer hello, HKDF-SHA256 and AES-128-GCM, any config, an HPKE share of X25519, a ciphertext.
func (m *helloMaker) appendECH(dst []byte) []byte {
	dst = append(dst, 0, 0, 1, 0, 1)
	dst = appendRandom(dst, m.rnd, 1)
	dst = appendVector16(dst, func(dst []byte) []byte { return m.shares.appendX25519(dst, m.rnd) })
	return appendVector16(dst, func(dst []byte) []byte {
		return appendRandom(dst, m.rnd, minECHPayload+m.below(echPayloadSizes)*echPayloadStep)
	})
}

// appendMLKEMKey appends what an encapsulation key of ML-KEM-768 looks like (FIPS 203, algorithm 13): 768 coefficients
// of 12 bits, which are uniform modulo q to everybody without the private key, and a seed. A server checks that they are
// below q (§7.2), so random bytes would be refused.
func (m *shareMaker) appendMLKEMKey(dst []byte, rnd io.Reader) []byte {
	for range mlkemK * mlkemN / 2 {
		a, b := m.coefficient(rnd), m.coefficient(rnd)
		dst = append(dst, byte(a), byte(a>>8|b<<4), byte(b>>4))
	}
	return appendRandom(dst, rnd, 32)
}

func appendRandom(dst []byte, rnd io.Reader, n int) []byte {
	dst = append(dst, make([]byte, n)...)
	fill(rnd, dst[len(dst)-n:])
	return dst
}

// appendVector16 appends what body appends, behind its length in two bytes.
func appendVector16(dst []byte, body func(dst []byte) []byte) []byte {
	at := len(dst)
	dst = body(append(dst, 0, 0))
	binary.BigEndian.PutUint16(dst[at:], uint16(len(dst)-at-2))
	return dst
}

func appendWords16(dst []byte, words []uint16, grease uint16) []byte {
	return appendVector16(dst, func(dst []byte) []byte { return appendWords(dst, words, grease) })
}

// appendWords appends the words with grease in the place of anyGrease.
func appendWords(dst []byte, words []uint16, grease uint16) []byte {
	for _, w := range words {
		if w == anyGrease {
			w = grease
		}
		dst = binary.BigEndian.AppendUint16(dst, w)
	}
	return dst
}
