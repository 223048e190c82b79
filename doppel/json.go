package doppel

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const jsonVersion = 1

// modelJSON is a Model as it is stored. A record that waited has 32,768 added to its size, a full one that ended a write 8,192.
type modelJSON struct {
	Version    int           `json:"version"`
	Starts     []startJSON   `json:"starts,omitempty"`
	Steady     []step        `json:"steady,omitempty"`
	StartGaps  []uint32      `json:"start_gaps,omitempty"` // nanoseconds
	SteadyGaps []uint32      `json:"steady_gaps,omitempty"`
	DRS        DRS           `json:"drs"`
	ResetAfter time.Duration `json:"reset_after"`
	Tail       uint16        `json:"tail"`
	TailFrom   uint32        `json:"tail_from"`
	TailWaited uint32        `json:"tail_waited"`
	Quality    Quality       `json:"quality"`
}

type startJSON struct {
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes,omitempty"`
	Steps  []step `json:"steps"`
}

// MarshalJSON implements json.Marshaler.
func (m *Model) MarshalJSON() ([]byte, error) {
	j := modelJSON{
		Version: jsonVersion, Steady: m.steady,
		StartGaps: m.startGaps.entries(), SteadyGaps: m.steadyGaps.entries(),
		DRS: m.drs, ResetAfter: m.resetAfter, Tail: m.tail, TailFrom: m.tailFrom, TailWaited: m.tailWaited, Quality: m.quality,
	}
	for _, s := range m.starts {
		j.Starts = append(j.Starts, startJSON{s.offset, s.bytes, s.steps})
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements json.Unmarshaler. What it takes is within the bounds of what Learn makes; on an error m is unchanged.
func (m *Model) UnmarshalJSON(b []byte) error {
	var j modelJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("doppel: model: %w", err)
	}
	if err := j.check(); err != nil {
		return fmt.Errorf("doppel: model: %w", err)
	}
	*m = Model{
		steady: j.Steady, drs: j.DRS, resetAfter: j.ResetAfter,
		tail: j.Tail, tailFrom: j.TailFrom, tailWaited: j.TailWaited, quality: j.Quality,
	}
	copy(m.startGaps[:], j.StartGaps)
	copy(m.steadyGaps[:], j.SteadyGaps)
	for _, s := range j.Starts {
		m.starts = append(m.starts, start{s.Offset, s.Bytes, s.Steps})
	}
	m.arrange()
	return nil
}

// entries is nil for a table that was not made.
func (t *gapTable) entries() []uint32 {
	if t[cells] == 0 {
		return nil
	}
	return t[:]
}

func (j *modelJSON) check() error {
	steps := 0
	for _, s := range j.Starts {
		steps += len(s.Steps)
		if s.Offset < greeting || s.Bytes < 0 || s.Bytes > math.MaxInt32 || len(s.Steps) == 0 || len(s.Steps) > maxStartLen {
			return errors.New("a start without records, with too many, of no length, or before its connection")
		}
		if err := checkSteps(s.Steps); err != nil {
			return err
		}
	}
	switch {
	case j.Version != jsonVersion:
		return fmt.Errorf("version %d is not known", j.Version)
	case len(j.Starts) > maxStarts, steps > maxStartSteps, len(j.Steady) > maxSteady:
		return errors.New("too many records")
	case j.DRS > DRSOff:
		return fmt.Errorf("drs %d is not known", j.DRS)
	case j.ResetAfter < 0:
		return errors.New("reset before silence")
	case j.Tail != 0 && (j.Tail < minSize || j.Tail > maxTail), j.TailWaited > 1<<16:
		return errors.New("no such tail")
	}
	return errors.Join(checkSteps(j.Steady), checkGaps(j.StartGaps), checkGaps(j.SteadyGaps))
}

func checkSteps(steps []step) error {
	for _, s := range steps {
		if size := s &^ waited; size < minSize || size > maxSize && size != fullSize|ended {
			return fmt.Errorf("a record of %d bytes", size)
		}
	}
	return nil
}

func checkGaps(gaps []uint32) error {
	switch {
	case len(gaps) == 0:
		return nil
	case len(gaps) != cells+1:
		return errors.New("no table of gaps")
	case !slices.IsSorted(gaps) || gaps[cells] > uint32(MaxGap):
		return errors.New("gaps out of order or too long")
	}
	return nil
}
