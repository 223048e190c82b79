package scout

import (
	"reflect"
	"strings"
	"testing"

	"mtrelay/tlsfront"
)

func TestMerge(t *testing.T) {
	tls13 := func(group uint16, records ...int) tlsfront.Flight {
		return tlsfront.Flight{OK: true, Version: 0x304, Suite: 0x1301, Group: group, Records: [][]int{records}}
	}
	for _, c := range []struct {
		name     string
		observed []tlsfront.Flight
		group    uint16
		records  [][]int
	}{
		{"one", []tlsfront.Flight{tls13(29, 42, 800)}, 29, [][]int{{42, 800}}},
		{"signatures differ", []tlsfront.Flight{tls13(29, 42, 96), tls13(29, 42, 97)}, 29, [][]int{{42, 96}, {42, 97}}},
		{"a late packet", []tlsfront.Flight{tls13(29, 42, 97), tls13(29, 42, 96, 53), tls13(29, 42)}, 29, [][]int{{42, 96, 53}}},
		{"another certificate", []tlsfront.Flight{tls13(29, 42, 800), tls13(29, 42, 4000, 53)}, 29, [][]int{{42, 800}, {42, 4000, 53}}},
		{"two servers", []tlsfront.Flight{tls13(29, 1000), tls13(4588, 42), tls13(4588, 43)}, 4588, [][]int{{42}, {43}}},
		{"an alert once", []tlsfront.Flight{{}, tls13(29, 42), tls13(29, 42)}, 29, [][]int{{42}, {42}}},
	} {
		f := merge(c.observed)
		if f.Group != c.group || !reflect.DeepEqual(f.Records, c.records) {
			t.Errorf("%s: %+v, want group %d, records %v", c.name, f, c.group, c.records)
		}
	}
}

func TestMergeIsBounded(t *testing.T) {
	many := make([]tlsfront.Flight, 3*tlsfront.MaxObservations)
	for i := range many {
		many[i] = tlsfront.Flight{OK: true, Version: 0x304, Records: [][]int{{100 + i}}}
	}
	p := tlsfront.Profile{}
	p.Flights[0] = merge(many)
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTickets(t *testing.T) {
	f := findings{tickets: [][]int{{250}, {266, 266}, {266, 266}, nil}}
	if p := f.profile(nil); !reflect.DeepEqual(p.Tickets, []int{266, 266}) {
		t.Errorf("tickets %v, want what most connections brought", p.Tickets)
	}
	f.tickets = [][]int{nil}
	if p := f.profile(&tlsfront.Profile{Tickets: []int{266}}); p.Tickets != nil {
		t.Errorf("tickets %v of a front that sends none any more", p.Tickets)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		f    tlsfront.Flight
		want string
	}{
		{tlsfront.Flight{OK: true, Version: 0x304}, ""},
		{tlsfront.Flight{}, "another server"},
		{tlsfront.Flight{Version: 0x303}, "0303"},
		{tlsfront.Flight{Version: 0x304, Retry: true}, "HelloRetryRequest"},
		{tlsfront.Flight{Version: 0x304}, "not one of TLS 1.3"},
	} {
		var p tlsfront.Profile
		p.Flights[tlsfront.HelloHybrid] = c.f
		told := strings.Join(judge(&p), " ")
		if c.want == "" && told != "" || !strings.Contains(told, c.want) {
			t.Errorf("%+v: %q, want %q", c.f, told, c.want)
		}
	}
}
