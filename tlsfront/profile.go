package tlsfront

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Numbers of our choosing: how much of a front is kept. An honest one stays far below; a hostile one, or a damaged
// file, must not make a profile grow.
const (
	MaxExtensions    = 16 // of a ServerHello; four are defined for it
	MaxObservations  = 64 // of a front's flight, per kind of hello; one is drawn by a byte, so at most 256
	MaxFlightRecords = 64 // of one flight
	MaxTickets       = 16

	// MinRecord is the shortest payload of a record that carries anything: a byte, its content type, the AEAD tag.
	MinRecord = 1 + 1 + 16
)

// Profile is what is known of a front's TLS. Immutable once it was handed out: loops share it by pointer. A nil Profile
// says that nothing is known yet.
type Profile struct {
	Flights [NumHelloKinds]Flight `json:"flights"` // by the kind of hello that it answers
	// Tickets are the payload lengths of the records that the front sends right after the client's Finished, in order:
	// NewSessionTickets, mostly. May be empty.
	Tickets []int `json:"tickets,omitempty"`
	// How the front ends a connection: behind the client's FIN, and of itself.
	AfterClient Farewell `json:"after-client,omitempty"`
	OfItself    Farewell `json:"of-itself,omitempty"`
}

// Farewell says whether a server sends a close_notify before its FIN.
type Farewell uint8

const (
	FarewellUnknown Farewell = iota
	FarewellSaid
	FarewellOmitted
	numFarewells
)

// SaysFarewell reports whether the front sends a close_notify before its FIN, when the client's FIN came first or when
// it ends a connection of itself. Unless more is known it is taken for nginx, which answers a FIN with nothing else.
func (p *Profile) SaysFarewell(clientFirst bool) bool {
	switch {
	case p == nil:
		return !clientFirst
	case clientFirst:
		return p.AfterClient == FarewellSaid
	}
	return p.OfItself != FarewellOmitted
}

// Flight is how a front answers one kind of ClientHello.
type Flight struct {
	OK    bool `json:"ok"`              // with a ServerHello of TLS 1.3: no HelloRetryRequest, no alert, no TLS 1.2
	Retry bool `json:"retry,omitempty"` // with a HelloRetryRequest

	// The ServerHello's, zero where none came.
	Version         uint16   `json:"version,omitempty"` // negotiated: 0x0304, 0x0303, …
	Suite           uint16   `json:"suite,omitempty"`
	Group           uint16   `json:"group,omitempty"`
	Extensions      []uint16 `json:"extensions,omitempty"` // in order
	EchoesSessionID bool     `json:"echoes-session-id,omitempty"`

	// Records are the payload lengths of the application data records behind it, up to the first pause: one list per
	// observation, none of them empty.
	Records [][]int `json:"records,omitempty"`
}

// Validate reports what no scout can have seen, or would have kept: lists beyond the bounds above, lengths that no
// record has, a TLS 1.3 answer of another version.
func (p *Profile) Validate() error {
	for k := range p.Flights {
		if err := p.Flights[k].validate(); err != nil {
			return fmt.Errorf("flight for hello %v: %w", HelloKind(k), err)
		}
	}
	if err := validLengths(p.Tickets, MaxTickets); err != nil {
		return fmt.Errorf("tickets: %w", err)
	}
	if p.AfterClient >= numFarewells || p.OfItself >= numFarewells {
		return fmt.Errorf("farewells %d and %d are not known", p.AfterClient, p.OfItself)
	}
	return nil
}

func (f *Flight) validate() error {
	switch {
	case f.OK && (f.Retry || f.Version != versionTLS13):
		return fmt.Errorf("a ServerHello of TLS 1.3, but version %04x, HelloRetryRequest %v", f.Version, f.Retry)
	case len(f.Extensions) > MaxExtensions:
		return fmt.Errorf("%d extensions, more than %d", len(f.Extensions), MaxExtensions)
	case len(f.Records) > MaxObservations:
		return fmt.Errorf("%d observations, more than %d", len(f.Records), MaxObservations)
	}
	for _, records := range f.Records {
		if len(records) == 0 {
			return errors.New("an observation of no records")
		}
		if err := validLengths(records, MaxFlightRecords); err != nil {
			return fmt.Errorf("records: %w", err)
		}
	}
	return nil
}

func validLengths(lengths []int, most int) error {
	if len(lengths) > most {
		return fmt.Errorf("%d, more than %d", len(lengths), most)
	}
	if i := slices.IndexFunc(lengths, func(n int) bool { return n < MinRecord || n > MaxRecord }); i >= 0 {
		return fmt.Errorf("a payload of %d bytes, which no record of TLS 1.3 has", lengths[i])
	}
	return nil
}

// UnmarshalJSON refuses what Validate does, and leaves p as it was then: a state file may be damaged. It reads as much
// as it is given, so whoever reads the file bounds it.
func (p *Profile) UnmarshalJSON(b []byte) error {
	type plain Profile // without this method
	var read plain
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	if err := (*Profile)(&read).Validate(); err != nil {
		return err
	}
	*p = Profile(read)
	return nil
}

// kind returns which kind of hello this one is nearest to. A server answers these differently: it chooses a suite by
// the first ones, a group by the shares, and to Encrypted Client Hello it may send its keys.
func (h *Hello) kind() HelloKind {
	switch o := &h.offer; {
	case o.suite == suiteAES256GCM:
		return HelloAES256
	case o.hybrid:
		return HelloHybrid
	case o.ech:
		return HelloX25519
	}
	return HelloClassic
}

// firstSuite is the TLS 1.3 suite that hellos of this kind name first.
func (k HelloKind) firstSuite() uint16 {
	if k == HelloAES256 {
		return suiteAES256GCM
	}
	return suiteAES128GCM
}

// flight returns how the front answers this hello, nil when that is not known or cannot be imitated. A HelloRetryRequest
// is one such: no client of ours would answer it. So is a group that the hello has no share for.
func (p *Profile) flight(h *Hello) *Flight {
	if p == nil {
		return nil
	}
	f := &p.Flights[h.kind()]
	if !f.OK || suiteBit(f.Suite) == 0 || f.Group != groupX25519 && f.Group != groupX25519MLKEM768 {
		return nil
	}
	return f
}

// suite returns what the front, which answers the hello's kind with f, would choose from this offer. One that gave
// every kind of hello what that named first goes by the client's order (OpenSSL as it comes); any other has an order of
// its own (Go), of which f shows the head.
func (p *Profile) suite(f *Flight, o *offer) uint16 {
	if p.followsClient() || !o.offers(f.Suite) {
		return o.suite
	}
	return f.Suite
}

func (p *Profile) followsClient() bool {
	for k := range p.Flights {
		if f := &p.Flights[k]; f.OK && f.Suite != HelloKind(k).firstSuite() {
			return false
		}
	}
	return true
}

// sharesFirst reports whether key_share comes before supported_versions (BoringSSL). These are all the extensions that
// a ServerHello can have to a client without a pre-shared key.
func (f *Flight) sharesFirst() bool {
	shares, versions := slices.Index(f.Extensions, extensionKeyShare), slices.Index(f.Extensions, extensionSupportedVersions)
	return shares >= 0 && shares < versions
}

// inOneRecord returns the payload of one record that makes a flight as many bytes on the wire as the front's was.
func inOneRecord(records []int) int {
	n := -RecordHeaderLen
	for _, payload := range records {
		n += RecordHeaderLen + payload
	}
	return n
}
