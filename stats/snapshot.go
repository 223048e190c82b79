package stats

import "github.com/VictoriaMetrics/metrics"

// snapshot is the answer to /stats. The format is stable: fields may be added, none is renamed or removed.
// Every object that counts by name holds all names of its closed set, also those that are 0.
//
//	{
//	  "version": "v1.2.0",
//	  "uptime_seconds": 3600,
//	  "connections": {                 open now
//	    "total": 1300,
//	    "relayed": 1200,               in the state "relay"
//	    "by_state": {"hello": 3, …}
//	  },
//	  "accepts": {                     since the start
//	    "accepted": 51000,             connections taken from a listener and let in
//	    "errors": {"EMFILE": 0, …},    failed accepts
//	    "refused": {"unproven": 0, …}  connections closed at once, by the limit that they hit
//	  },
//	  "handshakes": {"accepted": 50000, "front": {"digest": 12, …}},
//	  "front_unreachable": 0,
//	  "ended": {"client-closed": 48000, …},
//	  "bytes": {                       up is from the client, down is to the client
//	    "relay": {"up": 1, "down": 1},
//	    "front": {"up": 1, "down": 1}
//	  },
//	  "secrets": {                     the first 200 by name, the rest as "other"
//	    "alice": {"handshakes": 9, "connections": 2, "up": 1, "down": 1}
//	  },
//	  "dial_failures": {"relay": 0, "front": 0},
//	  "looks": {                       how each site looks that sessions imitate; null until it was seen, {} when none is imitated
//	    "www.example.com": {
//	      "age_seconds": 60,           since it was seen so
//	      "source": "raid",            of this process; or "state": stored by an earlier one
//	      "tls13": true,               it answers as our replies can; else the first records of a session give us away
//	      "shaped": true,              downlinks follow its record sizes and gaps; else there was too little to learn from
//	      "connections": 20,           what that was learned from
//	      "bursts": 40,                responses
//	      "records": 1280,
//	      "problems": 0                what the log told about it
//	    }
//	  },
//	  "rss_bytes": 9000000,
//	  "bytes_per_connection": 2000,    marginal: (rss_bytes - rss_bytes without connections) / relayed
//	  "connections_per_gb": 143165,    relayed / (rss_bytes in GiB)
//	  "marginal_connections_per_gb": 536870,
//	  "cgroup": {                      null where the system does not account memory by control group
//	    "memory_bytes": 30000000,      page cache and kernel memory included
//	    "socket_bytes": 8000000,       the part of it that sockets take; 0 where v1 does not account it
//	    "bytes_per_connection": 9000, "connections_per_gb": 42949, "marginal_connections_per_gb": 119304
//	  }
//	}
//
// The figures per connection and per GB are null under 100 relayed connections, the marginal ones also while
// memory is not above its baseline.
type snapshot struct {
	Version       string      `json:"version"`
	UptimeSeconds int64       `json:"uptime_seconds"`
	Connections   connections `json:"connections"`
	Accepts       accepts     `json:"accepts"`
	Handshakes    handshakes  `json:"handshakes"`

	FrontUnreachable uint64            `json:"front_unreachable"`
	Ended            map[string]uint64 `json:"ended"`
	Bytes            traffic[updown]   `json:"bytes"`
	Secrets          map[string]secret `json:"secrets"`
	DialFailures     traffic[uint64]   `json:"dial_failures"`
	Looks            map[string]*look  `json:"looks"`

	RSSBytes int64 `json:"rss_bytes"`
	perConnection
	Cgroup *cgroup `json:"cgroup"`
}

type connections struct {
	Total   int64            `json:"total"`
	Relayed int64            `json:"relayed"`
	ByState map[string]int64 `json:"by_state"`
}

type accepts struct {
	Accepted uint64            `json:"accepted"`
	Errors   map[string]uint64 `json:"errors"`
	Refused  map[string]uint64 `json:"refused"`
}

type handshakes struct {
	Accepted uint64            `json:"accepted"`
	Front    map[string]uint64 `json:"front"`
}

// traffic tells connections to Telegram from those to the front.
type traffic[T any] struct {
	Relay T `json:"relay"`
	Front T `json:"front"`
}

type updown struct {
	Up   uint64 `json:"up"`
	Down uint64 `json:"down"`
}

type cgroup struct {
	MemoryBytes int64 `json:"memory_bytes"`
	SocketBytes int64 `json:"socket_bytes"`
	perConnection
}

func (s *Stats) snapshot() snapshot {
	u := s.memory.read()
	c := s.connections()
	snap := snapshot{
		Version:          s.version,
		UptimeSeconds:    int64(s.now().Sub(s.start).Seconds()),
		Connections:      c,
		Accepts:          s.accepts(),
		Handshakes:       handshakes{Accepted: s.Handshakes.Get(), Front: byName(s.labels.FrontReasons, s.ToFront)},
		FrontUnreachable: s.FrontUnreachable.Get(),
		Ended:            byName(s.labels.EndReasons, s.Ended),
		Secrets:          s.secretsByName(),
		Looks:            s.looksByFront(),
		RSSBytes:         u.rss,
		perConnection:    divide(c.Relayed, u.rss, s.base.rss),
	}
	snap.Bytes.Relay, snap.DialFailures.Relay = sum(s.DCs)
	snap.Bytes.Front, snap.DialFailures.Front = sum([]Upstream{s.Front})
	if u.cgroup > 0 {
		snap.Cgroup = &cgroup{u.cgroup, u.sockets, divide(c.Relayed, u.cgroup, s.base.cgroup)}
	}
	return snap
}

func (s *Stats) connections() connections {
	c := connections{Relayed: s.count(s.relayed), ByState: make(map[string]int64)}
	for i, state := range s.labels.States {
		n := s.count(i)
		c.ByState[state] = n
		c.Total += n
	}
	return c
}

// count returns how many connections are in a state.
func (s *Stats) count(state int) int64 { return int64(s.Connections[state].Get()) }

func (s *Stats) accepts() accepts {
	a := accepts{
		Accepted: s.Accepted.Get(),
		Errors:   map[string]uint64{"other": s.acceptErrors[otherErrno].Get()},
		Refused:  byName(limitNames[:], s.Refused[:]),
	}
	for errno, name := range acceptErrnos {
		a.Errors[name] = s.acceptErrors[errno].Get()
	}
	return a
}

func byName(names []string, counters []*metrics.Counter) map[string]uint64 {
	m := make(map[string]uint64, len(names))
	for i, name := range names {
		if name != "" {
			m[name] = counters[i].Get()
		}
	}
	return m
}

func sum(upstreams []Upstream) (bytes updown, dialFailures uint64) {
	for _, u := range upstreams {
		bytes.Up += u.Up.Get()
		bytes.Down += u.Down.Get()
		dialFailures += u.DialFailures.Get()
	}
	return bytes, dialFailures
}
