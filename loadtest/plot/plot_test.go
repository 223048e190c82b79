package plot

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mtrelay/loadtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update rewrites it\n%s", name, got)
	}
}

// idle is a run of levels with so many KiB for each connection above 20 MiB.
func idle(label string, kib float64) loadtest.Report {
	r := loadtest.Report{
		Scenario: "idle", Label: label, Target: "self", Version: "v1.2.3", Started: time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC),
		Columns: []loadtest.Column{{Name: "connections"}, {Name: "RSS", Unit: "MiB"}, {Name: "anonymous", Unit: "KiB"},
			{Name: "cgroup", Unit: "MiB"}, {Name: "time", Unit: "s"}},
	}
	for i, n := range []float64{0, 1000, 5000, 9900} {
		wave := 0.4 * math.Sin(3*float64(i))
		r.Rows = append(r.Rows, []float64{n, 20 + kib*n/1024 + wave, 5000 + kib*n, 0, 3})
	}
	return r
}

// ping is a run of latencies, so many times the usual.
func ping(label string, factor float64) loadtest.Report {
	r := loadtest.Report{Scenario: "ping", Label: label, Target: "127.0.0.1:4000", Latency: make(map[string][]loadtest.Percentile)}
	for kind, more := range map[string]float64{"alone": 1, "beside bulk": 12} {
		for _, p := range []float64{50, 90, 99, 99.9, 99.99, 100} {
			r.Latency[kind] = append(r.Latency[kind], loadtest.Percentile{Percentile: p, Ms: 0.04 * factor * more * (1 + p/(100.01-p)/10)})
		}
	}
	return r
}

func TestWrite(t *testing.T) {
	for name, reports := range map[string][]loadtest.Report{
		"memory.svg":  {idle("ours", 2.1), idle("<theirs>", 4.4)},
		"latency.svg": {ping("ours", 1), ping("", 1.7)},
		"both.svg":    {idle("build a", 2.1), ping("build b", 1)},
	} {
		var svg bytes.Buffer
		if err := Write(&svg, reports); err != nil {
			t.Fatal(err)
		}
		golden(t, name, svg.Bytes())
		checkXML(t, &svg)
	}
}

func checkXML(t *testing.T, svg io.Reader) {
	t.Helper()
	for d := xml.NewDecoder(svg); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothing: what cannot be drawn is left out, and refused when it is all.
func TestNothing(t *testing.T) {
	one := idle("one level", 2)
	one.Rows = one.Rows[:1]
	short := idle("rows that lack columns", 2)
	for i := range short.Rows {
		short.Rows[i] = short.Rows[i][:1]
	}
	only100 := ping("", 1)
	only100.Latency = map[string][]loadtest.Percentile{"alone": {{Percentile: 100, Ms: 3}, {Percentile: 50}}}
	for _, reports := range [][]loadtest.Report{nil, {{}}, {one}, {short}, {only100}} {
		if err := Write(io.Discard, reports); err == nil {
			t.Errorf("drawn: %+v", reports)
		}
	}
	if err := Write(io.Discard, []loadtest.Report{{}, one, idle("", 1)}); err != nil {
		t.Error(err)
	}
}

// TestCurve: active and stuck connections are not on the line of idle ones.
func TestCurve(t *testing.T) {
	r := loadtest.Report{
		Columns: []loadtest.Column{{Name: "connections"}, {Name: "active"}, {Name: "stuck"}, {Name: "RSS", Unit: "KiB"}},
		Rows:    [][]float64{{200, 0, 0, 3}, {100, 0, 0, 2}, {100, 50, 0, 9}, {150, 0, 50, 99}},
	}
	if got := memoryPoints(&r, "RSS"); !slices.Equal(got, []point{{100, 2048}, {200, 3072}}) {
		t.Error(got)
	}
}

func TestFitLine(t *testing.T) {
	s := fitLine([]point{{0, 100}, {10, 130}, {20, 120}})
	want := straight{base: 320.0 / 3, slope: 1, off: 130/(320.0/3+10) - 1}
	for _, d := range []float64{s.base - want.base, s.slope - want.slope, s.off - want.off} {
		if math.Abs(d) > 1e-9 {
			t.Errorf("%+v, not %+v", s, want)
		}
	}
}

func TestLoaded(t *testing.T) {
	for _, test := range []struct{ all, want []point }{
		{[]point{{0, 1}, {5, 2}, {9, 3}}, []point{{5, 2}, {9, 3}}},
		{[]point{{0, 1}, {0, 2}, {9, 3}}, []point{{0, 1}, {0, 2}, {9, 3}}},
		{[]point{{5, 2}, {9, 3}}, []point{{5, 2}, {9, 3}}},
	} {
		if got := loaded(test.all); !slices.Equal(got, test.want) {
			t.Errorf("%v of %v", got, test.all)
		}
	}
}

func TestAxes(t *testing.T) {
	label := func(v float64) string { return plain(v) }
	for _, test := range []struct {
		name string
		a    axis
		want []string
	}{
		{"connections", linear(9900, 5, thousands), []string{"0", "2,000", "4,000", "6,000", "8,000", "10,000"}},
		{"MiB", linear(40.3, 5, label), []string{"0", "10", "20", "30", "40", "50"}},
		{"nothing", linear(0, 5, label), []string{"0", "1"}},
		{"small", linear(0.3, 5, label), []string{"0", "0.1", "0.2", "0.3"}},
		{"decades", logarithmic(0.04, 1.1, label), []string{"0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"}},
		{"one value", logarithmic(3, 3, label), []string{"2", "5"}},
		{"round ends", logarithmic(1, 10, label), []string{"1", "2", "5", "10"}},
		{"tail", tail(99.9), []string{"50 %", "90 %", "99 %", "99.9 %"}},
	} {
		var got []string
		for i, tick := range test.a.ticks {
			got = append(got, tick.label)
			if tick.at < -1e-9 || tick.at > 1+1e-9 || i > 0 && tick.at <= test.a.ticks[i-1].at {
				t.Errorf("%s: tick %s at %v", test.name, tick.label, tick.at)
			}
		}
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, not %q", test.name, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: %q, not %q", test.name, got, test.want)
			}
		}
	}
}
