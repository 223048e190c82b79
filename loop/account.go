package loop

import (
	"mtrelay/relay"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

// What a pair counts and logs about its session.

// StatsLabels returns the closed sets of labels that the loops count by.
func StatsLabels(secrets []tlsfront.Secret) stats.Labels {
	l := stats.Labels{DCs: relay.DCLabels()}
	for _, s := range secrets {
		l.Secrets = append(l.Secrets, s.Name)
	}
	for _, s := range relay.States() {
		l.States = append(l.States, s.String())
	}
	for r := range tlsfront.NumReasons {
		l.FrontReasons = append(l.FrontReasons, r.String())
	}
	for _, r := range relay.Reasons() {
		l.EndReasons = append(l.EndReasons, r.String())
	}
	l.FrontReasons[tlsfront.ReasonNone] = "" // not shown
	l.EndReasons[relay.ReasonNotEnded] = ""
	return l
}

// track moves the pair to its session's state in the counters.
func (p *pair) track() {
	if state := p.session.State(); state != p.state {
		p.loop.opts.Stats.Move(int(p.state), int(state))
		p.state = state
	}
}

// counted returns the counters of the pair's upstream.
func (p *pair) counted() *stats.Upstream {
	if p.fronted {
		return &p.loop.opts.Stats.Front
	}
	return &p.loop.opts.Stats.DCs[p.dc]
}

// owner returns the counters of the secret that the client proved to hold, nil if it did not.
func (p *pair) owner() *stats.Secret {
	if p.session.Verdict() != tlsfront.Accepted {
		return nil
	}
	return p.loop.opts.Stats.Secrets[p.session.Secret()]
}

// count adds bytes that leave for the upstream and for the client. Before there is an upstream it is a
// handshake, which counts for nobody.
func (p *pair) count(up, down int) {
	if p.upstream().fd < 0 || up+down == 0 {
		return
	}
	to := p.counted()
	to.Up.Add(up)
	to.Down.Add(down)
	if c := p.owner(); c != nil {
		c.Up.Add(up)
		c.Down.Add(down)
	}
}

// judged is called once, when the verdict on the client's ClientHello falls.
func (p *pair) judged() {
	p.leaveUnproven()
	s := &p.session
	if s.Verdict() == tlsfront.Accepted {
		p.loop.opts.Stats.Handshakes.Inc()
		p.owner().Handshakes.Inc()
		p.owner().Open.Inc()
		p.loop.recent.note(p.address.Addr(), s.Secret())
		p.loop.report.log.Debug().Stringer("client", p.address).Str("secret", p.loop.opts.Secrets[s.Secret()].Name).Msg("accepted")
		return
	}
	p.loop.opts.Stats.ToFront[s.FrontReason()].Inc()
	p.loop.report.sentToFront(s.FrontReason(), p.address, s.Skew())
	p.loop.report.log.Debug().Stringer("client", p.address).Stringer("reason", s.FrontReason()).Msg("sent to the front")
}

// finished is called once, when the pair closes.
func (p *pair) finished() {
	s := &p.session
	p.loop.opts.Stats.Connections[p.state].Dec()
	p.loop.opts.Stats.Ended[s.EndReason()].Inc()
	if s.EndReason() == relay.ReasonFrontUnreachable {
		p.loop.opts.Stats.FrontUnreachable.Inc()
	}
	p.loop.report.endedRefused(s.EndReason(), p.address)
	p.leaveUnproven()
	p.leaveFront()
	if c := p.owner(); c != nil {
		c.Open.Dec()
	}
	p.loop.report.log.Debug().Stringer("client", p.address).Int("dc", s.DC()).Stringer("state", p.state).
		Stringer("reason", s.EndReason()).Dur("dur", p.loop.now.Sub(p.accepted)).Msg("ended")
}

func (p *pair) leaveUnproven() {
	if p.unproven {
		p.unproven = false
		p.loop.server.unproven.leave()
	}
}
