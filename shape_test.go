package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mtrelay/tlsfront"
)

// frontSite is a Go server with a page and a picture of 1 MB; fronting is the configuration that leads to it.
func frontSite(t *testing.T) (fronting string) {
	t.Helper()
	picture := make([]byte, 1_000_000)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a.png" {
			w.Header().Set("Content-Type", "image/png")
			w.Write(picture)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<img src="/a.png">`)
	}))
	site.EnableHTTP2 = true
	site.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of every hello that is only that
	site.StartTLS()
	t.Cleanup(site.Close)
	return frontingTo(site.Listener.Addr())
}

func frontingTo(a net.Addr) string {
	return fmt.Sprintf("domain-fronting.host = \"127.0.0.1\"\ndomain-fronting.port = %d\n", a.(*net.TCPAddr).Port)
}

// shapeReport is the part of the command's JSON that is looked at.
type shapeReport struct {
	Front, Grade, Verdict string
	Problems              []string
	Flights               []struct {
		Hello        string
		Theirs, Ours tlsfront.Flight
	}
	Traffic struct {
		Theirs, Ours struct{ Connections, Records, Gaps int }
	}
	Distances struct{ Sizes, Gaps float64 }
	Sizes     struct {
		Bins         []string
		Theirs, Ours []int
	}
	Throughput struct{ Shaped, Unshaped float64 }
	MinRate    int `json:"min_rate"`
}

func TestShapeCommand(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "shape.svg")
	code, out, errs := run(t, "shape", writeConfig(t, minimalConfig+frontSite(t)), "--time=10s", "--json", "--svg", svg)
	var reports []shapeReport
	if err := json.Unmarshal([]byte(out), &reports); code != 0 || errs != "" || err != nil || len(reports) != 1 {
		t.Fatalf("exit %d, %s, %v\n%s", code, errs, err, out)
	}
	r := reports[0]
	if r.Front != "www.example.com" || r.Grade != "fair" || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "certificate") ||
		!strings.HasPrefix(r.Verdict, "An observer could tell ours from the front's by the number of encrypted records") || r.MinRate != 20<<20 {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Flights {
		if !f.Theirs.OK || !f.Ours.OK || f.Theirs.Suite != f.Ours.Suite || f.Theirs.Group != f.Ours.Group ||
			len(f.Theirs.Records) == 0 || len(f.Theirs.Records[0]) < 4 || len(f.Ours.Records) == 0 || len(f.Ours.Records[0]) != 1 {
			t.Errorf("%+v", f)
		}
	}
	// A visit fetches 1 MB twice, in records of which most are full.
	theirs, ours := r.Traffic.Theirs, r.Traffic.Ours
	if len(r.Flights) != int(tlsfront.NumHelloKinds) || theirs.Connections < 1 || ours.Connections < 1 ||
		theirs.Records < 100 || ours.Records < 100 || theirs.Gaps < 100 || ours.Gaps < 100 {
		t.Errorf("%+v", r.Traffic)
	}
	if d := r.Distances; d.Sizes > 0.3 || len(r.Sizes.Bins) == 0 || len(r.Sizes.Bins) != len(r.Sizes.Ours) {
		t.Errorf("%+v %+v", d, r.Sizes)
	}
	if r.Throughput.Shaped <= 0 || r.Throughput.Unshaped <= 0 {
		t.Errorf("%+v", r.Throughput)
	}
	if drawn, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(drawn), "<svg ") {
		t.Errorf("%v %.20s", err, drawn)
	}
}

// TestShapeUnreachable: what cannot be reached is an error, and the list is empty all the same.
func TestShapeUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	code, out, errs := run(t, "shape", writeConfig(t, minimalConfig+frontingTo(ln.Addr())), "--json")
	if code != exitError || out != "[]\n" || !strings.Contains(errs, "front www.example.com: unreachable: ") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestShapeRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config.toml")
	file := writeConfig(t, minimalConfig)
	for _, test := range []struct {
		args []string
		why  string
	}{
		{[]string{missing}, "there is no such file"},
		{[]string{missing, "--front", "192.0.2.1:443"}, `--front "192.0.2.1" has an IP address`},
		{[]string{file, "--front", "2001:db8::1"}, `--front "2001:db8::1" has an IP address`},
		{[]string{file, "--front", "example.com:0"}, `--front: "0" is no port`},
		{[]string{file, "--time=1s"}, "--time: 1s is too short"},
	} {
		code, out, errs := run(t, append([]string{"shape"}, test.args...)...)
		if code != exitError || out != "" || !strings.Contains(errs, test.why) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q", test.args, code, out, errs)
		}
	}
}
