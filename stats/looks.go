package stats

import (
	"io"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Look is what is known of a front that sessions are to look like.
type Look struct {
	At     time.Time // when it was seen
	Source LookSource
	TLS13  bool // it answers a Telegram client's hello with TLS 1.3, so that our replies can look like it
	Shaped bool // downlinks follow its sizes and gaps

	Connections, Bursts, Records int // that the shape was learned from

	Problems int // that the operator was told of
}

// LookSource is where a Look comes from.
type LookSource uint8

const (
	LookRaid  LookSource = iota // this process looked
	LookState                   // an earlier one did, and stored it
	numLookSources
)

var lookSourceNames = [numLookSources]string{"raid", "state"}

// String returns the metric label.
func (l LookSource) String() string { return lookSourceNames[l] }

// SetLook shows what is known of a front now, an index of Labels.Fronts. Safe for concurrent use.
func (s *Stats) SetLook(front int, l Look) { s.looks[front].Store(&l) }

// age is how old a look is. A clock that was set back makes it no younger than now.
func (s *Stats) age(l *Look) time.Duration { return max(0, s.now().Sub(l.At)) }

// look is what /stats says of one.
type look struct {
	AgeSeconds  int64  `json:"age_seconds"`
	Source      string `json:"source"`
	TLS13       bool   `json:"tls13"`
	Shaped      bool   `json:"shaped"`
	Connections int    `json:"connections"`
	Bursts      int    `json:"bursts"`
	Records     int    `json:"records"`
	Problems    int    `json:"problems"`
}

func (s *Stats) looksByFront() map[string]*look {
	all := make(map[string]*look, len(s.looks))
	for i, front := range s.labels.Fronts {
		all[front] = nil
		if l := s.looks[i].Load(); l != nil {
			all[front] = &look{
				int64(s.age(l).Seconds()), l.Source.String(), l.TLS13, l.Shaped, l.Connections, l.Bursts, l.Records, l.Problems,
			}
		}
	}
	return all
}

// writeLooks writes to /metrics what is known of each front. One that was not seen yet has no age, and 0 in every source.
func (s *Stats) writeLooks(w io.Writer) {
	for i, front := range s.labels.Fronts {
		l := s.looks[i].Load()
		for source := range numLookSources {
			from := l != nil && l.Source == source
			metrics.WriteGaugeUint64(w, series("mtrelay_front_look", "front", front, "source", source.String()), bit(from))
		}
		if l != nil {
			s.writeLook(w, front, l)
		}
	}
}

func (s *Stats) writeLook(w io.Writer, front string, l *Look) {
	write := func(name string, n uint64, more ...string) {
		metrics.WriteGaugeUint64(w, series(name, append([]string{"front", front}, more...)...), n)
	}
	write("mtrelay_front_look_age_seconds", uint64(s.age(l).Seconds()))
	write("mtrelay_front_tls13", bit(l.TLS13))
	write("mtrelay_front_shaped", bit(l.Shaped))
	write("mtrelay_front_look_observed", uint64(l.Connections), "what", "connections")
	write("mtrelay_front_look_observed", uint64(l.Bursts), "what", "bursts")
	write("mtrelay_front_look_observed", uint64(l.Records), "what", "records")
	write("mtrelay_front_look_problems", uint64(l.Problems))
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
