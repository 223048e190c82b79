package relay

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mtrelay/tlsfront"
)

var update = flag.Bool("update", false, "rewrite testdata/flows")

// A flow is one session in a file under testdata/flows. First its header:
//
//	secret, time   of the proxy
//	downlink       pass or reencrypt
//	expect         state and reason after the last step
//
// then its steps, in order:
//
//	client, dc           bytes that side sends
//	client-end, dc-end   fin or reset
//	dial                 ok or failed
//	wait                 for the deadline
//
// then the outcome, by direction: all that the upstream got, all that the client got after our reply (which
// is verified instead, and absent for a stranger), and the sides that got a FIN.
type flow struct {
	header, steps, outcome [][2]string
}

func readFlow(t *testing.T, path string) (f flow) {
	t.Helper()
	for _, field := range readFields(t, path) {
		switch field[0] {
		case "secret", "time", "downlink", "expect":
			f.header = append(f.header, field)
		case "upstream-got", "client-got", "fin":
			f.outcome = append(f.outcome, field)
		default:
			f.steps = append(f.steps, field)
		}
	}
	return f
}

func (f flow) get(t *testing.T, key string) string {
	t.Helper()
	for _, field := range f.header {
		if field[0] == key {
			return field[1]
		}
	}
	t.Fatalf("no %q", key)
	return ""
}

func (f flow) write(path string) error {
	var b bytes.Buffer
	for _, part := range [][][2]string{f.header, f.steps, f.outcome} {
		for _, field := range part {
			fmt.Fprintf(&b, "%s: %s\n", field[0], field[1])
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// clientBytes is what the client sends in all steps together.
func (f flow) clientBytes(t *testing.T) (n int) {
	for _, step := range f.steps {
		if step[0] == "client" {
			n += len(unhex(t, step[1]))
		}
	}
	return n
}

// glued is the flow with consecutive sends of the client made one: it does not wait for our reply.
func (f flow) glued() flow {
	var steps [][2]string
	for _, step := range f.steps {
		if last := len(steps) - 1; step[0] == "client" && last >= 0 && steps[last][0] == "client" {
			steps[last][1] += step[1]
		} else {
			steps = append(steps, step)
		}
	}
	f.steps = steps
	return f
}

// run plays the flow; cut says how many of the bytes that a client sends, from offset on, arrive at once.
func (f flow) run(t *testing.T, cut func(offset, n int) int) (outcome [][2]string, expect string) {
	t.Helper()
	secret := readSecret(t, f.get(t, "secret"))
	w := newWorld(t, readTime(t, f.get(t, "time")), secret)
	w.env.Reencrypt = f.get(t, "downlink") == "reencrypt"
	offset := 0
	for _, step := range f.steps {
		switch step[0] {
		case "client":
			for b := unhex(t, step[1]); len(b) > 0; {
				n := cut(offset, len(b))
				w.send(Client, b[:n])
				b, offset = b[n:], offset+n
			}
		case "dc":
			w.send(Upstream, unhex(t, step[1]))
		case "client-end":
			w.end(Client, ends[step[1]])
		case "dc-end":
			w.end(Upstream, ends[step[1]])
		case "dial":
			w.dialed(step[1] == "ok")
		case "wait":
			w.wait()
		default:
			t.Fatalf("unknown step %q", step[0])
		}
	}
	return f.outcomeOf(t, w, secret), fmt.Sprint(w.s.State(), " ", w.s.EndReason())
}

var ends = map[string]End{"fin": EndFIN, "reset": EndReset}

func (f flow) outcomeOf(t *testing.T, w *world, secret tlsfront.Secret) (outcome [][2]string) {
	t.Helper()
	got := w.peers[Client].got
	if w.s.Verdict() == tlsfront.Accepted {
		got = checkReply(t, got, unhex(t, f.steps[0][1]), secret.Key)
	}
	var fin []string
	for side, name := range []string{"client", "upstream"} {
		if w.peers[side].gotFIN {
			fin = append(fin, name)
		}
	}
	return [][2]string{
		{"upstream-got", hex.EncodeToString(w.peers[Upstream].got)},
		{"client-got", hex.EncodeToString(got)},
		{"fin", strings.Join(fin, " ")},
	}
}

func TestFlows(t *testing.T) {
	paths, err := filepath.Glob("testdata/flows/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no flows", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := readFlow(t, path)
			whole := func(_, n int) int { return n }
			if *update {
				f.outcome, _ = f.run(t, whole)
				if err := f.write(path); err != nil {
					t.Fatal(err)
				}
			}
			f.check(t, "whole", whole)
			f.check(t, "byte by byte", func(_, n int) int { return 1 })
			f.glued().check(t, "without waiting for the reply", whole)
			step := 1
			if raceEnabled { // an order of magnitude slower, and cuts differ in nothing that races
				step = 17
			}
			for at := 1; at < f.clientBytes(t); at += step {
				f.check(t, fmt.Sprint("cut at ", at), func(offset, n int) int {
					if offset < at {
						return min(n, at-offset)
					}
					return n
				})
			}
		})
	}
}

func (f flow) check(t *testing.T, how string, cut func(offset, n int) int) {
	t.Helper()
	outcome, expect := f.run(t, cut)
	if want := f.get(t, "expect"); expect != want {
		t.Fatalf("%s: %s, want %s", how, expect, want)
	}
	if len(f.outcome) != len(outcome) {
		t.Fatal("outcome is missing: run with -update")
	}
	for i, got := range outcome {
		want := f.outcome[i]
		if got[0] != want[0] || got[1] != want[1] {
			t.Fatalf("%s: %s\n%.200s, want\n%.200s", how, got[0], got[1], want[1])
		}
	}
}
