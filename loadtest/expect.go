package loadtest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Expectation is a bound on a metric of a report, such as "bytes_per_connection<=3072".
type Expectation struct {
	metric   string
	operator string
	bound    float64
	text     string // as it was written
}

// operators are in the order in which they are looked for: one that begins another comes after it.
var operators = []struct {
	sign  string
	holds func(a, b float64) bool
}{
	{"<=", func(a, b float64) bool { return a <= b }},
	{">=", func(a, b float64) bool { return a >= b }},
	{"==", func(a, b float64) bool { return a == b }},
	{"<", func(a, b float64) bool { return a < b }},
	{">", func(a, b float64) bool { return a > b }},
}

// units may follow the number of a bound.
var units = []struct {
	name   string
	factor float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}}

// ParseExpectation reads "metric<=number": the operator is one of <= >= == < >, and KiB or MiB may follow the number.
// Spaces may stand between the parts. Whether there is such a metric shows only when it is checked.
func ParseExpectation(s string) (Expectation, error) {
	for _, op := range operators {
		metric, bound, ok := strings.Cut(s, op.sign)
		metric = strings.TrimSpace(metric)
		if !ok || metric == "" || strings.ContainsAny(metric, " <>=") {
			continue
		}
		n, err := parseBound(bound)
		return Expectation{metric: metric, operator: op.sign, bound: n, text: strings.TrimSpace(s)}, err
	}
	return Expectation{}, fmt.Errorf("%q is no expectation: write it like bytes_per_connection<=3KiB, with <= >= == < or >", s)
}

func parseBound(s string) (float64, error) {
	number, factor := strings.TrimSpace(s), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(rest), u.factor
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q is no bound: it is a number, and KiB or MiB may follow", strings.TrimSpace(s))
	}
	return n * factor, nil
}

// String returns the expectation as it was written.
func (e Expectation) String() string { return e.text }

// Check returns nil when the metric is within the bound. A metric that the scenario does not measure is an error that
// names those that it does.
func (e Expectation) Check(metrics map[string]float64) error {
	got, ok := metrics[e.metric]
	if !ok {
		names := slices.Sorted(maps.Keys(metrics))
		return fmt.Errorf("expected %s: no metric %q here, only %s", e, e.metric, strings.Join(names, ", "))
	}
	for _, op := range operators {
		if op.sign == e.operator && op.holds(got, e.bound) {
			return nil
		}
	}
	return fmt.Errorf("expected %s: it is %.6g", e, got)
}
