package loadtest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"mtrelay/conf"
)

// Options say what is measured and under which load. What is zero has the scenario's default.
type Options struct {
	Scenario string
	Label    string
	Version  string    // of this build, for the report
	Progress io.Writer // lines that tell how far it is; nil: none

	// The target: with an Addr what listens there, else a proxy of our own, the child process `Executable run CONFIG`.
	Addr      string
	Secret    conf.Secret
	Plain     bool   // the target is a TCP relay in front of DCBind: clients speak bare obfuscated2
	Classic   bool   // clients greet it as older ones do, see relaytest.Classic; some proxies understand no other
	PIDs      []int  // of the target's processes; without one, CPU and memory are not measured
	DCBind    string // where the fake DC listens, so that the target can be pointed at it
	FrontBind string // and the fake front

	// Netns puts the proxy, the clients, the DC and the front on hosts of their own; LinkRate is what the proxy's port lets
	// through in either direction, in bit/s, 0 for no limit.
	Netns    bool
	LinkRate int64

	Executable string   // default: this one
	Env        []string // NAME=VALUE, of the child alone
	Secrets    int      // in its configuration, at least 1
	Shape      bool     // with [defense.doppelganger]
	Cgroup     string   // directory of a memory cgroup to make the child's in

	// The load.
	Connections []int         // levels, rising
	Duration    time.Duration // of each measurement
	Quiet       time.Duration // from the last byte to the sample
	Rate        float64       // messages per second: in all (ping), of each active connection (active, curve)
	Mbit        float64       // Mbit/s of the downloads together (rate, ping, mixed)
	Up          bool          // bulk: from the client to the DC
	Sizes       []int         // bytes of a message
	Active      []float64     // shares of the connections, 0 to 1
	Stalled     []int         // readers that do not read
	Burst       int           // hellos in one second
	Hold        int           // idle connections that are there meanwhile (churn)
}

// fill puts the defaults of a scenario in the place of zeros.
func (o *Options) fill(d Options) {
	fillList(&o.Connections, d.Connections)
	fillList(&o.Sizes, d.Sizes)
	fillList(&o.Active, d.Active)
	fillList(&o.Stalled, d.Stalled)
	fillValue(&o.Duration, d.Duration)
	fillValue(&o.Quiet, d.Quiet)
	fillValue(&o.Rate, d.Rate)
	fillValue(&o.Mbit, d.Mbit)
	fillValue(&o.Burst, d.Burst)
	fillValue(&o.Secrets, 1)
}

func fillValue[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func fillList[T any](v *[]T, list []T) {
	if len(*v) == 0 {
		*v = list
	}
}

// check refuses what no run could make sense of.
func (o *Options) check() error {
	switch {
	case slices.Min(append([]int{1}, o.Connections...)) < 1:
		return fmt.Errorf("--connections: %v: each level is 1 or more", o.Connections)
	case !slices.IsSorted(o.Connections):
		return fmt.Errorf("--connections: %v: levels must rise, since connections are only added", o.Connections)
	case slices.ContainsFunc(o.Sizes, func(n int) bool { return n < 0 || n > maxMessage }):
		return fmt.Errorf("--size: %v: a message has 1 to %d bytes, and 0 is a mixture", o.Sizes, maxMessage)
	case slices.ContainsFunc(o.Active, func(s float64) bool { return s < 0 || s > 1 }):
		return fmt.Errorf("--active: %v: a share is a number from 0 to 1", o.Active)
	case o.Addr == "" && o.Plain:
		return fmt.Errorf("--plain: is about another relay: give its --addr, and --dc-bind where it forwards to")
	case o.Plain && o.Classic:
		return fmt.Errorf("--plain, --classic: a relay of bytes gets no hello of either kind")
	case o.Netns && o.Addr != "":
		return fmt.Errorf("--netns: is about a proxy of our own, which can be started in it; leave out --addr")
	case o.LinkRate != 0 && !o.Netns || o.LinkRate < 0:
		return fmt.Errorf("--link: is the rate of a --netns, in Mbit/s")
	case o.Addr != "" && o.DCBind == "":
		return fmt.Errorf("--addr: also give --dc-bind, where the fake DC is to listen, and point the target at it")
	case o.Addr != "" && !o.Plain && o.Secret.Host() == "":
		return fmt.Errorf("--addr: also give its --secret")
	}
	return nil
}

// parameters are what of the options makes a difference, as a report shows them. Nothing here may be a secret.
func (o *Options) parameters() map[string]string {
	p := map[string]string{
		"connections": joined(o.Connections), "sizes": joined(o.Sizes), "active": joined(o.Active), "stalled": joined(o.Stalled),
		"rate": positive(o.Rate), "mbit": positive(o.Mbit), "burst": positive(float64(o.Burst)), "hold": positive(float64(o.Hold)), "env": strings.Join(o.Env, ","),
	}
	if o.Duration > 0 {
		p["duration"] = o.Duration.String()
	}
	if o.Quiet > 0 {
		p["quiet"] = o.Quiet.String()
	}
	if o.Secrets > 1 {
		p["secrets"] = strconv.Itoa(o.Secrets)
	}
	if o.Netns {
		p["netns"] = "on"
	}
	if o.LinkRate > 0 {
		p["link"] = fmt.Sprint(o.LinkRate/1e6, " Mbit/s")
	}
	if o.Shape {
		p["shape"] = "on"
	}
	if o.Classic {
		p["hello"] = "classic"
	}
	maps.DeleteFunc(p, func(_, v string) bool { return v == "" })
	return p
}

func joined[T any](list []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ",")
}

func positive(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
