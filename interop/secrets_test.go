package interop

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mtrelay/relay/relaytest"
)

// TestThousandSecrets over several hosts: the first and the last work, a secret with another's host does not,
// each has its link, and the series are bounded.
func TestThousandSecrets(t *testing.T) {
	const secrets, hosts = 1000, 4
	dc, err := relaytest.ListenDC("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dc.Serve(relaytest.Echo)
	front := startWatchedFront(t, "host0.example")
	host := func(i int) string { return fmt.Sprintf("host%d.example", i%hosts) }
	key := func(i int) [16]byte { return [16]byte{byte(i), byte(i >> 8), 0x77} }
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	var config strings.Builder
	fmt.Fprintf(&config, "bind-to = %q\n[domain-fronting]\nhost = \"127.0.0.1\"\nport = %s\n[dc]\n\"*\" = [%q]\n[secrets]\n",
		addr, front.addr[strings.LastIndex(front.addr, ":")+1:], dc.Addr())
	for i := range secrets {
		fmt.Fprintf(&config, "person%d = \"ee%x%x\"\n", i, key(i), host(i))
	}
	config.WriteString(noScout)
	p := startProxy(t, config.String())
	t.Cleanup(func() { dc.Close() })
	front.forget()

	for _, i := range []int{0, 1, 500, secrets - 1, secrets - 1} {
		c, err := relaytest.Dial(t.Context(), addr, key(i), host(i), 2)
		if err != nil {
			t.Fatalf("person%d: %v", i, err)
		}
		if err := relaytest.SendPattern(c, uint64(i), 5000); err != nil {
			t.Fatal(err)
		}
		if err := relaytest.CheckPattern(c, uint64(i), 5000); err != nil {
			t.Fatalf("person%d: %v", i, err)
		}
		c.Close()
	}
	if _, err := relaytest.Dial(t.Context(), addr, key(1), host(0), 2); err == nil {
		t.Error("a secret works with another's host")
	}
	if names := front.names(); len(names) != 1 || names[0] != host(0) {
		t.Errorf("the front saw ClientHellos for %q", names)
	}
	if n := p.metric(t, `mtrelay_secret_handshakes_total{secret="person1"}`); n != 1 {
		t.Errorf("person1 shook hands %v times", n)
	}
	if n := p.metric(t, `mtrelay_secret_handshakes_total{secret="other"}`); n != 3 {
		t.Errorf("those without a series of their own shook hands %v times", n)
	}
	binary, err := binaries.plain()
	if err != nil {
		t.Fatal(err)
	}
	links, err := exec.Command(binary, "link", filepath.Join(filepath.Dir(p.cmd.Args[2]), "config.toml")).Output()
	if n := strings.Count(string(links), "tg://proxy?"); err != nil || n != secrets {
		t.Errorf("%d links, %v", n, err)
	}
}
