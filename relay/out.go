package relay

import "net/netip"

// Side is one of a session's two sockets.
type Side uint8

const (
	Client   Side = iota // who connected to us
	Upstream             // whom we dialled: a DC or the front
)

// End says how one direction of a socket ended.
type End uint8

const (
	EndFIN   End = iota // the peer's FIN was read
	EndReset            // reading failed: RST or a timeout of the kernel
	EndWrite            // writing to that side failed; it may still have bytes to be read
)

// Dial says what the loop must connect the session to.
type Dial uint8

const (
	DialNone  Dial = iota
	DialDC         // Out.Targets
	DialFront      // Out.Front
)

// Close says when the loop must close both sockets and call Release.
type Close uint8

const (
	CloseNone    Close = iota
	CloseDrained       // once the bytes queued for both sides and the pending FIN or RST are out
	CloseNow
)

// Out is what one call decided. The loop clears it before each call and carries it out afterwards.
type Out struct {
	// Client and Upstream are to be written, in order. They may alias the input, the scratch buffer or the
	// loop's Env; they are valid until the next call into any session of the loop.
	Client, Upstream []byte

	ShutClient, ShutUpstream   bool // FIN to that side after all bytes queued for it
	ResetClient, ResetUpstream bool // RST to that side after all bytes queued for it

	DropUpstream bool // close the upstream, or give up its dial; comes before Dial

	Dial    Dial
	Targets []netip.AddrPort // DialDC: in the order to be tried; shared, not to be changed
	Front   int              // DialFront: index of the front

	// SelfProbe is the session id of a hello that the proxy itself sent to its front and that came back: the
	// front leads to us, or somebody copied the hello. nil else, and valid until the next call.
	SelfProbe []byte

	Judged bool // the verdict on the ClientHello fell in this call: see Session.Verdict
	Again  bool // there is more to do without new bytes: call Continue on a later turn
	Close  Close
}
