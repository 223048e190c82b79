package rehearse

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"mtrelay/doppel"
	"mtrelay/doppel/compare"
	"mtrelay/doppel/scout"
	"mtrelay/relay"
	"mtrelay/tlsfront"
)

// Numbers of our choosing: what a rehearsal may take.
const (
	flightRepeats = 3
	maxVisits     = 24
	visitBytes    = 8 << 20  // down, of one connection to the front
	frontBytes    = 48 << 20 // of all of them
	watchedBytes  = 16 << 20 // of one connection to ourselves: what a visit brings and tickets

	downloadBytes = 256 << 20
	downloadTime  = 1500 * time.Millisecond

	between = 100 * time.Millisecond // connections to the front

	// Of the time for a front, visitShare goes to it. Our half takes as long, since it rests where the front did.
	visitShare = 0.4
	oursShare  = 0.85 // until when ours may take
)

// pauses are what connections rest before their last fetch, in turn: a long one at first, since record sizes may begin
// anew behind it, and both halves need one.
var pauses = []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond, 0, 0, 500 * time.Millisecond, 0, 0, 0}

// Shape says how the proxy would imitate.
type Shape struct {
	URLs    []string // what is fetched of the front; empty: its root page
	DRS     doppel.DRS
	MinRate int // bytes/s, see doppel.Model.Scaled
}

// ErrUnreachable says that there was no connection to the front.
var ErrUnreachable = errors.New("the front cannot be reached")

// Measure looks at a front and at what we make of it, in about the given time.
func (s *Stage) Measure(ctx context.Context, front int, shape Shape, limit time.Duration) (*compare.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m := measurement{
		stage: s, front: front, shape: shape, began: time.Now(), limit: limit,
		report: &compare.Report{Front: s.fronts[front].ServerName, Trusted: true, MinRate: shape.MinRate},
	}
	if err := m.find(s.server.FrontAddresses(front)); err != nil {
		return nil, err
	}
	if err := m.lookAtThem(ctx); err != nil {
		return nil, err
	}
	if err := m.lookAtUs(ctx); err != nil {
		return nil, err
	}
	return m.report, nil
}

// measurement is one under way.
type measurement struct {
	stage   *Stage
	front   int
	shape   Shape
	began   time.Time
	limit   time.Duration
	address []netip.AddrPort // the one in use first

	visits []scout.Visited
	report *compare.Report
}

func (m *measurement) find(addresses []netip.AddrPort) error {
	if len(addresses) == 0 {
		return fmt.Errorf("%s: %w: it has no address, or none that does not lead back to us", m.report.Front, ErrUnreachable)
	}
	m.address = addresses
	return nil
}

// until is the instant at which that share of the time is over.
func (m *measurement) until(share float64) time.Time {
	return m.began.Add(time.Duration(float64(m.limit) * share))
}

// lookAtThem observes the front. Problems are noted; only one that cannot be reached is an error.
func (m *measurement) lookAtThem(ctx context.Context) error {
	var flights [tlsfront.NumHelloKinds][]tlsfront.Flight
	for range flightRepeats {
		for k := range flights {
			f, err := m.flight(ctx, tlsfront.HelloKind(k))
			if err == nil {
				flights[k] = append(flights[k], f)
			} else if scout.Unreachable(err) {
				return fmt.Errorf("%s: %w: %w", m.report.Front, ErrUnreachable, err)
			} else {
				m.problem(err.Error())
			}
			rest(ctx, between)
		}
	}
	m.visit(ctx)
	var tickets [][]int
	for _, v := range m.visits {
		tickets = append(tickets, v.Tickets)
		if m.report.RTT == 0 || v.Trace.RTT < m.report.RTT {
			m.report.RTT = v.Trace.RTT
		}
	}
	m.report.Profile = scout.Profile(flights, tickets)
	m.report.Address = m.address[0].String()
	return nil
}

// flight tries the next address when one cannot be reached.
func (m *measurement) flight(ctx context.Context, kind tlsfront.HelloKind) (tlsfront.Flight, error) {
	for {
		f, err := scout.Flight(ctx, m.address[0], m.report.Front, kind, nil)
		if !scout.Unreachable(err) || len(m.address) == 1 || ctx.Err() != nil {
			return f, err
		}
		m.address = m.address[1:]
	}
}

