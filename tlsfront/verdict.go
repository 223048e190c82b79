package tlsfront

// Verdict is what is known about a ClientHello.
type Verdict uint8

const (
	// More: still plausible, more bytes are needed. The zero value.
	More Verdict = iota
	// Whole: all bytes are there; a Gate has to judge them.
	Whole
	// Scan: the budget of this call to Judge is used up; call it again.
	Scan
	// Accepted: the sender holds a secret. To be answered by AppendReply.
	Accepted
	// Front: a stranger, or not provably anything else. To be spliced to the front.
	Front
)

var verdictNames = [...]string{More: "more", Whole: "whole", Scan: "scan", Accepted: "accepted", Front: "front"}

func (v Verdict) String() string { return verdictNames[v] }

// Reason says why a client went to the front. A closed set, fit for a metric label; nothing of it reaches the client.
type Reason uint8

const (
	ReasonNone Reason = iota // not to the front

	// What Feed sees: bytes that can no longer become a ClientHello of ours.

	ReasonRecordType      // a record of another type, before or in the midst of the hello
	ReasonRecordVersion   // record version neither 03 01 nor 03 03
	ReasonRecordLength    // an empty record or one over 2^14 bytes
	ReasonRecordCount     // cut over more than 64 records
	ReasonHandshakeType   // a handshake message that is no ClientHello
	ReasonHandshakeLength // a length that no ClientHello has, or over 16 KiB
	ReasonTrailingBytes   // more bytes in the hello's last record than the hello has
	ReasonClientVersion   // legacy_version is not 03 03
	ReasonSessionID       // over 32 bytes, or past the end
	ReasonCipherSuites    // none, half a one, or past the end
	ReasonCompression     // none, or past the end
	ReasonExtensions      // lengths that do not add up
	ReasonDuplicate       // an extension came twice
	ReasonServerName      // a malformed server_name
	ReasonVersions        // a malformed supported_versions
	ReasonKeyShare        // a malformed key_share

	// What Judge sees.

	ReasonDigest           // no secret's digest: strangers, scanners, browsers
	ReasonClock            // right digest, stamp outside of the clock window
	ReasonNoServerName     // right digest, no server_name
	ReasonOtherServerName  // right digest, not the host of that secret
	ReasonNoTLS13          // right digest, version or cipher suites of TLS 1.3 not among the offers
	ReasonNoGroup          // right digest, no key share for a group that we can answer
	ReasonReplay           // this hello was accepted before
	ReasonBeforeStart      // stamped before this process started: perhaps accepted by the one before
	ReasonReplayMemoryFull // no room to remember it, so it cannot be accepted

	// What the session sees while it waits for the rest of a hello.

	ReasonTimer // the handshake timer fired
	ReasonFIN   // the client ended its direction
	ReasonFront // the front, opened early for a silent client, spoke or ended first

	NumReasons // how many there are
)

var reasonNames = [NumReasons]string{
	ReasonNone:             "none",
	ReasonRecordType:       "record-type",
	ReasonRecordVersion:    "record-version",
	ReasonRecordLength:     "record-length",
	ReasonRecordCount:      "record-count",
	ReasonHandshakeType:    "handshake-type",
	ReasonHandshakeLength:  "handshake-length",
	ReasonTrailingBytes:    "trailing-bytes",
	ReasonClientVersion:    "client-version",
	ReasonSessionID:        "session-id",
	ReasonCipherSuites:     "cipher-suites",
	ReasonCompression:      "compression",
	ReasonExtensions:       "extensions",
	ReasonDuplicate:        "duplicate-extension",
	ReasonServerName:       "server-name",
	ReasonVersions:         "supported-versions",
	ReasonKeyShare:         "key-share",
	ReasonDigest:           "digest",
	ReasonClock:            "clock",
	ReasonNoServerName:     "no-server-name",
	ReasonOtherServerName:  "other-server-name",
	ReasonNoTLS13:          "no-tls13",
	ReasonNoGroup:          "no-group",
	ReasonReplay:           "replay",
	ReasonBeforeStart:      "before-start",
	ReasonReplayMemoryFull: "replay-memory-full",
	ReasonTimer:            "timer",
	ReasonFront:            "front",
	ReasonFIN:              "fin",
}

func (r Reason) String() string { return reasonNames[r] }
