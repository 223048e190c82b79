package main

import (
	"testing"
	"time"

	"mtrelay/conf"
	"mtrelay/doppel"
	"mtrelay/doppel/scout"
	"mtrelay/relay"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

// response is one of full records, each of them a while behind the one before, and a shorter one.
func response(records int, gap time.Duration) doppel.Trace {
	b := doppel.Burst{}
	for i := range records {
		b.Records = append(b.Records, doppel.Record{At: time.Duration(i) * gap, Size: tlsfront.FullRecord})
	}
	b.Records = append(b.Records, doppel.Record{At: time.Duration(records) * gap, Size: 700})
	return doppel.Trace{Bursts: []doppel.Burst{b}}
}

func TestDRSValues(t *testing.T) {
	for ours, theirs := range map[conf.DRS]doppel.DRS{conf.DRSAuto: doppel.DRSAuto, conf.DRSOn: doppel.DRSOn, conf.DRSOff: doppel.DRSOff} {
		if doppel.DRS(ours) != theirs {
			t.Errorf("%d is %d", ours, theirs)
		}
	}
}

// TestShape: who learned nothing shapes nothing, and gaps give way to min-rate.
func TestShape(t *testing.T) {
	auto, faithful := &conf.Doppelganger{MinRate: 20 << 20}, &conf.Doppelganger{}
	if shapeOf(nil, false, auto) != nil {
		t.Error("a model of nothing")
	}
	page := doppel.Learn([]doppel.Trace{response(0, 0)}, doppel.DRSAuto)
	if page == nil || shapeOf(page, false, auto) != nil {
		t.Error("one record is a shape")
	}
	if shapeOf(page, true, auto) == nil {
		t.Error("tickets are not imitated for want of a shape")
	}
	if forced := doppel.Learn([]doppel.Trace{response(0, 0)}, doppel.DRSOn); shapeOf(forced, false, &conf.Doppelganger{DRS: conf.DRSOn}) == nil {
		t.Error("drs = on is forgotten when there is nothing to learn")
	}
	slow := doppel.Learn([]doppel.Trace{response(40, 10*time.Millisecond)}, doppel.DRSAuto)
	if shapeOf(slow, false, faithful) != slow || shapeOf(slow, false, auto) == slow || shapeOf(slow, false, auto) == nil {
		t.Error("min-rate is not followed")
	}
}

func TestLookSummary(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	seen := &scout.Look{TLS: new(tlsfront.Profile), Source: scout.SourceState, At: at, Problems: []string{"a", "b"}}
	if got, want := lookSummary(seen, new(relay.Look)), (stats.Look{At: at, Source: stats.LookState, Problems: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	seen = &scout.Look{TLS: new(tlsfront.Profile), Source: scout.SourceRaid, At: at, Shape: doppel.Learn([]doppel.Trace{response(40, 0)}, doppel.DRSAuto)}
	seen.TLS.Flights[tlsfront.HelloHybrid].OK = true
	want := stats.Look{At: at, Source: stats.LookRaid, TLS13: true, Shaped: true, Connections: 1, Bursts: 1, Records: 41}
	if got := lookSummary(seen, &relay.Look{Shape: seen.Shape}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestStateDirectory(t *testing.T) {
	for _, test := range []struct{ configured, systemd, want string }{
		{"", "", ""},
		{"", "/var/lib/mtrelay:/var/lib/more", "/var/lib/mtrelay"},
		{"/srv/state", "/var/lib/mtrelay", "/srv/state"},
	} {
		t.Setenv("STATE_DIRECTORY", test.systemd)
		if got := stateDirectory(&conf.Config{StateDirectory: test.configured}); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}
