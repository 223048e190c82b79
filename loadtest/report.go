package loadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what one run measured, as JSON holds it.
type Report struct {
	Scenario   string            `json:"scenario"`
	Label      string            `json:"label,omitempty"` // name in tables and plots that show several reports
	Target     string            `json:"target"`          // "self", or the address
	Version    string            `json:"version"`         // of the generator, and of the proxy if that is "self"
	Started    time.Time         `json:"started"`
	Seconds    float64           `json:"seconds"` // that the run took
	Machine    Machine           `json:"machine"`
	Parameters map[string]string `json:"parameters"`

	Columns []Column    `json:"columns"`
	Rows    [][]float64 `json:"rows"`
	// Metrics is what expectations are about; each name tells its unit.
	Metrics map[string]float64 `json:"metrics"`
	// Latency holds distributions by name.
	Latency map[string][]Percentile `json:"latency,omitempty"`
	// Notes say what limits the figures; Failures what went wrong, corruption above all. A run with failures is void.
	Notes    []string `json:"notes,omitempty"`
	Failures []string `json:"failures,omitempty"`
}

// Column names a column of Rows. Unit may be empty.
type Column struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
}

// Percentile is a point of a distribution: this percentage of all latencies is no higher.
type Percentile struct {
	Percentile float64 `json:"percentile"` // 0 to 100
	Ms         float64 `json:"ms"`
}

// cell is a value with the column that it stands in.
type cell struct {
	name, unit string
	value      float64
}

// add appends a row. The first row names the columns; the others must have the same.
func (r *Report) add(cells ...cell) {
	row := make([]float64, len(cells))
	for i, c := range cells {
		row[i] = c.value
	}
	if r.Columns == nil {
		for _, c := range cells {
			r.Columns = append(r.Columns, Column{c.name, c.unit})
		}
	}
	if len(row) != len(r.Columns) {
		panic("loadtest: internal error: rows of different lengths")
	}
	r.Rows = append(r.Rows, row)
}

// metric notes a figure that an expectation may be about. What could not be computed (0/0) is left out: an expectation
// about it then fails as unknown, while JSON has no word for it.
func (r *Report) metric(name string, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if r.Metrics == nil {
		r.Metrics = make(map[string]float64)
	}
	r.Metrics[name] = value
}

func (r *Report) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s of %s%s, version %s, %.0f s\n", r.Scenario, r.Target, prefixed(" as ", r.Label), r.Version, r.Seconds)
	fmt.Fprintln(w, r.Machine)
	fmt.Fprintln(w, list(r.Parameters))
	r.writeTable(w)
	r.writeLatency(w)
	r.writeMetrics(w)
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, f := range r.Failures {
		fmt.Fprintln(w, "FAILED:", f)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func list(parameters map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		fmt.Fprintf(&b, "%s=%s ", name, parameters[name])
	}
	return strings.TrimSpace(b.String())
}

// tables have numbers that stand under each other.
func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func (r *Report) writeTable(w io.Writer) {
	if len(r.Rows) == 0 {
		return
	}
	t := newTable(w)
	fmt.Fprintln(t)
	for _, c := range r.Columns {
		fmt.Fprint(t, c.Name, "\t")
	}
	fmt.Fprintln(t)
	for _, c := range r.Columns {
		fmt.Fprint(t, c.Unit, "\t")
	}
	for _, row := range r.Rows {
		fmt.Fprintln(t)
		for _, v := range row {
			fmt.Fprint(t, number(v), "\t")
		}
	}
	fmt.Fprintln(t)
	t.Flush()
}

func (r *Report) writeLatency(w io.Writer) {
	if len(r.Latency) == 0 {
		return
	}
	t := newTable(w)
	fmt.Fprint(t, "\nlatency, ms\t")
	names := slices.Sorted(maps.Keys(r.Latency))
	for _, p := range r.Latency[names[0]] {
		fmt.Fprintf(t, "p%s\t", strconv.FormatFloat(p.Percentile, 'f', -1, 64))
	}
	for _, name := range names {
		fmt.Fprint(t, "\n", name, "\t")
		for _, p := range r.Latency[name] {
			fmt.Fprint(t, number(p.Ms), "\t")
		}
	}
	fmt.Fprintln(t)
	t.Flush()
}

func (r *Report) writeMetrics(w io.Writer) {
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(r.Metrics)) {
		fmt.Fprintf(w, "%s = %s\n", name, number(r.Metrics[name]))
	}
}

// number writes v with three significant digits behind the point at most, and never in powers of ten.
func number(v float64) string {
	digits := 0
	for limit := 100.0; digits < 3 && v != 0 && math.Abs(v) < limit; limit /= 10 {
		digits++
	}
	if v == math.Trunc(v) {
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
