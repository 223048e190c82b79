package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

// mostPerIdle is what shaping may add to an idle session, in bytes.
const mostPerIdle = 64

// wakeups are how often the threads of the proxy were scheduled, and the time that they took.
func (p *proxy) wakeups(t *testing.T) (switches int, cpu time.Duration) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.pid))
	if err != nil || len(tasks) == 0 {
		t.Fatal("no threads", err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task + "/status")
		if err != nil {
			continue // a thread may end
		}
		for line := range strings.Lines(string(status)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(name, "ctxt_switches") {
				n, err := strconv.Atoi(strings.TrimSpace(value))
				if err != nil {
					t.Fatal(err)
				}
				switches += n
			}
		}
		if stat, err := os.ReadFile(task + "/schedstat"); err == nil {
			if ns, err := strconv.Atoi(strings.Fields(string(stat))[0]); err == nil {
				cpu += time.Duration(ns)
			}
		}
	}
	return switches, cpu
}

// sit opens sessions that have downloaded something, and so were shaped, and do nothing more. It returns the memory for each.
func sit(t *testing.T, s *scene, n int) (perSession float64) {
	t.Helper()
	collectClients(t, s, 300) // what the process touches once
	before := steadyRSS(t, s)
	collectClients(t, s, n)
	return float64(steadyRSS(t, s)-before) / float64(n)
}

func collectClients(t *testing.T, s *scene, n int) {
	t.Helper()
	errs := make([]error, n)
	turn := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for i := range n {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			conn, err := connectFrom(s.addr)
			if err != nil {
				errs[i] = err
				return
			}
			c, err := relaytest.Dial(t.Context(), "", sceneKey, siteHost, shapeDC, relaytest.OverConn(conn))
			if err != nil {
				errs[i] = err
				return
			}
			t.Cleanup(func() { c.Close() })
			c.SetDeadline(time.Now().Add(10 * patience))
			_, err = c.Write(newOrder(3000, clientEnds))
			errs[i] = errors.Join(err, checkFrame(c, 3000))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// idle compares sessions that do nothing, without a shape and with one that makes pauses. One after the other, since
// each takes most of the descriptors that a process has.
func (s *shapeStage) idle(t *testing.T) {
	n := 1000
	if s.long {
		n = min(9000, descriptors(t)/2-200)
	}
	var bytes [2]float64
	var wakes [2]int
	for i, p := range []*scene{s.fast[0].proxy, s.fast[4].proxy} {
		t.Run([]string{"without a shape", "shaped"}[i], func(t *testing.T) {
			t.Cleanup(func() { until(t, func() (bool, string) { return p.dc.Open() == 0, "the DC has connections" }) })
			bytes[i] = sit(t, p, n)
			wakes[i] = p.switches(t)
			t.Logf("%d idle sessions: %.0f bytes each, %d switches in %v", n, bytes[i], wakes[i], idleLook)
		})
	}
	if grown := bytes[1] - bytes[0]; s.long && grown > mostPerIdle {
		t.Errorf("shaping adds %.0f bytes to an idle session", grown)
	}
	if wakes[1] > wakes[0]+100 {
		t.Errorf("%d idle sessions with a shape: %d switches, %d without", n, wakes[1], wakes[0])
	}
}

const idleLook = 3 * time.Second

// switches is how often threads of the proxy run in a while, the less of two: at first the runtime tidies up.
func (p *proxy) switches(t *testing.T) (least int) {
	least = 1 << 30
	for range 2 {
		before, _ := p.wakeups(t)
		time.Sleep(idleLook) // what is measured is that nothing happens
		after, _ := p.wakeups(t)
		least = min(least, after-before)
	}
	return least
}

// stall: a client that stops reading costs little while its download is shaped, and gets all of it when it goes on.
func (stage *shapeStage) stall(t *testing.T) {
	s := stage.like[0]
	warmUp(t, s) // its front makes no pauses
	before := steadyRSS(t, s)
	st := stallDown(t, s)
	untilStill(t, st)
	grown := steadyRSS(t, s) - before
	t.Logf("one stalled client: %d KiB", grown>>10)
	if grown > growthOfOne {
		t.Errorf("a client that does not read costs %d bytes", grown)
	}
	const many = 20
	stalls := []*stall{st}
	for range many {
		stalls = append(stalls, stallDown(t, s))
	}
	untilStill(t, stalls...)
	each := (steadyRSS(t, s) - before) / int64(len(stalls))
	t.Logf("%d of them: %d KiB each", len(stalls), each>>10)
	if each > growthOfMany {
		t.Errorf("clients that do not read cost %d bytes each", each)
	}
	for _, st := range stalls[1:] {
		st.client.Close()
	}
	st.client.SetDeadline(time.Now().Add(patience))
	if err := relaytest.CheckPattern(st.client, seedDown, stalledBytes); err != nil {
		t.Error(err)
	}
	expectEnd(t, st.client)
	if err := <-st.done; err != nil {
		t.Error(err)
	}
}

// TestShapedTails: what the DC sends before it closes arrives, however long the shape has it wait.
func TestShapedTails(t *testing.T) {
	t.Parallel()
	files := shapeFiles(t)
	for _, f := range []shapeFront{nginxFront(t, files, "http/1.1"), goFilesFront(t, files, "http/1.1"), streamFront(t, files, "http/1.1")} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := startShaped(t, f.addr, faithful("/4k", "/64k"))
			s.learned(t, raidRepeats)
			for _, n := range []int64{1, 17, 18, 19, 35, 36, 282, 283, 300, 600, 4096, 16400, 16401, 16402, 16420, 64 << 10, 1 << 20} {
				job := s.onDC(func(c *relaytest.DCConn) error {
					return errors.Join(relaytest.SendPattern(c, seedDown, n), c.Close())
				})
				c := s.dial(t, job.id)
				if err := relaytest.CheckPattern(c, seedDown, n); err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				expectEnd(t, c)
				if err := job.result(); err != nil {
					t.Errorf("%d bytes: DC: %v", n, err)
				}
			}
		})
	}
}
