package loadtest

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

func sampleReport() *Report {
	r := &Report{Scenario: "idle", Target: "self", Label: "a build", Version: "v1", Parameters: map[string]string{"quiet": "1m", "echoes": "3"}}
	r.add(cell{"connections", "", 1000}, cell{"RSS", "MiB", 12.345678})
	r.add(cell{"connections", "", 9900}, cell{"RSS", "MiB", 0})
	r.metric("bytes_per_connection", 1234.5678)
	r.Latency = map[string][]Percentile{"echo": {{50, 0.0625}, {99.9, 12}}}
	r.note("the machine is %s", "busy")
	r.note("the machine is busy")
	r.Failures = []string{"byte 7 is wrong"}
	return r
}

func TestReportForPeople(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport().Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"idle of self as a build, version v1",
		"echoes=3 quiet=1m",
		"connections   RSS",
		"MiB",
		"       1000  12.3",
		"       9900     0",
		"p50  p99.9",
		"0.062     12",
		"bytes_per_connection = 1235",
		"FAILED: byte 7 is wrong",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Count(b.String(), "note:") != 1 {
		t.Errorf("the same note twice:\n%s", b.String())
	}
}

func TestReportJSON(t *testing.T) {
	var b bytes.Buffer
	r := sampleReport()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || !reflect.DeepEqual(&back, r) {
		t.Errorf("%v\n%+v\n%+v", err, back, r)
	}
}

// TestMetricLeavesOut: JSON has no NaN, and one division by zero must not cost the whole report.
func TestMetricLeavesOut(t *testing.T) {
	var r Report
	r.metric("a", math.NaN())
	r.metric("b", math.Inf(1))
	if len(r.Metrics) != 0 || r.WriteJSON(&bytes.Buffer{}) != nil {
		t.Errorf("%v", r.Metrics)
	}
}

func TestNumber(t *testing.T) {
	for _, test := range []struct {
		v    float64
		want string
	}{
		{0, "0"}, {3, "3"}, {1e7, "10000000"}, {1234.5, "1234"}, {123.45, "123"}, {99.94, "99.9"}, {12.345, "12.3"},
		{1.2345, "1.23"}, {0.12345, "0.123"}, {0.00049, "0.000"}, {-1.2345, "-1.23"},
	} {
		if got := number(test.v); got != test.want {
			t.Errorf("%v: %s, want %s", test.v, got, test.want)
		}
	}
}