// visit fetches until there is enough, or no more time, or no sense in it.
func (m *measurement) visit(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, m.until(visitShare))
	defer cancel()
	site := scout.Front{ServerName: m.report.Front, URLs: m.shape.URLs}
	bytes, failed := 0, 0
	for i := 0; i < maxVisits && bytes < frontBytes && failed < 2; i++ {
		v, err := scout.Visit(ctx, m.address[0], site, visitBytes, pauses[i%len(pauses)])
		if ctx.Err() != nil && len(m.visits) > 0 {
			return // what was cut short is not like the others
		}
		for _, p := range v.Problems {
			m.problem(p)
		}
		bytes += v.Bytes
		if len(v.Trace.Bursts) > 0 {
			m.visits = append(m.visits, v)
		} else if failed++; err != nil {
			m.problem(err.Error())
		}
		rest(ctx, between)
	}
}

func (m *measurement) problem(text string) {
	if scout.IsCertificateProblem(text) {
		m.report.Trusted = false
	}
	if !slices.Contains(m.report.Problems, text) {
		m.report.Problems = append(m.report.Problems, text)
	}
}

// halves returns every other visit. What was learned from one half is compared with the other, so that a model is
// not praised for knowing by heart; with one visit both halves are that.
func (m *measurement) halves() (learned, judged []doppel.Trace) {
	for i, v := range m.visits {
		if i%2 == 0 {
			learned = append(learned, v.Trace)
		} else {
			judged = append(judged, v.Trace)
		}
	}
	if len(judged) == 0 {
		judged = learned
	}
	return learned, judged
}

// lookAtUs has the proxy imitate what was seen.
func (m *measurement) lookAtUs(ctx context.Context) error {
	learned, judged := m.halves()
	r, s := m.report, m.stage
	look := &relay.Look{TLS: r.Profile}
	if model := doppel.Learn(learned, m.shape.DRS); model != nil {
		look.Shape = model.Scaled(m.shape.MinRate)
		r.Scaled = look.Shape != model
	}
	s.server.SetLook(m.front, look)
	if err := m.replies(ctx); err != nil {
		return err
	}
	var ours []doppel.Trace
	for _, t := range judged {
		if time.Now().After(m.until(oursShare)) {
			break
		}
		trace, cut, err := s.imitate(ctx, m.front, t, r.Profile.Tickets)
		if err != nil && ctx.Err() == nil {
			return err
		}
		ours = append(ours, trace)
		r.Tickets = cut
	}
	r.Theirs, r.Ours = compare.NewSample(judged), compare.NewSample(ours)
	if other := compare.NewSample(learned); len(m.visits) > 1 && min(len(other.Sizes), len(r.Theirs.Sizes)) >= compare.FewRecords {
		floor := compare.Distance(other, r.Theirs)
		r.Floor = &floor
	}
	return m.speeds(ctx, look)
}

// replies observes how we answer the hellos.
func (m *measurement) replies(ctx context.Context) error {
	var flights [tlsfront.NumHelloKinds][]tlsfront.Flight
	for range flightRepeats {
		for k := range flights {
			f, err := m.stage.flight(ctx, m.front, tlsfront.HelloKind(k))
			if err != nil {
				return fmt.Errorf("our own answer: %w", err)
			}
			flights[k] = append(flights[k], f)
		}
	}
	m.report.Replies = scout.Profile(flights, nil)
	return nil
}

// speeds measures downloads with and without the shape.
func (m *measurement) speeds(ctx context.Context, look *relay.Look) (err error) {
	t := &m.report.Throughput
	t.Front = m.report.Theirs.Rate
	limit := min(downloadTime, m.limit/10)
	if t.Shaped, err = m.stage.download(ctx, m.front, limit); err != nil {
		return err
	}
	m.stage.server.SetLook(m.front, &relay.Look{TLS: look.TLS})
	t.Unshaped, err = m.stage.download(ctx, m.front, limit)
	return err
}
