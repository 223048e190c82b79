package compare

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mtrelay/doppel"
	"mtrelay/tlsfront"
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

// flight is a server's that answers well.
func flight(records ...[]int) tlsfront.Flight {
	return tlsfront.Flight{
		OK: true, Version: 0x0304, Suite: 0x1301, Group: 0x11ec, Extensions: []uint16{43, 51}, EchoesSessionID: true, Records: records,
	}
}

func profile(f tlsfront.Flight, tickets ...int) *tlsfront.Profile {
	p := &tlsfront.Profile{Tickets: tickets}
	for k := range p.Flights {
		p.Flights[k] = f
	}
	return p
}

// sampleOf makes a sample of one response with full records and pauses of pause before every fourth.
func sampleOf(n int, pause time.Duration) Sample {
	var b doppel.Burst
	at := time.Duration(0)
	for i := range n {
		if i%4 == 0 {
			at += pause * time.Duration(1+i%3)
		}
		b.Records = append(b.Records, doppel.Record{At: at, Size: []int{16401, 16401, 5018, 800}[i%4]})
	}
	return NewSample([]doppel.Trace{{Bursts: []doppel.Burst{b}}})
}

func report() *Report {
	return &Report{
		Front: "front.example", Address: "192.0.2.1:443", RTT: 12300 * time.Microsecond, Trusted: true,
		Profile:  profile(flight([]int{42, 441, 96, 53}, []int{42, 441, 97, 53}), 266, 266),
		Replies:  profile(flight([]int{647}), 0),
		Problems: []string{"https://front.example/x.png answers with status 404"},
		Theirs:   sampleOf(400, 4*time.Millisecond), Ours: sampleOf(200, 9*time.Millisecond),
		Floor: &Distances{Sizes: 0.02, Gaps: 0.01, GapsPlain: 0.1}, Tickets: []int{266, 266},
		Throughput: Throughput{Front: 2.5e6, Unshaped: 812e6, Shaped: 21.04e6}, MinRate: 20e6, Scaled: true,
	}
}

func TestWrite(t *testing.T) {
	var text bytes.Buffer
	report().Write(&text)
	golden(t, "report.txt", text.Bytes())
}

