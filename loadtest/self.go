package loadtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"mtrelay/conf"
	"mtrelay/loadtest/netns"
)

// ownHost is the name in the secrets of a proxy of our own.
const ownHost = "front.example"

// portTries is how often a proxy is given other ports when somebody takes one between the choice and the use.
const portTries = 3

// startSelf starts a proxy as a child process with a configuration of its own.
func startSelf(ctx context.Context, o *Options, h hosts, dc *dc, front string, connections int) (t *target, err error) {
	for range portTries {
		t, err = trySelf(ctx, o, h, dc, front, connections)
		if err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			break
		}
	}
	return t, err
}

func trySelf(ctx context.Context, o *Options, h hosts, dc *dc, front string, connections int) (*target, error) {
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return nil, err
	}
	c := selfConfig{addr: h.free(netns.Proxy, h.host(netns.Proxy)), stats: h.free(netns.Proxy, loopback), front: front, dcs: dc.addrs(), shape: o.Shape, connections: connections}
	for range o.Secrets {
		s, err := conf.NewSecret(rand.Reader, ownHost)
		if err != nil {
			return nil, err
		}
		c.secrets = append(c.secrets, s)
	}
	path := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(path, c.text(), 0o600); err != nil {
		return nil, err
	}
	child, err := startChild(o, h, path)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	t := &target{name: "self", hosts: h, addr: c.addr, secrets: c.secrets, pids: []int{child.cmd.Process.Pid}, dcs: len(c.dcs), classic: o.Classic, alive: child.alive, lost: child.lost}
	t.stop = func() string {
		defer os.RemoveAll(dir)
		return child.stop()
	}
	if err := t.awaitReady(ctx); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

// selfConfig is the configuration of a proxy of our own: as it comes, but for where things are and how many there may be.
type selfConfig struct {
	addr, stats, front string
	dcs                []string
	secrets            []conf.Secret
	shape              bool
	connections        int
}

func (c *selfConfig) text() []byte {
	var b bytes.Buffer
	host, port, _ := net.SplitHostPort(c.front)
	fmt.Fprintf(&b, "bind-to = %q\nconcurrency = %d\n", c.addr, c.connections)
	fmt.Fprintf(&b, "[domain-fronting]\nhost = %q\nport = %s\nmax-connections = %d\n", host, port, c.connections)
	fmt.Fprintf(&b, "[stats]\nbind-to = %q\n[network.timeout]\ndrain = \"0s\"\n", c.stats)
	fmt.Fprintf(&b, "[defense.doppelganger]\nenabled = %t\n[dc]\n", c.shape)
	for i, addr := range c.dcs {
		fmt.Fprintf(&b, "\"%d\" = %q\n", i+1, addr)
	}
	b.WriteString("[secrets]\n")
	for i, s := range c.secrets {
		fmt.Fprintf(&b, "s%05d = %q\n", i, s.Hex())
	}
	return b.Bytes()
}

// child is a proxy that runs.
type child struct {
	cmd    *exec.Cmd
	said   *tail
	ended  chan struct{}
	cgroup string
}

// startChild runs the executable. It dies with us, however we end. It has a session of its own, since the kernel shares a
// busy machine out by session (sched(7), autogroup): beside downloads, the proxy's two threads would get what two of the
// generator's many get, and pings through it took 27 ms longer than past it instead of 2.
func startChild(o *Options, h hosts, config string) (*child, error) {
	path := o.Executable
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	c := &child{cmd: exec.Command(path, "run", config), said: &tail{}, ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), o.Env...)
	c.cmd.Stdout, c.cmd.Stderr = c.said, c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := c.joinCgroup(o.Cgroup); err != nil {
		return nil, err
	}
	if err := h.start(netns.Proxy, c.cmd); err != nil {
		return nil, err
	}
	go func() {
		c.cmd.Wait()
		close(c.ended)
	}()
	if err := c.enterCgroup(); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// joinCgroup makes a cgroup for the child in the given one, if any, so that the kernel's share of its memory shows.
func (c *child) joinCgroup(parent string) error {
	if parent == "" {
		return nil
	}
	c.cgroup = filepath.Join(parent, fmt.Sprintf("loadtest-%d", os.Getpid()))
	if err := os.Mkdir(c.cgroup, 0o755); err != nil {
		return fmt.Errorf("--cgroup: %w", err)
	}
	return nil
}

// enterCgroup moves the child there. What it had allocated by then, next to nothing, stays accounted where it was.
func (c *child) enterCgroup() error {
	if c.cgroup == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.cgroup, "cgroup.procs"), fmt.Append(nil, c.cmd.Process.Pid), 0); err != nil {
		return fmt.Errorf("--cgroup: %w", err)
	}
	return nil
}

func (c *child) alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("the proxy has ended: %s\n%s", c.cmd.ProcessState, c.said)
	default:
		return nil
	}
}

// lost returns why the child ended, if it did: of a process that just died the kernel may know nothing before we hear of
// its end.
func (c *child) lost() error {
	select {
	case <-c.ended:
	case <-time.After(time.Second):
	}
	return c.alive()
}

// stopWithin is what a proxy may take to end when it is asked to.
const stopWithin = 10 * time.Second

// stop ends the child and returns what it logged about itself that an operator would have to look into.
func (c *child) stop() (problem string) {
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(stopWithin):
		c.cmd.Process.Kill()
		<-c.ended
		problem = fmt.Sprintf("the proxy did not stop within %s of SIGTERM\n", stopWithin)
	}
	if c.cgroup != "" {
		os.Remove(c.cgroup)
	}
	if !c.cmd.ProcessState.Success() && problem == "" {
		problem = fmt.Sprintf("the proxy ended with %s\n", c.cmd.ProcessState)
	}
	for line := range strings.Lines(c.said.String()) {
		if strings.Contains(line, " WRN ") || strings.Contains(line, " ERR ") || strings.Contains(line, "panic") {
			problem += line
		}
	}
	return strings.TrimSpace(problem)
}

// tail keeps the beginning of what is written to it. Safe for concurrent use.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxTail = 64 << 10 // bytes

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[:min(len(p), maxTail-len(t.b))]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
