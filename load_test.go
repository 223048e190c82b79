package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mtrelay/loadtest"
)

// buildProxy builds this very program: a test's own binary could not be started as the proxy.
func buildProxy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	return path
}

// TestLoadtest: the report goes to standard output, and the exit code says whether expectations were met.
func TestLoadtest(t *testing.T) {
	proxy := buildProxy(t)
	args := []string{"loadtest", "idle", "--proxy", proxy, "--connections", "5,10", "--quiet", "10ms", "--label", "a build"}
	code, out, errs := run(t, append(args, "--json", "-", "--expect", "open_cpu_ms>0", "--expect", "rss_bytes<=1000MiB")...)
	var report loadtest.Report
	if err := json.Unmarshal([]byte(out), &report); code != exitOK || errs != "" || err != nil || report.Label != "a build" || len(report.Rows) != 3 {
		t.Errorf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	code, out, errs = run(t, append(args, "--json", file, "--verbose", "--expect", "rss_bytes<=1KiB", "--expect", "other<=1")...)
	if code != exitError || !strings.Contains(out, "open_cpu_ms = ") ||
		!strings.Contains(errs, "idle: 10 connections") || !strings.Contains(errs, "expected rss_bytes<=1KiB: it is") || !strings.Contains(errs, `no metric "other"`) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestLoadtestRefuses(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"nothing", `no scenario "nothing"`},
		{"idle --expect bytes", "is no expectation"},
		{"idle --self --addr 127.0.0.1:1", "there is one target"},
		{"idle --addr 127.0.0.1:1 --secret abc --dc-bind 127.0.0.1:0", "--secret "},
		{"idle --addr 127.0.0.1:1 --secret @/does/not/exist", "--secret: open /does/not/exist"},
	} {
		if code, out, errs := run(t, append([]string{"loadtest"}, strings.Fields(test.args)...)...); code != exitError || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%s: exit %d, %q, %q", test.args, code, out, errs)
		}
	}
	if code, out, _ := run(t, "loadtest", "list"); code != exitOK || strings.Count(out, "\n") != 11 {
		t.Errorf("list: exit %d\n%s", code, out)
	}
}

// TestLoadtestPlot draws what a run wrote, and says what is wrong with what is no report.
func TestLoadtestPlot(t *testing.T) {
	dir := t.TempDir()
	report, broken, svg := filepath.Join(dir, "run.json"), filepath.Join(dir, "broken.json"), filepath.Join(dir, "run.svg")
	text := `{"scenario": "idle", "label": "a build", "columns": [{"name": "connections"}, {"name": "RSS", "unit": "MiB"}], "rows": [[0, 10], [1000, 12], [2000, 14]]}`
	for name, content := range map[string]string{report: text, broken: "{"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := run(t, "loadtest", "plot", report, "--svg", svg); code != exitOK || out+errs != "" {
		t.Fatalf("exit %d, %q, %q", code, out, errs)
	}
	if drawn, err := os.ReadFile(svg); err != nil || !strings.Contains(string(drawn), "a build") || !strings.HasPrefix(string(drawn), "<svg") {
		t.Errorf("%v\n%s", err, drawn)
	}
	if code, out, _ := run(t, "loadtest", "plot", report); code != exitOK || !strings.HasPrefix(out, "<svg") {
		t.Errorf("exit %d, %q", code, out)
	}
	for args, want := range map[string]string{broken: "is no report", filepath.Join(dir, "none"): "no such file"} {
		if code, _, errs := run(t, "loadtest", "plot", args); code != exitError || !strings.Contains(errs, want) {
			t.Errorf("exit %d, %q", code, errs)
		}
	}
}
