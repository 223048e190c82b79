package tlsfront

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mtrelay/clock"
)

var update = flag.Bool("update", false, "rewrite the golden replies; review the diff")

// captured is a ClientHello that a real client sent to a server that held this secret.
type captured struct {
	name   string
	secret Secret
	time   clock.Unix
	raw    []byte
}

// capturedHellos reads testdata/hello: lines "key: value", an empty line, hex.
func capturedHellos(t testing.TB) []captured {
	t.Helper()
	files, err := filepath.Glob("testdata/hello/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured hellos: %v", err)
	}
	var all []captured
	for _, file := range files {
		head, body := readGolden(t, file)
		if head["expect"] != "accepted" {
			t.Fatalf("%s: expect: %q", file, head["expect"])
		}
		key, host := parseSecret(t, head["secret"])
		at, err := strconv.ParseInt(head["time"], 10, 64)
		if err != nil {
			t.Fatalf("%s: time: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		all = append(all, captured{name, Secret{name, host, key}, clock.Unix(at), body})
	}
	return all
}

func readGolden(t testing.TB, file string) (head map[string]string, body []byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	header, dump, ok := bytes.Cut(text, []byte("\n\n"))
	if !ok {
		t.Fatalf("%s: no empty line behind the header", file)
	}
	head = make(map[string]string)
	for line := range strings.Lines(string(header)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		head[key] = value
	}
	body, err = hex.DecodeString(strings.Join(strings.Fields(string(dump)), ""))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return head, body
}

func writeGolden(t testing.TB, file, header string, body []byte) {
	t.Helper()
	text := []byte(header + "\n")
	for line := range slices.Chunk(body, 60) {
		text = fmt.Appendf(text, "%x\n", line)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// parseSecret splits an ee secret in hex.
func parseSecret(t testing.TB, s string) (key [16]byte, host string) {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || len(b) < 18 || b[0] != 0xee {
		t.Fatalf("not an ee secret: %d bytes, %v", len(b), err)
	}
	return [16]byte(b[1:17]), string(b[17:])
}
