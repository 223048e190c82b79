package rehearse

import (
	"slices"
	"testing"

	"mtrelay/doppel"
)

func TestWithoutTickets(t *testing.T) {
	for _, test := range []struct {
		name          string
		sent, tickets []int
		cut, left     []int
	}{
		{"both", []int{266, 266, 16401, 900}, []int{266, 266}, []int{266, 266}, []int{16401, 900}},
		{"none known", []int{266, 900}, nil, nil, []int{266, 900}},
		{"the first only", []int{266, 900}, []int{266, 250}, []int{266}, []int{900}},
		{"too few bytes", []int{300}, []int{266}, nil, []int{300}},
		{"nothing but tickets", []int{266}, []int{266}, nil, []int{266}},
	} {
		bursts := []doppel.Burst{{}}
		for _, size := range test.sent {
			bursts[0].Records = append(bursts[0].Records, doppel.Record{Size: size})
		}
		cut := withoutTickets(bursts, test.tickets)
		var left []int
		for _, r := range bursts[0].Records {
			left = append(left, r.Size)
		}
		if !slices.Equal(cut, test.cut) || !slices.Equal(left, test.left) {
			t.Errorf("%s: cut %v, left %v", test.name, cut, left)
		}
	}
	if withoutTickets(nil, []int{266}) != nil {
		t.Error("tickets in no response")
	}
}
