package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"mtrelay/relay/relaytest"
)

const (
	idleSessions = 1000
	// mostPerIdle is what shaping may add to an idle session, in bytes.
	mostPerIdle = 64
)

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

// idle opens sessions that have downloaded something, and so were shaped, and do nothing more. It returns the memory for each.
func idle(t *testing.T, s *scene, n int) (perSession float64) {
	t.Helper()
	warmUp(t, s)
	before := steadyRSS(t, s)
	for range n {
		c := s.dial(t, shapeDC)
		c.SetDeadline(time.Now().Add(10 * patience))
		if _, err := c.Write(newOrder(3000, clientEnds)); err != nil {
			t.Fatal(err)
		}
		if err := relaytest.CheckPattern(c, seedDown, 3000); err != nil {
			t.Fatal(err)
		}
	}
	return float64(steadyRSS(t, s)-before) / float64(n)
}

func TestIdleShapedSessions(t *testing.T) {
	files := shapeFiles(t)
	stream := streamFront(t, files, "http/1.1")
	nobody := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	plain := startShaped(t, nobody, "enabled = false\n")
	shaped := startShaped(t, stream.addr, faithful("/64k"))
	shaped.learned(t, raidRepeats)

	off, on := idle(t, plain, idleSessions), idle(t, shaped, idleSessions)
	t.Logf("memory of %d idle sessions, each: %.0f bytes without a shape, %.0f with one", idleSessions, off, on)
	if on-off > mostPerIdle {
		t.Logf("NOTE: shaping adds %.0f bytes to an idle session; pages are 4,096, so noise is some of it", on-off)
	}
	const look = 5 * time.Second
	restBefore, cpuBefore := plain.wakeups(t)
	wakeBefore, usedBefore := shaped.wakeups(t)
	time.Sleep(look) // what is measured is that nothing happens
	restAfter, cpuAfter := plain.wakeups(t)
	wakeAfter, usedAfter := shaped.wakeups(t)
	rest, wakes := restAfter-restBefore, wakeAfter-wakeBefore
	t.Logf("in %v: %d switches and %v of processor time without a shape, %d and %v with one", look, rest, cpuAfter-cpuBefore, wakes, usedAfter-usedBefore)
	if wakes > rest+idleSessions/10 {
		t.Errorf("%d idle sessions with a shape: %d switches, %d without", idleSessions, wakes, rest)
	}
}

// TestShapedStall: a client that stops reading costs little while its download is shaped, and gets all of it when it goes on.
func TestShapedStall(t *testing.T) {
	files := shapeFiles(t)
	nginx := nginxFront(t, files, "http/1.1")
	s := startShaped(t, nginx.addr, faithful("/64k", "/1m"))
	s.learned(t, raidRepeats)
	warmUp(t, s)
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
