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
	"testing"
)

// mtprotoproxyConf leaves it in its fast mode, as it comes: the DC encrypts with the client's key, and its bytes are passed
// on as they are. Verbs: 1 host and 2 port to listen at, 3 key, 4 site, 5 a port that nobody listens on, 6 host and 7 port of
// the DC.
const mtprotoproxyConf = `
LISTEN_ADDR_IPV4 = %[1]q
LISTEN_ADDR_IPV6 = ""
PORT = %[2]s
USERS = {"one": "%[3]x"}
SECURE_ONLY = TLS_ONLY = True
TLS_DOMAIN = %[4]q
MASK_HOST = "127.0.0.1"
MASK_PORT = %[5]d
DC_ADDR = %[6]q
DC_PORT = %[7]s
`

// startMTProtoProxy runs one process for each core, between which the kernel deals out the connections.
func startMTProtoProxy(t *testing.T, at place, _ load) (pids []int) {
	python, err := installMTProtoProxy()
	if err != nil {
		t.Fatal(err)
	}
	host, port := splitAddr(t, at.relay)
	dcHost, dcPort := splitAddr(t, at.dc)
	file := filepath.Join(t.TempDir(), "config.py")
	writeFile(t, file, fmt.Appendf(nil, mtprotoproxyConf, host, port, sceneKey, siteHost, freePort(t), dcHost, dcPort))
	for range runtime.NumCPU() {
		pids = append(pids, startRelay(t, at, python, filepath.Join("rivalpython", "launch.py"), file))
	}
	until(t, func() (bool, string) { // else the first to listen gets what comes before the others do
		n := listeners(t, pids[0], port)
		return n == len(pids), fmt.Sprintf("%d of %d processes listen", n, len(pids))
	})
	return pids
}

// installMTProtoProxy makes a virtual environment for this run and returns its interpreter.
var installMTProtoProxy = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(binaries.dir, "mtprotoproxy")
	python := filepath.Join(dir, "bin", "python")
	if out, err := exec.Command("python3", "-m", "venv", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("python3 is missing, or its venv: apt-get install python3-venv (%w)\n%s", err, out)
	}
	install := exec.Command(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join("rivalpython", "requirements.txt"))
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install interop/rivalpython/requirements.txt, from PyPI or the index that pip is told of: %w\n%s", err, out)
	}
	return python, nil
})

// listeners returns how many sockets listen on the port in the network namespace of a process.
func listeners(t *testing.T, pid int, port string) (n int) {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	const listening = "0A" // proc_pid_net(5): number, local address, remote address, state
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if strings.HasSuffix(f[1], fmt.Sprintf(":%04X", number)) && f[3] == listening {
			n++
		}
	}
	return n
}

func splitAddr(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
