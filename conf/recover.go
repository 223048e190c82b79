package conf

import (
	"bytes"
	"errors"
	"regexp"

	"github.com/pelletier/go-toml/v2/unstable"
)

// maxBroken is how many syntax errors are told. One that is misjudged brings others along.
const maxBroken = 10

// readAll reads the whole of data. Whoever wrote it wants to hear of everything in one go, so what cannot be read is
// left out, and reading goes on behind it.
func (r *reader) readAll() {
	from := 0
	for from < len(r.data) && len(r.broken) < maxBroken {
		err := r.readFrom(from)
		if err == nil {
			return
		}
		from = r.skip(err)
	}
	r.unread = append(r.unread, string(r.data[from:]))
}

// readFrom reads up to the end or to the first syntax error from an offset where a line begins.
func (r *reader) readFrom(from int) error {
	r.from = from
	r.parser.Reset(r.data[from:])
	for r.parser.NextExpression() {
		r.expression(r.parser.Expression())
	}
	return r.parser.Error()
}

// lineOfError says in which line the parser gave up.
func (r *reader) lineOfError(err error) int {
	rest := r.data[r.from:]
	// The highlight is a piece of what the parser was given, so its capacity tells where it begins.
	if at := (*unstable.ParserError)(nil); errors.As(err, &at) && cap(at.Highlight) <= cap(rest) {
		if offset := cap(rest) - cap(at.Highlight); offset <= len(rest) {
			return r.lineAt(r.from + offset)
		}
	}
	return len(r.ends) + 1
}

// beginning matches a line in which a table header or a key begins, and captures the key.
var beginning = func() *regexp.Regexp {
	const part = `(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')`
	return regexp.MustCompile(`^[ \t]*(?:\[|(` + part + `(?:[ \t]*\.[ \t]*` + part + `)*)[ \t]*=)`)
}()

// continuing matches a line that can be part of a list, or that says nothing.
var continuing = regexp.MustCompile(`^[ \t]*(?:["'\]{},#0-9+-]|\r?\n|$)`)

// skip reports err and returns the offset where reading goes on. What has no end is found out only in the next key or
// header behind it, so then that line is read again.
func (r *reader) skip(err error) int {
	line := r.lineOfError(err)
	first, next, text := line, line+1, notTOML(err)
	if start := r.lineStart(line); start > r.from && !isWhole(r.data[r.from:start]) {
		if r.begins(line) {
			next, text = line, notTOMLPrefix+"what begins here has no end; a closing bracket or quote is missing"
		}
		for first--; r.lineStart(first) > r.from && !r.begins(first); first-- {
		}
	}
	for next <= len(r.ends) && !r.begins(next) && continuing.Match(r.line(next)) {
		next++
	}
	left := r.data[r.lineStart(first):r.lineStart(next)]
	if next == line {
		line = first
	}
	r.broken = append(r.broken, problem{line, r.keyIn(left), text})
	r.giveUp(left)
	return r.lineStart(next)
}

// keyIn returns the key that text begins with, "" when that is something else or the table is unknown.
func (r *reader) keyIn(text []byte) string {
	match := beginning.FindSubmatch(text)
	if match == nil || match[1] == nil || r.lost {
		return ""
	}
	key := string(match[1])
	if len(r.table) > 0 {
		key = joinKey(r.table) + "." + key
	}
	return shorten(key)
}

// giveUp remembers what was left out. Behind a header that cannot be read, keys belong to nobody knows what, up to the
// next one.
func (r *reader) giveUp(text []byte) {
	r.unread = append(r.unread, string(text))
	text, _, _ = bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	isHeader := bytes.HasPrefix(text, []byte("[")) || bytes.HasSuffix(bytes.TrimSpace(text), []byte("]"))
	r.lost = r.lost || isHeader && !bytes.ContainsRune(text, '=')
}

// isWhole reports whether text ends where an expression does.
func isWhole(text []byte) bool {
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
	}
	return p.Error() == nil
}

// lineStart returns the offset where a line, from 1, begins; the length of data for one behind the last.
func (r *reader) lineStart(line int) int {
	switch {
	case line == 1:
		return 0
	case line-2 < len(r.ends):
		return r.ends[line-2] + 1
	}
	return len(r.data)
}

// line returns a line with its end.
func (r *reader) line(n int) []byte { return r.data[r.lineStart(n):r.lineStart(n+1)] }

// begins reports whether a key or a header begins in a line.
func (r *reader) begins(line int) bool { return beginning.Match(r.line(line)) }
