package clock

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure lists the packages that calculate and run no errands, as directories seen from this one.
var pure = []string{".", "../tlsfront", "../relay", "../relay/chunk", "../doppel", "../doppel/compare"}

// forbiddenImports maps an import path, which stands for everything below it too, to why a pure package
// must do without.
var forbiddenImports = map[string]string{
	"net":                       "sockets belong to loop",
	"os":                        "files and signals belong to main and conf",
	"syscall":                   "sockets belong to loop",
	"golang.org/x/sys":          "sockets belong to loop",
	"log":                       "a session returns what happened; loop logs it",
	"github.com/rs/zerolog":     "a session returns what happened; loop logs it",
	"context":                   "a deadline is a value that the owner calls back for",
	"github.com/panjf2000/gnet": "polling belongs to loop",
}

// forbiddenTime are the parts of package time that read the clock or wait for it.
var forbiddenTime = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func TestPurePackages(t *testing.T) {
	for _, dir := range pure {
		files := sourceFiles(t, dir)
		if len(files) == 0 {
			t.Errorf("%s: no Go source; a pure package is missing or was moved, so correct the list", dir)
		}
		for _, name := range files {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
				continue
			}
			for _, offence := range offences(t, name, src) {
				t.Error(offence)
			}
		}
	}
}

func sourceFiles(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// offences returns what in a source file a pure package may not do, each with its place and the reason.
func offences(t *testing.T, name string, src []byte) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%v: %s", fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	timeName := ""
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if reason := whyForbidden(path); reason != "" {
			report(spec, "imports %s: %s", path, reason)
		}
		if path == "time" {
			timeName = "time"
			if spec.Name != nil {
				timeName = spec.Name.Name
			}
		}
	}
	if timeName == "." {
		report(file, "imports time as \".\": this test could not see what it calls")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "starts a goroutine: a session is owned by one loop")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == timeName && slices.Contains(forbiddenTime, n.Sel.Name) {
				report(n, "uses time.%s: the loop reads the clock and passes now down", n.Sel.Name)
			}
		}
		return true
	})
	return found
}

// whyForbidden returns "" for an import that is welcome.
func whyForbidden(path string) string {
	if path == "net/netip" { // addresses are values
		return ""
	}
	for prefix, reason := range forbiddenImports {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return reason
		}
	}
	return ""
}

// TestOffences shows that TestPurePackages would notice.
func TestOffences(t *testing.T) {
	for _, c := range []struct {
		src  string
		want string // "" when there is nothing to object to
	}{
		{`import "net/netip"`, ""},
		{`import "crypto/aes"`, ""},
		{`import ("time"; "network"); var d = time.Second`, ""},
		{`import "net"`, "imports net: sockets"},
		{`import "net/http"`, "imports net/http: sockets"},
		{`import "os"`, "imports os: files"},
		{`import "os/signal"`, "imports os/signal: files"},
		{`import x "syscall"`, "imports syscall: sockets"},
		{`import "golang.org/x/sys/unix"`, "imports golang.org/x/sys/unix: sockets"},
		{`import _ "log/slog"`, "imports log/slog: a session"},
		{`import "context"`, "imports context: a deadline"},
		{`import "github.com/panjf2000/gnet/v2/pkg/netpoll"`, "netpoll: polling"},
		{`import "github.com/rs/zerolog/log"`, "zerolog/log: a session"},
		{`import "time"; var now = time.Now()`, "uses time.Now"},
		{`import "time"; var now = time.Now`, "uses time.Now"},
		{`import t "time"; func f() { t.Sleep(1) }`, "uses time.Sleep"},
		{`import "time"; func f() { <-time.After(1) }`, "uses time.After"},
		{`import . "time"`, "could not see"},
		{`func f() { go f() }`, "starts a goroutine"},
		{`func f(time struct{ Now int }) int { return time.Now }`, ""},
	} {
		found := offences(t, "x.go", []byte("package x; "+c.src))
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: %q, want nothing", c.src, found)
		case c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)):
			t.Errorf("%s: %q, want one that says %q", c.src, found, c.want)
		}
	}
}
