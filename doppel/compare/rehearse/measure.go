package rehearse

import (
	"context"
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

	// Until when, in shares of the time for a front, its hellos, its visits and our imitation of these may take. The last
	// takes as long as the second, since it rests where the front did; what is left is for downloads.
	hellosShare = 0.25
	visitShare  = 0.5
	oursShare   = 0.85

	downloadShare = 14 // a download takes no more than this part of the time
)

// pauses are what connections rest before their last fetch, in turn: a long one at first, since record sizes may begin
// anew behind it, and both halves need one.
var pauses = []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond, 0, 0, 500 * time.Millisecond, 0, 0, 0}

// Shape says how the proxy would imitate a front.
type Shape struct {
	URLs    []string // what is fetched of the front; empty: its root page
	DRS     doppel.DRS
	MinRate int                               // bytes/s, for the report only
	Model   func(*doppel.Model) *doppel.Model // what sessions follow when that was learned, which may be nil; nil: full records
}

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
		return fmt.Errorf("front %s: unreachable: it has no address, or none that does not lead back to us", m.report.Front)
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
	flights, err := m.flights(ctx)
	if err != nil {
		return err
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

// flights observes how the front answers the hellos, as often as there is time for.
func (m *measurement) flights(ctx context.Context) (flights [tlsfront.NumHelloKinds][]tlsfront.Flight, err error) {
	ctx, cancel := context.WithDeadline(ctx, m.until(hellosShare))
	defer cancel()
	for range flightRepeats {
		for k := range flights {
			f, err := m.flight(ctx, tlsfront.HelloKind(k))
			switch {
			case err == nil:
				flights[k] = append(flights[k], f)
			case ctx.Err() != nil:
				return flights, nil
			case scout.Unreachable(err):
				return flights, fmt.Errorf("front %s: %w", m.report.Front, err)
			default:
				m.problem(err.Error())
			}
			rest(ctx, between)
		}
	}
	return flights, nil
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
	model := doppel.Learn(learned, m.shape.DRS)
	look.Shape = m.shape.Model(model)
	r.Scaled = look.Shape != nil && look.Shape != model
	s.server.SetLook(m.front, look)
	if err := m.replies(ctx); err != nil {
		return err
	}
	ours, err := m.imitate(ctx, judged)
	if err != nil {
		return err
	}
	r.Theirs, r.Ours = compare.NewSample(judged), compare.NewSample(ours)
	if other := compare.NewSample(learned); len(m.visits) > 1 && min(len(other.Sizes), len(r.Theirs.Sizes)) >= compare.FewRecords {
		floor := compare.Distance(other, r.Theirs)
		r.Floor = &floor
	}
	return m.speeds(ctx, look)
}

// imitate has the proxy do what the front did, as much of it as there is time for.
func (m *measurement) imitate(ctx context.Context, theirs []doppel.Trace) (ours []doppel.Trace, err error) {
	ctx, cancel := context.WithDeadline(ctx, m.until(oursShare))
	defer cancel()
	for _, t := range theirs {
		trace, cut, err := m.stage.imitate(ctx, m.front, t, m.report.Profile.Tickets)
		if ctx.Err() != nil && len(ours) > 0 {
			break // what was cut short is not like the others
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		ours = append(ours, trace)
		if len(cut) > len(m.report.Tickets) {
			m.report.Tickets = cut
		}
	}
	return ours, nil
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
	limit := min(downloadTime, m.limit/downloadShare)
	if t.Shaped, err = m.stage.download(ctx, m.front, limit); err != nil {
		return err
	}
	m.stage.server.SetLook(m.front, &relay.Look{TLS: look.TLS})
	t.Unshaped, err = m.stage.download(ctx, m.front, limit)
	return err
}
