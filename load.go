package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"mtrelay/conf"
	"mtrelay/loadtest"
)

type load struct {
	Measure loadMeasure `cmd:"" default:"withargs" help:"Measure; what \"loadtest\" alone does."`
	Plot    loadPlot    `cmd:"" help:"Draw the reports of one or more runs side by side."`
}

type loadMeasure struct {
	Scenario string `arg:"" optional:"" default:"idle" help:"What to do, ${default} when not given; \"list\" tells what there is."`

	Self      bool     `group:"Target" help:"Measure a proxy of our own, started for the purpose. So it is without --addr."`
	Addr      string   `group:"Target" placeholder:"HOST:PORT" help:"Measure the proxy that listens there; its data centres must be at --dc-bind."`
	Secret    string   `group:"Target" placeholder:"SECRET" help:"The secret of that proxy. Other users of this machine can read it in the list of processes; @FILE is read."`
	Plain     bool     `group:"Target" help:"What listens at --addr is a TCP relay that forwards to --dc-bind: speak without TLS."`
	Classic   bool     `group:"Target" help:"Greet it as older clients do, with a ClientHello of 517 bytes: some proxies take no other."`
	PID       []int    `group:"Target" name:"pid" placeholder:"N" help:"Processes of that proxy, for its CPU time and memory."`
	DCBind    string   `group:"Target" name:"dc-bind" placeholder:"ADDR" help:"Where the fake data centre listens; a free port when not given."`
	FrontBind string   `group:"Target" placeholder:"ADDR" help:"Where the fake front listens; a free port when not given."`
	Netns     bool     `group:"Target" help:"Put the proxy, the clients, the data centre and the front on hosts of their own: network namespaces on a bridge, with an MTU of 1500. Root only."`
	Link      int64    `group:"Target" placeholder:"N" help:"Mbit/s that the proxy's port lets through in either direction (--netns)."`
	Proxy     string   `group:"Target" placeholder:"FILE" help:"Another build to start in place of this one."`
	Env       []string `group:"Target" placeholder:"NAME=VALUE" help:"Environment of the proxy that is started, such as GOGC=100."`
	Secrets   int      `group:"Target" default:"1" help:"How many secrets it has."`
	Shape     bool     `group:"Target" help:"Have it imitate its front ([defense.doppelganger])."`
	Cgroup    string   `group:"Target" placeholder:"DIR" help:"Give it a cgroup of its own in this directory, to see what the kernel takes for it."`

	Connections []int         `group:"Load" placeholder:"N,…" help:"Numbers of connections, rising."`
	Duration    time.Duration `group:"Load" placeholder:"TIME" help:"How long each measurement takes."`
	Quiet       time.Duration `group:"Load" placeholder:"TIME" help:"How long connections are quiet before memory is read. The proxy gives memory back twice a minute."`
	Rate        float64       `group:"Load" placeholder:"N" help:"Messages per second: of all (ping), of each that is active (active, curve, mixed)."`
	Mbit        float64       `group:"Load" placeholder:"N" help:"Mbit/s of all downloads together (rate, ping, mixed): 1000, or 2000 beside which latencies are measured."`
	Direction   string        `group:"Load" enum:"down,up" default:"down" help:"down, to the client, or up (bulk)."`
	Size        []int         `group:"Load" placeholder:"N,…" help:"Lengths of messages in bytes, 0 for a mixture (sizes)."`
	Active      []float64     `group:"Load" placeholder:"S,…" help:"Shares of the connections that are active, 0 to 1 (curve, mixed)."`
	Stalled     []int         `group:"Load" placeholder:"N,…" help:"Numbers of clients that do not read (slow, curve)."`
	Burst       int           `group:"Load" placeholder:"N" help:"Hellos in a second (churn)."`
	Hold        int           `group:"Load" placeholder:"N" help:"Idle connections that are held meanwhile (churn)."`

	JSON    string   `group:"Result" name:"json" placeholder:"FILE" help:"Write the report as JSON too; \"-\" is standard output, in place of the table."`
	Expect  []string `group:"Result" sep:"none" placeholder:"METRIC<=N" help:"Fail unless a figure is within bounds, such as bytes_per_connection<=3KiB. May be given again."`
	Label   string   `group:"Result" help:"Name of this run in tables and plots that show several."`
	Verbose bool     `group:"Result" help:"Tell how far it is even if standard error is no terminal."`
}

// Run measures and prints the report. It fails when a byte was wrong, a connection broke or an expectation was missed.
func (l loadMeasure) Run(on console) error {
	if l.Scenario == "list" {
		_, err := fmt.Fprintln(on.out, strings.Join(loadtest.Scenarios(), "\n"))
		return err
	}
	expectations, err := l.expectations()
	if err != nil {
		return err
	}
	o, err := l.options(on)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report, err := loadtest.Run(ctx, o)
	if report == nil {
		return err
	}
	errs := []error{err, l.show(on, report)}
	for _, e := range expectations {
		errs = append(errs, e.Check(report.Metrics))
	}
	return errors.Join(errs...)
}

func (l loadMeasure) expectations() (list []loadtest.Expectation, err error) {
	for _, text := range l.Expect {
		e, err := loadtest.ParseExpectation(text)
		if err != nil {
			return nil, fmt.Errorf("--expect: %w", err)
		}
		list = append(list, e)
	}
	return list, nil
}

func (l loadMeasure) options(on console) (loadtest.Options, error) {
	o := loadtest.Options{
		Scenario: l.Scenario, Label: l.Label, Version: versionText(),
		Addr: l.Addr, Plain: l.Plain, Classic: l.Classic, PIDs: l.PID, DCBind: l.DCBind, FrontBind: l.FrontBind,
		Netns: l.Netns, LinkRate: l.Link * 1e6,
		Executable: l.Proxy, Env: l.Env, Secrets: l.Secrets, Shape: l.Shape, Cgroup: l.Cgroup,
		Connections: l.Connections, Duration: l.Duration, Quiet: l.Quiet, Rate: l.Rate, Mbit: l.Mbit, Up: l.Direction == "up",
		Sizes: l.Size, Active: l.Active, Stalled: l.Stalled, Burst: l.Burst, Hold: l.Hold,
	}
	if l.Self && l.Addr != "" {
		return o, errors.New("--self and --addr: there is one target")
	}
	if l.Verbose || terminal(on.err) {
		o.Progress = on.err
	}
	if l.Secret == "" {
		return o, nil
	}
	text := l.Secret
	if name, ok := strings.CutPrefix(text, "@"); ok {
		content, err := os.ReadFile(name)
		if err != nil {
			return o, fmt.Errorf("--secret: %w", err)
		}
		text = string(content)
	}
	var err error
	if o.Secret, err = conf.ParseSecret(text); err != nil {
		return o, fmt.Errorf("--secret %w", err)
	}
	return o, nil
}

func (l loadMeasure) show(on console, r *loadtest.Report) error {
	if l.JSON == "-" {
		return r.WriteJSON(on.out)
	}
	err := r.Write(on.out)
	if l.JSON == "" {
		return err
	}
	f, createErr := os.Create(l.JSON)
	if createErr != nil {
		return errors.Join(err, createErr)
	}
	return errors.Join(err, r.WriteJSON(f), f.Close())
}
