package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"mtrelay/tlsfront"
)

// Report is all that is known of one front and of our imitation.
type Report struct {
	Front   string
	Address string
	RTT     time.Duration // of the path to the front

	Profile  *tlsfront.Profile // theirs
	Replies  *tlsfront.Profile // ours
	Trusted  bool              // browsers would take its certificate
	Problems []string          // met on the way

	Theirs, Ours Sample
	Floor        *Distances // between two halves of theirs; nil when there were too few
	Tickets      []int      // the first records of ours, as far as they are cut like tickets
	Throughput   Throughput

	MinRate int  // bytes/s, by which gaps were shortened; 0: faithful
	Scaled  bool // they were
}

// Throughput is in bytes/s; 0 is unknown.
type Throughput struct {
	Front    float64 `json:"front"`    // its longest response
	Unshaped float64 `json:"unshaped"` // ours without a shape
	Shaped   float64 `json:"shaped"`
}

// FewRecords are too few to tell two samples apart.
const FewRecords = 50

// An observer needs a distance above what two runs of one server have, by these and by chance.
const (
	telling   = 0.10
	overFloor = 0.05
)

// tells reports whether a distance between samples of n and m is one to go by.
func tells(distance, floor float64, n, m int) bool {
	// Two samples of one distribution are that far apart in one of twenty cases (Smirnov).
	chance := 1.36 * math.Sqrt(1/float64(n)+1/float64(m))
	return distance > max(telling, floor+overFloor, chance)
}

// Distances are those of ours to theirs.
func (r *Report) Distances() Distances { return Distance(r.Theirs, r.Ours) }

// Verdict says in a sentence what an observer could tell apart.
func (r *Report) Verdict() string {
	signs := append(r.flightSigns(), r.trafficSigns()...)
	caveat := ""
	if !r.enough() {
		caveat = fmt.Sprintf(" Too few records were seen to judge traffic (%d and %d).", len(r.Theirs.Sizes), len(r.Ours.Sizes))
	}
	if len(signs) == 0 {
		return "Nothing that was measured here tells ours from the front's." + caveat
	}
	return "An observer could tell ours from the front's by " + enumerate(signs) + "." + caveat
}

// flightSigns names each difference once, by the first hello that shows it.
func (r *Report) flightSigns() (signs []string) {
	known := make(map[string]bool)
	for _, p := range Flights(r.Profile, r.Replies) {
		for _, d := range p.differences() {
			what, _, _ := strings.Cut(d, " (")
			if known[what] {
				continue
			}
			known[what] = true
			if p.Hello != tlsfront.HelloHybrid.String() {
				d += " in answer to a hello of kind " + p.Hello
			}
			signs = append(signs, d)
		}
	}
	return signs
}

func (r *Report) enough() bool { return min(len(r.Theirs.Sizes), len(r.Ours.Sizes)) >= FewRecords }

func (r *Report) trafficSigns() (signs []string) {
	if n := len(r.Profile.Tickets); n > len(r.Tickets) {
		signs = append(signs, fmt.Sprintf("its session tickets (%d, ours %d)", n, len(r.Tickets)))
	}
	if !r.enough() {
		return signs
	}
	d, floor := r.Distances(), Distances{}
	if r.Floor != nil {
		floor = *r.Floor
	}
	if tells(d.Sizes, floor.Sizes, len(r.Theirs.Sizes), len(r.Ours.Sizes)) {
		signs = append(signs, fmt.Sprintf("the sizes of records (distance %.2f)", d.Sizes))
	}
	if tells(d.Gaps, floor.Gaps, len(r.Theirs.Gaps), len(r.Ours.Gaps)) {
		s := fmt.Sprintf("the gaps between records (distance %.2f)", d.Gaps)
		if r.Scaled {
			s += ", which min-rate shortens"
		}
		signs = append(signs, s)
	}
	return signs
}

func enumerate(list []string) string {
	last := len(list) - 1
	switch last {
	case 0:
		return list[0]
	case 1:
		return list[0] + " and " + list[1]
	}
	return strings.Join(list[:last], "; ") + "; and " + list[last]
}

// Write writes the report for a person to read.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%s (%s, %s away)\n", r.Front, r.Address, milliseconds(r.RTT))
	r.writeGrade(w)
	r.writeFlights(w)
	r.writeTraffic(w)
	fmt.Fprintf(w, "\n%s\n", r.Verdict())
}

func (r *Report) writeGrade(w io.Writer) {
	grade, remarks := Judge(r.Profile, r.Trusted)
	fmt.Fprintf(w, "\nAs a front: %v\n", grade)
	for _, m := range remarks {
		fmt.Fprintf(w, "  %-8v  %s\n", m.Grade, m.Text)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  note      %s\n", p)
	}
}

