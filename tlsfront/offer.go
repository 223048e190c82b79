package tlsfront

// Code points from the registries of RFC 8446 (§4.2, §4.2.7, §B.4) and draft-ietf-tls-ecdhe-mlkem.
const (
	extensionServerName        = 0
	extensionSupportedVersions = 43
	extensionKeyShare          = 51

	versionTLS13 = 0x0304

	suiteAES128GCM        = 0x1301
	suiteAES256GCM        = 0x1302
	suiteChaCha20Poly1305 = 0x1303

	groupX25519         = 0x001d
	groupX25519MLKEM768 = 0x11ec
)

const (
	maxServerNameLen = 255 // what OpenSSL takes; a host name in DNS has at most 253 bytes
	x25519ShareLen   = 32
	mlkemKeyLen      = 1184 // FIPS 203, encapsulation key of ML-KEM-768
)

// offer is what a ClientHello says that the verdict or the reply depends on.
type offer struct {
	serverName string // lower case, no trailing dot
	seen       uint64 // extensions that came, a bit per type
	suite      uint16 // first TLS 1.3 suite in the client's order; 0 when none
	suites     uint8  // all of them, see suiteBit
	tls13      bool   // among supported_versions
	ech        bool   // Encrypted Client Hello came, or what browsers without a key for it send
	x25519     bool   // has a share for that group
	hybrid     bool   // has a share for X25519MLKEM768
}

// has reports whether the extension came already (RFC 8446 §4.2 allows no second one). Types over 63 are not followed:
// nothing here reads them, and clients choose their two GREASE types (RFC 8701) independently, some the same one twice.
func (o *offer) has(extension int) bool {
	return extension < 64 && o.seen>>extension&1 != 0
}

// takeSuites keeps the TLS 1.3 suites and which one is first. The client's order is what nginx (OpenSSL without server
// preference) goes by; GREASE and TLS 1.2 suites are passed over.
func (o *offer) takeSuites(suites []byte) {
	c := cursor{b: suites}
	for suite, ok := c.uint16(); ok; suite, ok = c.uint16() {
		bit := suiteBit(uint16(suite))
		if bit != 0 && o.suite == 0 {
			o.suite = uint16(suite)
		}
		o.suites |= bit
	}
}

// suiteBit is the suite's place in offer.suites, 0 for a suite that no front chooses.
func suiteBit(suite uint16) uint8 {
	switch suite {
	case suiteAES128GCM, suiteAES256GCM, suiteChaCha20Poly1305:
		return 1 << (suite - suiteAES128GCM)
	}
	return 0
}

func (o *offer) offers(suite uint16) bool { return o.suites&suiteBit(suite) != 0 }

// takeExtension reads a whole extension. The reason is ReasonNone unless it is malformed.
func (o *offer) takeExtension(typ int, body []byte) Reason {
	if typ < 64 {
		o.seen |= 1 << typ
	}
	o.ech = o.ech || typ == extensionECH
	c := cursor{b: body}
	switch {
	case typ == extensionServerName && !o.takeServerName(&c):
		return ReasonServerName
	case typ == extensionSupportedVersions && !o.takeVersions(&c):
		return ReasonVersions
	case typ == extensionKeyShare && !o.takeKeyShares(&c):
		return ReasonKeyShare
	}
	return ReasonNone
}

// takeServerName reads a list of exactly one host_name, RFC 6066 §3; no client sends another.
func (o *offer) takeServerName(c *cursor) bool {
	list, ok := c.vector16()
	if !ok || len(c.b) > 0 {
		return false
	}
	entry := cursor{b: list}
	typ, ok := entry.uint8()
	if !ok || typ != 0 {
		return false
	}
	name, ok := entry.vector16()
	if !ok || len(entry.b) > 0 || len(name) == 0 || len(name) > maxServerNameLen {
		return false
	}
	o.serverName = canonicalHost(name)
	return true
}

// canonicalHost makes host names comparable: DNS ignores the case of ASCII letters (RFC 4343), and a dot at the end
// means the same name.
func canonicalHost(name []byte) string {
	var buf [maxServerNameLen + 1]byte // on the stack
	host := append(buf[:0], name...)
	if n := len(host); n > 0 && host[n-1] == '.' {
		host = host[:n-1]
	}
	for i, b := range host {
		if 'A' <= b && b <= 'Z' {
			host[i] = b + 'a' - 'A'
		}
	}
	return string(host)
}

func (o *offer) takeVersions(c *cursor) bool {
	list, ok := c.vector8()
	if !ok || len(c.b) > 0 || len(list) == 0 || len(list)%2 != 0 {
		return false
	}
	versions := cursor{b: list}
	for v, ok := versions.uint16(); ok; v, ok = versions.uint16() {
		o.tls13 = o.tls13 || v == versionTLS13
	}
	return true
}

// takeKeyShares notes the groups that we can answer. A second share for one of them, or one of another length, is what
// RFC 8446 §4.2.8 has a server refuse.
func (o *offer) takeKeyShares(c *cursor) bool {
	list, ok := c.vector16()
	if !ok || len(c.b) > 0 {
		return false
	}
	shares := cursor{b: list}
	for len(shares.b) > 0 {
		group, _ := shares.uint16()
		share, ok := shares.vector16()
		if !ok || len(share) == 0 || !o.takeShare(group, len(share)) {
			return false
		}
	}
	return true
}

func (o *offer) takeShare(group, length int) bool {
	has, want := &o.x25519, x25519ShareLen
	switch group {
	case groupX25519:
	case groupX25519MLKEM768:
		has, want = &o.hybrid, mlkemKeyLen+x25519ShareLen
	default:
		return true
	}
	first := !*has
	*has = true
	return first && length == want
}
