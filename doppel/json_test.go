package doppel

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	for _, f := range fronts {
		m := taught(f.front)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := new(Model)
		if err := json.Unmarshal(b, got); err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s: another model came back: %+v, want %+v", f.name, got, m)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	many := strings.Repeat("[100],", maxSteady)
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"version":2}`, `{"version":1,"steady":[17]}`, `{"version":1,"steady":[16641]}`,
		`{"version":1,"steady":[24592]}`, `{"version":1,"steady":[70000]}`, `{"version":1,"steady":[-1]}`,
		`{"version":1,"steady":` + strings.ReplaceAll("["+many+"100]", "[100]", "100") + `}`,
		`{"version":1,"starts":[{"offset":0,"steps":[]}]}`, `{"version":1,"starts":[{"offset":-2,"steps":[100]}]}`,
		`{"version":1,"steady_gaps":[1]}`, `{"version":1,"drs":3}`, `{"version":1,"tail":17}`, `{"version":1,"tail":65}`,
		`{"version":1,"tail_waited":65537}`, `{"version":1,"reset_after":-1}`,
	} {
		var m Model
		if json.Unmarshal([]byte(s), &m) == nil {
			t.Errorf("took %.60s", s)
		}
		if !reflect.DeepEqual(m, Model{}) {
			t.Errorf("%.60s: changed the model", s)
		}
	}
}
