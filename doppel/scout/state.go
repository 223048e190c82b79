package scout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
)

// Numbers of our choosing.
const (
	maxState    = 8 << 20 // bytes of a file
	maxReadable = 64      // bytes of the host in its name
)

// state is a look as it is stored, one file per front.
type state struct {
	Front    string            `json:"front"` // two hosts must never share a look
	At       time.Time         `json:"at"`
	TLS      *tlsfront.Profile `json:"tls"`
	Shape    *doppel.Model     `json:"shape,omitempty"`
	Problems []string          `json:"problems,omitempty"`
}

// load publishes the look that an earlier process stored. A file that cannot be read is left alone until the next look
// replaces it.
func (s *scout) load() {
	if s.o.StateDir == "" {
		return
	}
	look, err := readState(s.statePath(), s.front.ServerName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.log.Warn().Err(err).Msg("what was stored of the front is not usable, and ignored")
	default:
		s.publish(look)
	}
}

// save stores the current look.
func (s *scout) save() {
	if s.o.StateDir == "" {
		return
	}
	if err := writeState(s.statePath(), s.front.ServerName, s.look); err != nil {
		s.log.Warn().Err(err).Msg("what is known of the front cannot be stored, so a restart will forget it")
	}
}

func (s *scout) statePath() string { return filepath.Join(s.o.StateDir, stateName(s.front.ServerName)) }

// stateName derives a file's name: readable, and of harmless letters whatever the host is; the hash keeps two hosts apart.
func stateName(host string) string {
	sum := sha256.Sum256([]byte(host))
	readable := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' {
			return c
		}
		return '_'
	}, strings.ToLower(host))
	return "front-" + readable[:min(len(readable), maxReadable)] + "-" + hex.EncodeToString(sum[:8]) + ".json"
}

// readState reads a file that may be anything.
func readState(path, host string) (*Look, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxState {
		return nil, fmt.Errorf("%s: over %d bytes", path, maxState)
	}
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if st.Front != host || st.TLS == nil {
		return nil, fmt.Errorf("%s: it is not about this front", path)
	}
	if now := time.Now(); st.At.After(now) { // the clock was set back
		st.At = now
	}
	var told findings // bounds them, and makes them harmless
	for _, p := range st.Problems {
		told.problem(p)
	}
	return &Look{TLS: st.TLS, Shape: st.Shape, Source: SourceState, At: st.At, Problems: told.problems}, nil
}

// writeState replaces the file at once, so that neither a crash nor a reader sees half of one.
func writeState(path, host string, l *Look) error {
	b, err := json.Marshal(state{Front: host, At: l.At, TLS: l.TLS, Shape: l.Shape, Problems: l.Problems})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next := path + ".new" // one name, so that crashes do not fill the directory
	if err := writeFile(next, b); err != nil {
		_ = os.Remove(next)
		return err
	}
	return os.Rename(next, path)
}

// writeFile makes a file that is on the disk when it returns.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}
