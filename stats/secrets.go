package stats

import "github.com/VictoriaMetrics/metrics"

// maxSecretSeries bounds the secrets with series of their own; the rest share those of otherSecrets.
const maxSecretSeries = 200

const otherSecrets = "other"

// Secret counts the clients that hold one secret.
type Secret struct {
	Handshakes *metrics.Counter // ClientHellos accepted
	Open       *metrics.Gauge   // connections
	Up, Down   *metrics.Counter // bytes from and to the clients
}

// newSecrets makes the counters for the secrets of these names, in their order.
func newSecrets(set *metrics.Set, names []string) []*Secret {
	all := make([]*Secret, len(names))
	var other *Secret
	for i, name := range names {
		switch {
		case i < maxSecretSeries && name != otherSecrets:
			all[i] = newSecret(set, name)
		case other == nil:
			other = newSecret(set, otherSecrets)
			fallthrough
		default:
			all[i] = other
		}
	}
	return all
}

func newSecret(set *metrics.Set, name string) *Secret {
	return &Secret{
		Handshakes: set.NewCounter(series("mtrelay_secret_handshakes_total", "secret", name)),
		Open:       set.NewGauge(series("mtrelay_secret_connections", "secret", name), nil),
		Up:         set.NewCounter(series("mtrelay_secret_bytes_total", "secret", name, "direction", "up")),
		Down:       set.NewCounter(series("mtrelay_secret_bytes_total", "secret", name, "direction", "down")),
	}
}

// secret is what /stats says of one.
type secret struct {
	Handshakes  uint64 `json:"handshakes"`
	Connections int64  `json:"connections"`
	Up          uint64 `json:"up"`
	Down        uint64 `json:"down"`
}

// secretsByName lists the secrets that have counters of their own, and what the others share.
func (s *Stats) secretsByName() map[string]secret {
	all := make(map[string]secret)
	for i, c := range s.Secrets {
		name := s.labels.Secrets[i]
		if i >= maxSecretSeries {
			name = otherSecrets
		}
		all[name] = secret{c.Handshakes.Get(), int64(c.Open.Get()), c.Up.Get(), c.Down.Get()}
	}
	return all
}
