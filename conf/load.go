package conf

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxFile is far more than a configuration with a thousand secrets needs.
const maxFile = 256 << 10

// Load reads and checks the configuration file at path. The warnings, for the operator, are in the form of problems:
// file:line: key: text; there may be some beside an error. The error is an *Error when the file could be read; one that
// wraps fs.ErrNotExist, if there is none. Neither contains a secret.
func Load(path string) (c *Config, warnings []string, err error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	// One byte more than Parse takes, so that it sees the excess.
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse checks the contents of a configuration file; name is what warnings and errors call it.
func Parse(name string, data []byte) (c *Config, warnings []string, err error) {
	d := newDraft()
	if len(data) > maxFile {
		d.problem(0, "", "is larger than 256 KiB: not a configuration of ours")
	} else {
		d.read(data)
	}
	warnings = report(name, d.warnings)
	if len(d.problems) > 0 {
		return nil, warnings, &Error{report(name, d.problems)}
	}
	return &d.Config, warnings, nil
}

// A draft is a Config in the making, with what is needed to judge it.
type draft struct {
	Config
	problems, warnings []problem

	lines         map[string]int  // where a key or table stands
	unknownTables map[string]bool // reported: what is in them need not be
	off           []string        // tables with enabled = false
	idle          []string        // keys that are set to something and do nothing yet
	legacy        legacy

	tried map[string]bool // required keys that the file has, be they right or wrong
}

func newDraft() *draft {
	return &draft{Config: defaults(), lines: map[string]int{}, unknownTables: map[string]bool{}, tried: map[string]bool{}}
}

func (d *draft) problem(line int, key, text string) {
	d.problems = append(d.problems, problem{line, key, text})
}

func (d *draft) warn(line int, key, text string) {
	d.warnings = append(d.warnings, problem{line, key, text})
}

// read takes every key on its own first, then looks at the whole.
func (d *draft) read(data []byte) {
	doc := read(data)
	for _, e := range doc.entries {
		d.take(e)
	}
	d.problems = append(d.problems, doc.broken...)
	// go-toml takes the square of the time for a file that is all tables; with so many problems nobody misses one.
	if len(doc.broken) == 0 && len(d.problems) < maxShown {
		d.validate(data)
	}
	d.check(doc)
}

// validate looks for what go-toml alone knows of, unless something else is wrong with the same line: both may be one.
func (d *draft) validate(data []byte) {
	p := validate(data)
	if p == nil || slices.ContainsFunc(d.problems, func(other problem) bool { return other.line == p.line }) {
		return
	}
	d.problems = append(d.problems, *p)
}

// take applies one entry of the file.
func (d *draft) take(e entry) {
	if d.inUnknownTable(e) {
		d.takeMisplaced(e)
		return
	}
	key := e.key()
	if first, twice := d.lines[key]; twice {
		d.repeated(e, first)
		return
	}
	d.lines[key] = e.line
	if e.isTable() && slices.Contains(tables, key) {
		return
	}
	if table, is := strings.CutSuffix(key, ".enabled"); is && e.value.isOff() {
		d.off = append(d.off, table)
	}
	o, ok := optionFor(e)
	if (!ok || e.isInOpenTable()) && d.takeMisplaced(e) {
		return
	}
	if !ok || e.isTable() && !e.isInOpenTable() {
		d.unknown(e)
		return
	}
	if err := o.apply(d, e); err != nil {
		d.problem(e.value.line, key, err.Error())
	}
}

func (d *draft) repeated(e entry, first int) {
	text := "is set twice, first in line %d; keep one"
	if e.isTable() {
		text = "is there twice, first in line %d; keep one, with the keys of both"
	}
	d.problem(e.line, e.key(), fmt.Sprintf(text, first))
}
