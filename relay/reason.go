package relay

// Reason says why a session ended: the first cause, except that LingerTimeout replaces it, because then
// bytes may have been lost.
type Reason uint8

const (
	ReasonNotEnded         Reason = iota
	ReasonClientClosed            // the client's FIN came first
	ReasonClientReset             // RST, or the kernel gave the client up
	ReasonUpstreamClosed          // the FIN of the DC or front came first
	ReasonUpstreamReset           //
	ReasonClientGone              // the client left before there was an upstream
	ReasonHandshakeTimeout        // replied, but the client's init did not come in time
	ReasonBadInit                 // no transport tag known to us: another secret, or not a Telegram client
	ReasonBadRecord               // a TLS record that no client sends
	ReasonUnknownDC
	ReasonDCUnreachable
	ReasonFrontUnreachable
	ReasonIdle
	ReasonLingerTimeout // half-closed, and the remaining direction was silent for too long
	numReasons
)

var reasonNames = [numReasons]string{
	"not-ended", "client-closed", "client-reset", "upstream-closed", "upstream-reset", "client-gone",
	"handshake-timeout", "bad-init", "bad-record", "unknown-dc", "dc-unreachable", "front-unreachable",
	"idle", "linger-timeout",
}

// String returns a name that serves as a metric label.
func (r Reason) String() string { return reasonNames[r] }

// Reasons lists all reasons, for those who make a counter per reason.
func Reasons() []Reason {
	all := make([]Reason, numReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