func TestSVG(t *testing.T) {
	empty := report()
	empty.Front, empty.Ours = `<"&>`, Sample{}
	var svg bytes.Buffer
	if err := WriteSVG(&svg, []*Report{report(), empty}); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.svg", svg.Bytes())
	d := xml.NewDecoder(&svg)
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestJSON(t *testing.T) {
	b, err := json.MarshalIndent(report(), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(b, '\n'))
}

// TestBare: a front of which hardly anything is known makes no report fail, nor a number that JSON has not.
func TestBare(t *testing.T) {
	r := &Report{Front: "front.example", Profile: new(tlsfront.Profile), Replies: profile(flight([]int{647}))}
	var text bytes.Buffer
	r.Write(&text)
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if err := WriteSVG(io.Discard, []*Report{r}); err != nil {
		t.Error(err)
	}
	if g, _ := Judge(r.Profile, false); g != Unusable || !strings.Contains(text.String(), "Too few records") {
		t.Errorf("%v\n%s", g, text.String())
	}
}

func TestVerdict(t *testing.T) {
	// alike is a report in which nothing tells.
	alike := func() *Report {
		r := report()
		r.Profile, r.Ours = profile(flight([]int{647}, []int{650}), 266, 266), r.Theirs
		return r
	}
	for _, test := range []struct {
		name   string
		change func(*Report)
		want   string
	}{
		{"alike", func(*Report) {}, "Nothing that was measured here tells ours from the front's."},
		{"number", func(r *Report) { r.Profile = profile(flight([]int{42, 600}), 266, 266) },
			"An observer could tell ours from the front's by the number of encrypted records behind the ServerHello (2, ours 1)."},
		{"bytes", func(r *Report) { r.Profile = profile(flight([]int{11000}), 266, 266) },
			"An observer could tell ours from the front's by the bytes of the encrypted records (11005, ours 652)."},
		{"suite of one kind", func(r *Report) { r.Profile.Flights[tlsfront.HelloAES256].Suite = 0x1302 },
			"An observer could tell ours from the front's by the cipher suite (AES_256_GCM_SHA384, ours AES_128_GCM_SHA256) in answer to a hello of kind aes256."},
		{"version", func(r *Report) { r.Profile = profile(tlsfront.Flight{Version: 0x0303}, 266, 266) },
			"An observer could tell ours from the front's by the version (TLS 1.2, ours TLS 1.3)."},
		{"tickets", func(r *Report) { r.Tickets = nil },
			"An observer could tell ours from the front's by its session tickets (2, ours 0)."},
		{"sizes", func(r *Report) { r.Ours.Sizes = make([]int, 200) },
			"An observer could tell ours from the front's by the sizes of records (distance 1.00)."},
		{"gaps", func(r *Report) { r.Ours.Gaps = make([]time.Duration, 200) },
			"An observer could tell ours from the front's by the gaps between records (distance 0.25), which min-rate shortens."},
		{"few", func(r *Report) { r.Ours = sampleOf(10, time.Millisecond) },
			"Nothing that was measured here tells ours from the front's. Too few records were seen to judge traffic (400 and 10)."},
		{"by chance", func(r *Report) { r.Theirs.Sizes, r.Ours.Sizes = half(60, 24), half(60, 36) },
			"Nothing that was measured here tells ours from the front's."},
	} {
		r := alike()
		test.change(r)
		if got := r.Verdict(); got != test.want {
			t.Errorf("%s: %s", test.name, got)
		}
	}
}

// half returns n sizes, k of them of another kind.
func half(n, k int) []int {
	sizes := make([]int, n)
	for i := range k {
		sizes[i] = 1
	}
	return sizes
}

func TestJudge(t *testing.T) {
	change := func(f func(*tlsfront.Flight)) *tlsfront.Profile {
		one := flight([]int{647})
		f(&one)
		return profile(one)
	}
	other := profile(flight([]int{647}))
	other.Flights[tlsfront.HelloClassic] = tlsfront.Flight{Version: 0x0304, Retry: true, Group: 0x17}
	for _, test := range []struct {
		name    string
		profile *tlsfront.Profile
		trusted bool
		want    Grade
		remark  string
	}{
		{"best", profile(flight([]int{647})), true, Good, "one encrypted record"},
		{"no certificate", profile(flight([]int{647})), false, Fair, "certificate"},
		{"four records", profile(flight([]int{42, 441, 96, 53})), true, Fair, "4 encrypted records"},
		{"two kinds of answers", profile(flight([]int{42, 441, 96, 53}, []int{647})), true, Fair, "1 to 4 encrypted records"},
		{"long", profile(flight([]int{10241})), true, Poor, "a flight of 10246 bytes"},
		{"not too long", profile(flight([]int{10240})), true, Good, ""},
		{"varies", profile(flight([]int{600}, []int{700})), true, Good, "varies, 605 to 705 bytes in 2 observations"},
		{"P-256", change(func(f *tlsfront.Flight) { f.Group = 0x17 }), true, Poor, "group CurveP256"},
		{"X25519", change(func(f *tlsfront.Flight) { f.Group = 0x1d }), true, Good, "no post-quantum group"},
		{"HelloRetryRequest", change(func(f *tlsfront.Flight) { f.OK, f.Retry = false, true }), true, Unusable, "HelloRetryRequest"},
		{"HelloRetryRequest to old clients", other, true, Fair, "kind classic it answers otherwise: HelloRetryRequest for CurveP256"},
		{"TLS 1.2", change(func(f *tlsfront.Flight) { f.OK, f.Version = false, 0x0303 }), true, Unusable, "TLS 1.2"},
		{"none", new(tlsfront.Profile), true, Unusable, "no TLS"},
	} {
		got, remarks := Judge(test.profile, test.trusted)
		found := false
		for _, r := range remarks {
			found = found || strings.Contains(r.Text, test.remark)
		}
		if got != test.want || !found {
			t.Errorf("%s: %v %+v", test.name, got, remarks)
		}
	}
}
