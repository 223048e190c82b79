package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"mtrelay/loadtest/netns"
)

// place is where a relay stands, and the load test: on loopback, or on hosts of their own.
type place struct {
	relay, dc             string // addresses
	startRelay, startLoad func(*exec.Cmd) error
}

func onLoopback(t *testing.T) place {
	return place{freeAddr(t), freeAddr(t), (*exec.Cmd).Start, (*exec.Cmd).Start}
}

// onEthernet has the relay and the load test, clients and DC, at two ports of a switch.
func onEthernet(t *testing.T) place {
	t.Helper()
	w, err := netns.Make(t.Context(), netns.Options{})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { w.Close() })
	return place{
		w.Addr(netns.Proxy).String() + ":4000", w.Addr(netns.Clients).String() + ":4000",
		func(c *exec.Cmd) error { return w.Start(netns.Proxy, c) },
		func(c *exec.Cmd) error { return w.Start(netns.Clients, c) },
	}
}

// rival is a relay that can be started in front of a DC. start returns the ids of its processes, which end with the test.
type rival struct {
	name   string
	start  func(t *testing.T, at place, l load) (pids []int)
	secret string // none: it relays bytes as they are
	old    bool   // it knows the ClientHello of older clients alone
}

// speak returns how clients are told to speak to it under a load, or why they cannot.
func (r rival) speak(l load) (args []string, cannot string) {
	switch {
	case r.secret == "" && l.hello == oldHello:
		return nil, "there is no hello to a relay of bytes"
	case r.secret == "":
		return []string{"--plain"}, ""
	case r.old && l.hello == newHello:
		return nil, "it takes a current client's hello for a stranger's"
	case r.old || l.hello == oldHello:
		return []string{"--secret=" + r.secret, "--classic"}, ""
	}
	return []string{"--secret=" + r.secret}, ""
}

var rivalSecret = fmt.Sprintf("ee%x%x", sceneKey, siteHost)

// ours comes first: the others are what it is compared with.
var rivals = []rival{
	{name: "ours", start: startOurs, secret: rivalSecret},
	{name: "mtprotoproxy", start: startMTProtoProxy, secret: rivalSecret, old: true},
	{name: "HAProxy", start: startHAProxy},
	{name: "nginx", start: startNginxStream},
	{name: "copyrelay", start: startCopyRelay},
}

// startOurs runs the proxy as it comes, but unshaped: shaping is a service that no rival offers.
func startOurs(t *testing.T, at place, _ load) []int {
	binary, err := binaries.plain()
	if err != nil {
		t.Fatal(err)
	}
	c := sceneConfig{bind: []string{at.relay}, top: "concurrency = 9900", dcs: []string{at.dc}, tables: withoutStats}
	file := filepath.Join(t.TempDir(), "config.toml")
	writeFile(t, file, []byte(c.text(t, at.dc)))
	return []int{startRelay(t, at, binary, "run", file)}
}

// haproxyConf has it copy rather than splice, which is what a proxy that touches the bytes can be held to, with buffers of
// the size with which it is fastest at that. Verbs: 1 threads, 2 address, 3 the DC.
const haproxyConf = `
global
    nbthread %d
    maxconn 9950
    tune.bufsize 65536
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen relay
    bind %s backlog 4096
    server dc %s
`

func startHAProxy(t *testing.T, at place, _ load) []int {
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	writeFile(t, file, fmt.Appendf(nil, haproxyConf, runtime.NumCPU(), at.relay, at.dc))
	return []int{startRelay(t, at, tool(t, "haproxy", "haproxy"), "-db", "-q", "-f", file)}
}

// nginxStreamConf: a worker for each core, as it is run. Verbs: 1 directory, 2 user, 3 group, 4 module, 5 workers, 6 bytes
// of each connection's two buffers, 7 address, 8 the DC.
const nginxStreamConf = `
load_module %[4]s;
daemon off;
pid %[1]s/nginx.pid;
user %[2]s %[3]s;
worker_processes %[5]d;
worker_rlimit_nofile 20000;
events { worker_connections 19900; }
stream {
    proxy_timeout 1h;
    proxy_buffer_size %[6]d;
    server {
        listen %[7]s backlog=4096;
        proxy_pass %[8]s;
    }
}
`

const nginxStreamModule = "/usr/lib/nginx/modules/ngx_stream_module.so" // where Debian has it

// startNginxStream gives it the buffers that suit the load: idle connections hold theirs, so those are of the default size.
func startNginxStream(t *testing.T, at place, l load) []int {
	binary := tool(t, "nginx", "nginx")
	if _, err := os.Stat(nginxStreamModule); err != nil {
		t.Fatalf("nginx's stream module is missing: apt-get install libnginx-mod-stream (%v)", err)
	}
	dir, buffer := t.TempDir(), 16<<10
	if l.bulk {
		buffer = 64 << 10
	}
	me, group := whoAmI(t)
	file := filepath.Join(dir, "nginx.conf")
	writeFile(t, file, fmt.Appendf(nil, nginxStreamConf, dir, me, group, nginxStreamModule, runtime.NumCPU(), buffer, at.relay, at.dc))
	pid := startRelay(t, at, binary, "-p", dir, "-c", file, "-e", filepath.Join(dir, "error.log"))
	pids := []int{pid}
	until(t, func() (bool, string) {
		pids = append(pids[:1], children(t, pid)...)
		return len(pids) == 1+runtime.NumCPU(), fmt.Sprintf("nginx has %d workers", len(pids)-1)
	})
	return pids
}

// children returns the processes that a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(string(text)) {
		child, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	return pids
}

var buildCopyRelay = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(binaries.dir, "copyrelay")
	if out, err := exec.Command("go", "build", "-o", binary, "./copyrelay").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build copyrelay: %w\n%s", err, out)
	}
	return binary, nil
})

func startCopyRelay(t *testing.T, at place, _ load) []int {
	binary, err := buildCopyRelay()
	if err != nil {
		t.Fatal(err)
	}
	return []int{startRelay(t, at, binary, at.relay, at.dc)}
}

// startRelay runs a command until the test ends.
func startRelay(t *testing.T, at place, name string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	said := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := at.startRelay(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, said)
		}
	})
	return cmd.Process.Pid
}

func tool(t *testing.T, name, debian string) string {
	t.Helper()
	binary, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: apt-get install %s", name, debian)
	}
	return binary
}

func freeAddr(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
}
