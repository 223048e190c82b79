package interop

import (
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestTDLibPings: as many connections at once as a phone makes when it starts, and as many again.
func TestTDLibPings(t *testing.T) {
	if !isolated(t) {
		return
	}
	const pings = 40
	s := setStage(t, 0, noScout)
	answers := pingAtOnce(t, s.addr, faketls(stageKey), pings)
	if len(answers) != pings {
		t.Errorf("%d answers to %d pings", len(answers), pings)
	}
	for _, answer := range answers {
		if answer.Error != "" || answer.Failed != "" {
			t.Errorf("pingProxy: %d %s%s", answer.Code, answer.Error, answer.Failed)
		}
	}
	if n := len(s.dc.dcs()); n != pings {
		t.Errorf("%d connections to the DC for %d pings", n, pings)
	}
	checkConnections(t, s.dc, []int16{1})
	if names := s.front.names(); len(names) != 0 {
		t.Errorf("the front saw ClientHellos for %q", names)
	}
}

// pingAtOnce returns TDLib's answers to so many pingProxy at once.
func pingAtOnce(t *testing.T, addr, secret string, pings int) (answers []tdlib) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "tdlib/pings.js", t.TempDir(), host, port, secret, strconv.Itoa(pings))
	log := &syncBuffer{}
	cmd.Stderr = log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("TDLib's driver: %v (install.sh beside this file installs what is missing)\n%s%s", err, out, log)
	}
	for line := range strings.Lines(string(out)) {
		var answer tdlib
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			t.Fatalf("TDLib's driver printed %q: %v", line, err)
		}
		answers = append(answers, answer)
	}
	return answers
}
