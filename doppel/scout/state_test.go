package scout

import (
	"bytes"
	"crypto/tls"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestRestart: what an earlier process saw is there at once, with its age, while the front is down.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	o := Options{Fronts: at(address), StateDir: dir}
	looks, stop := scouting(t, o, patient)
	<-looks
	l := <-looks
	stop()

	o.Fronts = at()
	looks, stop = scouting(t, o, patient)
	again := <-looks
	stop()
	if again.Source != SourceState || !again.At.Equal(l.At) && again.At.Before(l.At) || again.Shape == nil {
		t.Errorf("%+v\nwant as before %+v", again, l)
	}
	for k := range l.TLS.Flights {
		f, g := l.TLS.Flights[k], again.TLS.Flights[k]
		if f.Records, g.Records = nil, nil; !reflect.DeepEqual(f, g) { // a later raid may have replaced it
			t.Errorf("%+v, was %+v", g, f)
		}
	}
	files, _ := os.ReadDir(dir)
	if len(files) != 1 {
		t.Fatalf("%v, want one file", files)
	}
	if info, _ := files[0].Info(); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestStateName(t *testing.T) {
	seen := make(map[string]string)
	for _, host := range []string{
		"www.example.com", "WWW.example.com", "../../etc/passwd", "a/b", "a_b", "a\x00b", ".", "..", "", "front\n", "bücher.example",
		strings.Repeat("a", 255), strings.Repeat("a", 254), "2001:db8::1", strings.Repeat("ü", 100),
	} {
		name := stateName(host)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q share %s", host, other, name)
		}
		seen[name] = host
		if filepath.Base(name) != name || len(name) > 100 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
			t.Errorf("%q: %q", host, name)
		}
	}
	if name := stateName("www.example.com"); !strings.HasPrefix(name, "front-www.example.com-") {
		t.Errorf("%s is not readable", name)
	}
}

// TestDamagedState: a file that is not ours, or not whole, is an error and nothing else.
func TestDamagedState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	looks, stop := scouting(t, Options{Fronts: at(address)}, patient)
	l := <-looks
	stop()
	if err := writeState(path, testHost, l); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readState(path, testHost); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(path, "other.test"); err == nil {
		t.Error("another front's look was taken")
	}
	try := func(b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readState(path, testHost)
		return err
	}
	for n := 0; n < len(good); n += 1 + len(good)/200 {
		if try(good[:n]) == nil {
			t.Errorf("%d of %d bytes were taken", n, len(good))
		}
	}
	for _, b := range []string{
		"{}", "null", "[]", `{"front":"front.test"}`, `{"front":"front.test","tls":null}`,
		`{"front":"front.test","tls":{"tickets":[-1]}}`, `{"front":"front.test","tls":{"tickets":[99999]}}`,
		`{"front":"front.test","at":"yesterday","tls":{}}`,
	} {
		if try([]byte(b)) == nil {
			t.Errorf("%s was taken", b)
		}
	}
	if try(append(good, bytes.Repeat([]byte{' '}, maxState)...)) == nil {
		t.Error("an endless file was taken")
	}
	later := *l
	later.At = time.Now().Add(time.Hour)
	if err := writeState(path, testHost, &later); err != nil {
		t.Fatal(err)
	}
	if l, err := readState(path, testHost); err != nil || time.Until(l.At) > 0 {
		t.Errorf("seen at %v, %v, which is to come", l.At, err)
	}
}

// TestNoStateDir: a directory that cannot be made does not keep the scout from its work.
func TestNoStateDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	address, _ := serveHTTP(t, site(), true, &tls.Config{})
	looks, _ := scouting(t, Options{Fronts: at(address), StateDir: filepath.Join(file, "below")}, patient)
	<-looks
}
