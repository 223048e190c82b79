package doppel

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// Model is how a site sizes and spaces its records. It is immutable and safe for concurrent use.
type Model struct {
	starts  []start // beginnings of bursts: by class, the longest first
	classes [numClasses]classStarts
	steady  []step // what comes behind them; empty means full records

	startGaps, steadyGaps gapTable

	drs        DRS           // DRSOn: no record is longer than goLimit
	resetAfter time.Duration // silence of the downlink that resets the growth of records; 0: never

	tail       uint16 // size of the record that a server appends to its responses; 0: none
	tailFrom   uint32 // bytes of payload that a response has at least which gets one
	tailWaited uint32 // how often there is a gap before it, of 1<<16

	quality Quality
}

// start is the first records of a burst that was observed.
type start struct {
	offset int // bytes that its connection had sent before, since the last reset; or greeting
	bytes  int // of its response, as far as it was seen
	steps  []step
}

// Bounds of a model, which takes 64 KiB at most in memory and a little more as JSON.
const (
	maxStarts     = 256
	maxStartSteps = 4096 // of all starts
	maxStartLen   = 128  // of one
	maxSteady     = 4096
)

// Quality tells what a model was learned from, and how.
type Quality struct {
	Connections int           `json:"connections"`
	Bursts      int           `json:"bursts"`
	Records     int           `json:"records"`
	StartLen    int           `json:"start_len"` // records at the beginning of a burst that differ from later ones
	Starts      int           `json:"starts"`
	Steady      int           `json:"steady"` // records of the steady state
	StartGaps   GapQuality    `json:"start_gaps"`
	SteadyGaps  GapQuality    `json:"steady_gaps"`
	GrowsLikeGo bool          `json:"grows_like_go"`
	ResetAfter  time.Duration `json:"reset_after"` // nanoseconds; 0: never
	Tail        int           `json:"tail"`        // bytes of the record that ends responses; 0: none
	TailFrom    int           `json:"tail_from"`   // bytes of a response from which on it has one
}

// Quality returns what is known of the model's making; the zero Quality for Default.
func (m *Model) Quality() Quality { return m.quality }

var defaultModel = new(Model)

// Default is the model of a site that nothing is known of: full records, no gaps.
func Default() *Model { return defaultModel }

// greeting is the offset of the first burst of a connection, where that is unlike all others: a server of HTTP/2 begins with
// its SETTINGS.
const greeting = -1

// Starts are in classes by the logarithm of their offset: class 0 are greetings, class 1 those of a connection that is fresh
// or was reset.
const (
	numClasses = 15
	freshClass = 1
)

// classStarts is a range of Model.starts.
type classStarts struct{ low, high uint16 }

func classOf(offset int) int {
	switch {
	case offset < 0:
		return 0
	case offset == 0:
		return freshClass
	}
	return min(freshClass+1+bits.Len(uint(offset)>>10), numClasses-1)
}

// arrange sorts the starts and makes every later class lead to the nearest one that has some.
func (m *Model) arrange() {
	slices.SortStableFunc(m.starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(classOf(a.offset), classOf(b.offset)), cmp.Compare(len(b.steps), len(a.steps)))
	})
	var own [numClasses]classStarts
	for i, s := range m.starts {
		c := &own[classOf(s.offset)]
		if c.high == 0 {
			c.low = uint16(i)
		}
		c.high = uint16(i + 1)
	}
	m.classes = own
	if own[0].high == 0 {
		m.classes[0] = own[freshClass]
	}
	for class := freshClass + 1; class < numClasses; class++ {
		for d := 1; d < numClasses && m.classes[class].high == 0; d++ {
			for _, near := range [2]int{class + d, class - d} {
				if near < numClasses && near >= freshClass && own[near].high > 0 {
					m.classes[class] = own[near]
					break
				}
			}
		}
	}
}

// Tail is the size of the small record that the site appends to its responses, 0 when it does not. Only with a tail is it worth
// asking how many bytes are there before Pacer.NextOf.
func (m *Model) Tail() int { return int(m.tail) }
