package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

// measureRivals in the environment asks for TestRivals and says how often each load is put on each relay. A round takes some
// four minutes, and wants a quiet machine, and the network once, for the rival in Python.
const measureRivals = "INTEROP_RIVALS"

// load is put on one relay after the other.
type load struct {
	name    string
	bulk    bool
	hello   helloKind
	args    []string // of the load test
	figures []figure
}

// helloKind is the ClientHello that a load is about.
type helloKind int

const (
	anyHello helloKind = iota
	newHello           // of current clients, some 1.8 KB
	oldHello           // of older ones, 517 bytes
)

// figure is a metric of the load test's report.
type figure struct {
	metric, name string
	most         float64 // of ours, in terms of HAProxy's; 0: not bounded
}

func bulkLoad(direction string, connections int, most float64) load {
	args := []string{"bulk", "--duration=2s", fmt.Sprintf("--connections=%d", connections), "--direction=" + direction}
	return load{fmt.Sprintf("bulk %s, %d", direction, connections), true, anyHello, args, []figure{{"cpu_s_per_gb", "CPU-s/GB", most}, {"mb_per_s", "MB/s", 0}}}
}

// churnLoad has relays of bytes open a connection to the DC for each of their clients', as the others do; what they answer
// is no hello but the echo.
func churnLoad(name string, of helloKind) load {
	args := []string{"churn", "--duration=3s", "--burst=200"}
	return load{name, false, of, args, []figure{{"handshake_cpu_ms", "CPU, ms", 0}, {"hello_p50_ms", "p50, ms", 0}}}
}

// rivalLoads has the bounds of the design for the downlink. On the way up our clients send TLS records, of which the proxy
// has to free the bytes; what HAProxy gets has none, so that the two have no bound in common.
var rivalLoads = []load{
	bulkLoad("down", 1, 1.5),
	bulkLoad("down", 16, 1.15),
	bulkLoad("up", 1, 0),
	bulkLoad("up", 16, 0),
	{"idle", false, anyHello, []string{"idle", "--connections=1000,4000", "--quiet=5s"}, []figure{{"bytes_per_connection", "bytes each", 0}}},
	{"ping", false, anyHello, []string{"ping", "--duration=4s"}, []figure{{"p50_ms", "p50, ms", 0}, {"p99_ms", "p99, ms", 0}}},
	churnLoad("churn", newHello),
	churnLoad("churn, old hello", oldHello),
}

// TestRivals compares the proxy with relays that do less, since they copy bytes as they come, and with another FakeTLS proxy,
// in Python. All stand before the same fake DC on the same machine, by turns, and every byte is verified.
func TestRivals(t *testing.T) {
	compareRivals(t, rivalLoads, onLoopback)
}

// TestRivalsOnEthernet repeats the bulk loads with segments of 1,448 bytes, of which loopback's have up to 65,483.
func TestRivalsOnEthernet(t *testing.T) {
	compareRivals(t, slices.DeleteFunc(slices.Clone(rivalLoads), func(l load) bool { return !l.bulk }), onEthernet)
}

func compareRivals(t *testing.T, loads []load, where func(*testing.T) place) {
	t.Helper()
	rounds, err := strconv.Atoi(os.Getenv(measureRivals))
	if err != nil || rounds < 1 {
		t.Skipf("set %s to a number of rounds, of four minutes each, to measure beside another proxy, HAProxy, nginx and a plain Go relay", measureRivals)
	}
	seen := make(results)
	for round := range rounds {
		for _, l := range loads {
			for i := range rivals {
				r := rivals[(i+round)%len(rivals)]
				t.Run(fmt.Sprintf("%d/%s/%s", round+1, l.name, r.name), func(t *testing.T) {
					speak, cannot := r.speak(l)
					if cannot != "" {
						t.Skip(cannot)
					}
					seen.add(t, l, r, l.putOn(t, r, where(t), speak))
				})
			}
		}
	}
	showRivals(t, loads, seen)
}

// putOn starts the relay, has it carry the load, stops it, and returns what the load test reports. speak are the arguments
// that say how its clients speak to it.
func (l load) putOn(t *testing.T, r rival, at place, speak []string) (metrics map[string]float64) {
	t.Helper()
	binary, err := binaries.plain()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"loadtest"}, l.args, speak)
	args = append(args, "--json=-", "--addr="+at.relay, "--dc-bind="+at.dc)
	for _, pid := range r.start(t, at, l) {
		args = append(args, fmt.Sprintf("--pid=%d", pid))
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = at.startLoad(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("proxy loadtest %s: %v\n%s", strings.Join(l.args, " "), err, &said)
	}
	var report struct{ Metrics map[string]float64 }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	return report.Metrics
}

// results are values by load and figure, and by relay.
type results map[string]map[string][]float64

func (r results) add(t *testing.T, l load, of rival, metrics map[string]float64) {
	t.Helper()
	for _, f := range l.figures {
		v, ok := metrics[f.metric]
		if !ok {
			t.Fatalf("no %s among %v", f.metric, metrics)
		}
		what := l.name + f.metric
		if r[what] == nil {
			r[what] = make(map[string][]float64)
		}
		r[what][of.name] = append(r[what][of.name], v)
	}
}

// showRivals logs a table of medians, with what ours is in terms of each rival's beside it.
func showRivals(t *testing.T, loads []load, seen results) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t\t%s", rivals[0].name)
	for _, r := range rivals[1:] {
		fmt.Fprintf(w, "\t%s\tratio", r.name)
	}
	fmt.Fprintln(w)
	for _, l := range loads {
		for _, f := range l.figures {
			l.row(t, w, f, seen[l.name+f.metric])
		}
	}
	w.Flush()
	t.Logf("medians, in brackets the least and the most, and ours in terms of theirs:\n%s", b.String())
}

func (l load) row(t *testing.T, w *tabwriter.Writer, f figure, values map[string][]float64) {
	t.Helper()
	ours := values[rivals[0].name]
	if len(ours) == 0 {
		return // not asked for by -run, or failed
	}
	fmt.Fprintf(w, "%s\t%s\t%s", l.name, f.name, spread(ours))
	for _, r := range rivals[1:] {
		theirs := values[r.name]
		if len(theirs) == 0 {
			fmt.Fprint(w, "\t-\t")
			continue
		}
		ratio := median(ours) / median(theirs)
		fmt.Fprintf(w, "\t%s\t%.2f", spread(theirs), ratio)
		if r.name == "HAProxy" && f.most > 0 && ratio > f.most {
			t.Errorf("%s: %.2f times the %s of HAProxy, more than %.2f", l.name, ratio, f.name, f.most)
		}
	}
	fmt.Fprintln(w)
}

func spread(list []float64) string {
	if len(list) == 1 {
		return short(list[0])
	}
	return fmt.Sprintf("%s (%s-%s)", short(median(list)), short(slices.Min(list)), short(slices.Max(list)))
}

// short has three digits at least, and no power of ten.
func short(v float64) string {
	digits := 0
	for limit := 100.0; digits < 3 && v < limit; limit /= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
