package loop

import (
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"mtrelay/relay"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

// Options is all that the loops need to know. It is read at Start and not changed afterwards.
type Options struct {
	Listen    []netip.AddrPort
	Public    []netip.Addr // addresses under which this machine is reached, where they are not its own
	ReusePort bool         // share the ports with another process that also sets this
	Loops     int          // 0: one per processor

	MaxConnections int // clients at a time; the next one is answered with RST
	MaxUnproven    int // clients at a time that have not shown yet what they are; the next one is answered with RST
	MaxFronted     int // connections to fronts at a time; the next stranger is answered with RST

	Secrets   []tlsfront.Secret
	Tolerance time.Duration    // how far a client's clock may be off
	Replay    *tlsfront.Replay // nil: off

	Fronts       []Front
	DefaultFront int // index of the front for strangers who name none of them
	DCs          *relay.DCTable
	Prefer       relay.Prefer // the order of a front's addresses
	Reencrypt    bool

	Handshake time.Duration // from accept to the client's init
	Connect   time.Duration // one attempt to reach an upstream
	Idle      time.Duration
	Linger    time.Duration // for the rest of a session that ends

	Socket SocketOptions
	Stats  *stats.Stats
	Log    zerolog.Logger
}

// Front is the real site behind a secret.
type Front struct {
	ServerName string // whoever names this site in a ClientHello is sent here
	Host       string // name or address that is dialled
	Port       uint16
}

// SocketOptions are set on every socket of a client and of an upstream; 0 leaves the kernel's default.
type SocketOptions struct {
	KeepAlive         bool
	KeepAliveIdle     time.Duration // TCP_KEEPIDLE
	KeepAliveInterval time.Duration // TCP_KEEPINTVL
	KeepAliveCount    int           // TCP_KEEPCNT
	UserTimeout       time.Duration // TCP_USER_TIMEOUT
	NotSentLowat      int           // TCP_NOTSENT_LOWAT toward clients, bytes
	WindowClamp       int           // TCP_WINDOW_CLAMP toward upstreams, bytes
}