func (r *Report) writeFlights(w io.Writer) {
	fmt.Fprint(w, "\nAnswers to the four hellos\n")
	for _, p := range Flights(r.Profile, r.Replies) {
		fmt.Fprintf(w, "  %-8s theirs  %s\n", p.Hello, describe(p.Theirs))
		fmt.Fprintf(w, "  %-8s ours    %s\n", "", describe(p.Ours))
	}
	fmt.Fprintf(w, "  %-8s theirs  %s\n  %-8s ours    %s\n", "tickets", dotted(r.Profile.Tickets), "", dotted(r.Tickets))
}

func (r *Report) writeTraffic(w io.Writer) {
	var floor Distances
	if r.Floor != nil {
		floor = *r.Floor
	}
	d := r.Distances()
	r.writePlot(w, "Sizes of records", SizeHistogram(r.Theirs, r.Ours), "distance", d.Sizes, floor.Sizes)
	r.writePlot(w, "Gaps between them", GapHistogram(r.Theirs, r.Ours), "distance beyond ±1 ms", d.Gaps, floor.Gaps)
	fmt.Fprintf(w, "\nThroughput, MB/s: front %s, ours %s, without shaping %s\n",
		megabytes(r.Throughput.Front), megabytes(r.Throughput.Shaped), megabytes(r.Throughput.Unshaped))
	if r.Scaled {
		fmt.Fprintf(w, "  gaps are shortened for min-rate = %s MB/s\n", megabytes(float64(r.MinRate)))
	}
}

func (r *Report) writePlot(w io.Writer, title string, h Histogram, measure string, distance, floor float64) {
	theirs, ours := sum(h.Theirs), sum(h.Ours)
	fmt.Fprintf(w, "\n%s: %d theirs (left), %d ours (right)\n", title, theirs, ours)
	if theirs == 0 || ours == 0 {
		return
	}
	h.Write(w)
	if r.Floor == nil {
		fmt.Fprintf(w, "  %s %.2f; the front was seen too little to compare it with itself\n", measure, distance)
		return
	}
	fmt.Fprintf(w, "  %s %.2f; the front to itself %.2f\n", measure, distance, floor)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func megabytes(rate float64) string {
	if rate == 0 {
		return "unknown"
	}
	if rate >= 100e6 {
		return fmt.Sprintf("%.0f", rate/1e6)
	}
	return fmt.Sprintf("%.3g", rate/1e6)
}

// MarshalJSON writes what Write does, for machines. Rates are in bytes/s, times in milliseconds.
func (r *Report) MarshalJSON() ([]byte, error) {
	grade, remarks := Judge(r.Profile, r.Trusted)
	type counts struct {
		Connections int       `json:"connections"`
		Records     int       `json:"records"`
		Gaps        int       `json:"gaps"`
		GapQuarters []float64 `json:"gap_quantiles_ms"` // 10, 25, 50, 75 and 90 %
	}
	countsOf := func(s Sample) counts {
		return counts{s.Connections, len(s.Sizes), len(s.Gaps), quantiles(s.Gaps)}
	}
	return json.Marshal(struct {
		Front      string       `json:"front"`
		Address    string       `json:"address"`
		RTT        float64      `json:"rtt_ms"`
		Grade      Grade        `json:"grade"`
		Remarks    []Remark     `json:"remarks"`
		Problems   []string     `json:"problems"`
		Flights    []FlightPair `json:"flights"`
		Tickets    pair[[]int]  `json:"tickets"`
		Traffic    pair[counts] `json:"traffic"`
		Distances  Distances    `json:"distances"`
		Floor      *Distances   `json:"floor"`
		Sizes      Histogram    `json:"sizes"`
		Gaps       Histogram    `json:"gaps"`
		Throughput Throughput   `json:"throughput"`
		MinRate    int          `json:"min_rate"`
		Scaled     bool         `json:"scaled"`
		Verdict    string       `json:"verdict"`
	}{
		r.Front, r.Address, float64(r.RTT) / float64(time.Millisecond), grade, remarks, nonNil(r.Problems),
		Flights(r.Profile, r.Replies),
		pair[[]int]{nonNil(r.Profile.Tickets), nonNil(r.Tickets)},
		pair[counts]{countsOf(r.Theirs), countsOf(r.Ours)},
		r.Distances(), r.Floor, SizeHistogram(r.Theirs, r.Ours), GapHistogram(r.Theirs, r.Ours),
		r.Throughput, r.MinRate, r.Scaled, r.Verdict(),
	})
}

type pair[T any] struct {
	Theirs T `json:"theirs"`
	Ours   T `json:"ours"`
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// quantiles are those of 10, 25, 50, 75 and 90 %, in milliseconds; none of an empty sample.
func quantiles(gaps []time.Duration) []float64 {
	all := sorted(gaps)
	list := []float64{}
	for _, p := range []int{10, 25, 50, 75, 90} {
		if len(all) > 0 {
			list = append(list, float64(all[(len(all)-1)*p/100])/float64(time.Millisecond))
		}
	}
	return list
}
