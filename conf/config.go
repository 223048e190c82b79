// Package conf turns a TOML file into a checked Config, and secrets into links.
//
// Load is the way in. What it returns has been checked as far as one can without a network: the loop need not doubt a
// number, and nothing in the program changes a Config after it. The file is an mtg configuration with additions: keys
// that mtg has keep their name, place and meaning.
//
// Reading goes: document.go and recover.go (bytes to keys with their lines, past what is no TOML), options.go (every key
// we know), unknown.go (the others), values.go and quantity.go (one value to its type), doppelganger.go (all of that
// table), check.go (what only the whole can tell), problem.go (everything wrong, in words).
package conf

import (
	"net/netip"
	"slices"
	"time"
)

// Config is everything that the file decides. It is not changed after Load; zero durations, sizes and counts mean what
// the comments say, never "not set".
type Config struct {
	Debug   bool
	Secrets []NamedSecret // at least one, in file order, names and keys distinct

	BindTo    []netip.AddrPort // at least one, distinct; [::] takes IPv4 too unless 0.0.0.0 with the same port is there
	ReusePort bool             // share the ports with other processes
	Loops     int              // 0: one per core

	Concurrency              int // connections at a time, 1 or more
	PreferIP                 PreferIP
	TolerateTimeSkewness     time.Duration // of a client's clock, either way
	AllowFallbackOnUnknownDC bool
	PublicIPv4, PublicIPv6   netip.Addr // for links; the zero Addr when not set

	DomainFronting DomainFronting
	DC             DC
	Reencrypt      bool // [relay] downlink
	Network        Network
	AntiReplay     AntiReplay
	Doppelganger   Doppelganger
	Stats          Stats

	StateDirectory string // where what is learned outlives the process, an absolute path; "" when the file says nothing
}

// NamedSecret is a secret with the name its owner gave it; "default" for the one of the secret option.
type NamedSecret struct {
	Name string // 1 to 32 letters, digits, and . _ - @ +
	Secret
}

// DomainFronting says where everybody without a secret goes.
type DomainFronting struct {
	Host    string // a name or an address; takes everybody; "" when each secret's own host is its front
	Port    uint16
	Default string // takes strangers whose SNI is the host of no secret; "" when there is only one front anyway

	MaxConnections int // at a time, 1 or more
}

// DC holds the [dc] overrides. No list in it is empty; relay resolves ids.
type DC struct {
	Addresses map[int][]netip.AddrPort // by DC id, -32768 to 32767 without 0
	Rest      []netip.AddrPort         // "*": for ids without a line of their own
}

// Network holds timeouts and socket options.
type Network struct {
	Timeout   Timeout
	KeepAlive KeepAlive

	UserTimeout  time.Duration // TCP_USER_TIMEOUT; 0: as the kernel likes
	NotSentLowat int           // TCP_NOTSENT_LOWAT toward the client, bytes; 0: as the kernel likes
	WindowClamp  int           // TCP_WINDOW_CLAMP toward the DC, bytes; 0: as the kernel likes
}

// Timeout bounds what a peer may keep us waiting for. All are greater than 0, but for Drain.
type Timeout struct {
	Dial      time.Duration // a TCP connection to one address of a DC or of the front (tcp)
	Handshake time.Duration // from accept to the client's 64-byte init
	Idle      time.Duration // no byte either way
	Linger    time.Duration // a closed session waits for its peer's FIN
	Drain     time.Duration // a stopping proxy lets sessions finish; 0: not at all
}

// KeepAlive holds the TCP keepalive of both sides: TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT.
type KeepAlive struct {
	Disabled       bool
	Idle, Interval time.Duration // 1 s to 32767 s
	Count          int           // 1 to 127
}

// AntiReplay holds the replay window.
type AntiReplay struct {
	Enabled bool
	MaxSize int // bytes of memory at most
}

// Stats says where /metrics, /stats and /healthz are served.
type Stats struct {
	BindTo netip.AddrPort // the zero AddrPort: not at all

	// MetricsPath is where mtg's stats.prometheus.http-path wants the metrics; they are at /metrics whatever it says.
	MetricsPath string
}

// PreferIP orders the two address families when a DC or a front has both.
type PreferIP uint8

// The four values of mtg's prefer-ip.
const (
	PreferIPv6 PreferIP = iota
	PreferIPv4
	OnlyIPv6
	OnlyIPv4
)

var preferIPNames = []string{"prefer-ipv6", "prefer-ipv4", "only-ipv6", "only-ipv4"}

func (p PreferIP) String() string { return preferIPNames[p] }

// By default one in frontedShare connections may be a fronted one, but never fewer than minFronted.
const (
	frontedShare = 4
	minFronted   = 64
)

// defaults returns the Config of a file that sets nothing. It lacks what has no default: secrets and bind-to.
func defaults() Config {
	return Config{
		Concurrency:          8192,
		TolerateTimeSkewness: 2 * time.Minute, // PROTOCOL §2; mtg's 3 s shuts out phones with a slow clock
		DomainFronting:       DomainFronting{Port: 443},
		Network: Network{
			Timeout: Timeout{
				Dial:      5 * time.Second,
				Handshake: 10 * time.Second,
				Idle:      minIdle,
				Linger:    30 * time.Second,
				Drain:     10 * time.Second,
			},
			KeepAlive:    KeepAlive{Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 9},
			NotSentLowat: 128 << 10,
			WindowClamp:  2 << 20,
		},
		AntiReplay: AntiReplay{Enabled: true, MaxSize: 16 << 20},
		Doppelganger: Doppelganger{
			Enabled: true,
			Repeats: 10, // as mtg
			Each:    6 * time.Hour,
			MinRate: 20 << 20,
		},
		Stats: Stats{
			BindTo:      netip.MustParseAddrPort("127.0.0.1:3129"),
			MetricsPath: "/metrics",
		},
	}
}

// Fronts returns the distinct hosts that strangers may be sent to, and the index of the one for those whose SNI is
// none of them. The port of each is DomainFronting.Port.
func (c *Config) Fronts() (hosts []string, fallback int) {
	if c.DomainFronting.Host != "" {
		return []string{c.DomainFronting.Host}, 0
	}
	hosts = c.Sites()
	if c.DomainFronting.Default == "" {
		return hosts, 0
	}
	if i := slices.Index(hosts, c.DomainFronting.Default); i >= 0 {
		return hosts, i
	}
	return append(hosts, c.DomainFronting.Default), len(hosts)
}
