package loadtest

import (
	"math"
	"strings"
	"testing"
)

func TestExpectation(t *testing.T) {
	metrics := map[string]float64{"bytes": 3072, "p99_ms": 0.25, "below": -1, "none": math.NaN()}
	for _, test := range []struct {
		text string
		want string // of the error; "" when it holds
	}{
		{"bytes<=3072", ""},
		{"bytes<=3KiB", ""},
		{" bytes <= 3 KiB ", ""},
		{"bytes==3072", ""},
		{"bytes<3072", "expected bytes<3072: it is 3072"},
		{"bytes>3072", "expected bytes>3072: it is 3072"},
		{"bytes>=0.003MiB", "expected bytes>=0.003MiB: it is 3072"},
		{"bytes>=0.002MiB", ""},
		{"bytes<1e4", ""},
		{"p99_ms<0.3", ""},
		{"p99_ms>=0.3", "expected p99_ms>=0.3: it is 0.25"},
		{"below>=-1", ""},
		{"none>=0", "it is NaN"},
		{"none<=0", "it is NaN"},
		{"byte<=1", `no metric "byte" here, only below, bytes, none, p99_ms`},
	} {
		e, err := ParseExpectation(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		switch err := e.Check(metrics); {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.text, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: %v, not %q", test.text, err, test.want)
		}
	}
}

func TestNoExpectation(t *testing.T) {
	for _, text := range []string{"", "bytes", "<=3", "bytes<=", "bytes<=x", "bytes=3", "bytes=<3", "bytes<=3GB", "bytes<=NaN",
		"bytes<=3<=4", "a b<=3", "bytes!=3", "bytes<>3"} {
		if e, err := ParseExpectation(text); err == nil {
			t.Errorf("%q: taken as %+v", text, e)
		}
	}
}
