package conf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxShown bounds how many problems are printed: a file that is something else altogether has one per line.
const maxShown = 50

// A problem is one thing that is wrong with a file, or, as a warning, one that its owner should know.
type problem struct {
	line int    // from 1; 0 when no line is to blame, as for an option that is missing
	key  string // "" when no key is to blame
	text string
}

// Error is everything that is wrong with a configuration file, one line for each.
type Error struct{ lines []string }

// Error joins the problems: file:line: key: what is wrong, what to do.
func (e *Error) Error() string { return strings.Join(e.lines, "\n") }

// report puts the problems of the file called name into words, in the order of their lines, those without a line last.
func report(name string, problems []problem) []string {
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Compare(a.order(), b.order())
	})
	lines := make([]string, 0, min(len(problems), maxShown+1))
	for i, p := range problems {
		if i == maxShown {
			return append(lines, fmt.Sprintf("%s: and %d more problems", name, len(problems)-i))
		}
		lines = append(lines, p.in(name))
	}
	return lines
}

func (p problem) order() int {
	if p.line == 0 {
		return math.MaxInt
	}
	return p.line
}

// in is where everything that leaves this package in words passes through redact.
func (p problem) in(name string) string {
	place := name
	if p.line > 0 {
		place = fmt.Sprintf("%s:%d", name, p.line)
	}
	text := p.text
	if p.key != "" {
		text = p.key + ": " + text
	}
	return place + ": " + redact(text)
}
