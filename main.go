// Proxy is an MTProto proxy for Telegram that looks like a web site to whoever does not hold its secret.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"mtrelay/conf"
)

// commands is the command line; each command stands in a file of its own.
type commands struct {
	Run            serve          `cmd:"" help:"Serve until SIGINT or SIGTERM."`
	Check          check          `cmd:"" help:"Tell what is wrong with a configuration; start nothing."`
	GenerateSecret generateSecret `cmd:"" help:"Make a secret that looks like a web site."`
	Link           link           `cmd:"" help:"Print the links that people open to use the proxy."`
	Shape          shape          `cmd:"" help:"Compare the proxy with the site that it looks like; grade the site."`
	Loadtest       load           `cmd:"" help:"Put the proxy under load and measure it."`
	Version        showVersion    `cmd:"" help:"Print the version."`
}

// console is where a command writes: results to out, everything else to err.
type console struct{ out, err io.Writer }

func main() {
	os.Exit(execute(os.Args[1:], console{os.Stdout, os.Stderr}))
}

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// execute runs one command line and returns the code to exit with. A call for help ends the process in here.
func execute(args []string, on console) int {
	parser := kong.Must(&commands{},
		kong.Name("proxy"),
		kong.Description("An MTProto proxy for Telegram that looks like a web site."),
		kong.Writers(on.out, on.err),
		kong.Bind(on),
	)
	selected, err := parser.Parse(args)
	if err != nil {
		parser.Errorf("%s; see proxy --help", err)
		return exitUsage
	}
	if err := selected.Run(); err != nil {
		fmt.Fprintln(on.err, err)
		return exitError
	}
	return exitOK
}

// loadConfig reads the configuration and says what to do when there is none. The warnings are for the operator.
func loadConfig(path string) (c *conf.Config, warnings []string, err error) {
	c, warnings, err = conf.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%[1]s: there is no such file; `umask 077; proxy generate-secret --config HOST > %[1]s` "+
			"writes one, HOST being the web site to look like", path)
	}
	return c, warnings, err
}

// version is set by the linker (-X main.version=…); empty in a plain go build.
var version string

type showVersion struct{}

// Run prints one line: version, toolchain and platform, as a bug report needs them.
func (showVersion) Run(on console) error {
	_, err := fmt.Fprintf(on.out, "proxy %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionText is what the linker says, else what the go command recorded: the module's version, or one made of the
// commit that was built.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
