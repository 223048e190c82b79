package conf

import (
	"bytes"
	"errors"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A document is a TOML file as a flat list, in file order: what the decoder of go-toml would give, plus the line of
// every value, so that our own checks can name it too.
type document struct {
	entries []entry
	broken  []problem // what is no TOML, in the order of its lines
	unread  []string  // the text of what was given up because of it
}

// An entry is one key with its value, or a [table] header, whose value has the kind kindTable.
type entry struct {
	path  []string
	line  int // of the key
	value value
}

// key returns the dotted path as TOML would write it, so that "a.b" in quotes stays one part.
func (e entry) key() string { return joinKey(e.path) }

func (e entry) isTable() bool { return e.value.kind == kindTable }

type kind uint8

const (
	kindText kind = iota
	kindNumber
	kindBool
	kindList
	kindTable
	kindOther // fractions, dates
)

// A value is one TOML value. Tables inside a list keep nothing but their kind: no option takes them.
type value struct {
	kind kind
	line int
	text string  // texts unescaped, numbers and booleans as written
	list []value // kindList
}

// maxDepth bounds the parts of a path: deeper keys are cut there. No option is that deep, so they stay unknown, and a
// file of nothing but nesting cannot make us remember the square of its size.
const maxDepth = 8

// utf8BOM is what Windows editors put in front of a file.
var utf8BOM = []byte("\xef\xbb\xbf")

// read cuts data into entries. It keeps no reference to data.
func read(data []byte) document {
	data = bytes.TrimPrefix(data, utf8BOM)
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return document{
			broken: []problem{{line: 1, text: "the file is in UTF-16; save it as UTF-8"}},
			unread: []string{requiredSecret, requiredBindTo}, // they may well be there
		}
	}
	r := reader{data: data, ends: lineEnds(data)}
	r.readAll()
	return r.document
}

// validate has go-toml decode the whole document: it knows rules about tables that the parser does not check.
func validate(data []byte) *problem {
	var all map[string]any
	err := toml.Unmarshal(bytes.TrimPrefix(data, utf8BOM), &all)
	if err == nil {
		return nil
	}
	p := &problem{text: notTOML(err)}
	if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
		p.line, _ = at.Position()
	}
	return p
}

const notTOMLPrefix = "not valid TOML: "

// notTOML words an error of go-toml, with advice on the slips that operators make.
func notTOML(err error) string {
	text := notTOMLPrefix + strings.TrimPrefix(err.Error(), "toml: ")
	switch {
	case strings.Contains(text, "U+000A at start of value"), strings.Contains(text, "U+000D at start of value"):
		text = notTOMLPrefix + "the value is missing"
	case strings.Contains(text, "U+00E2"): // the first byte of a curly quote
		text += "; quotes must be straight ones"
	case strings.HasSuffix(text, "at start of value"):
		text += "; a text stands in quotes, and a switch is true or false"
	case strings.Contains(text, "expected newline but got"):
		text += "; a text stands in quotes, and nothing follows a value in its line"
	case strings.HasSuffix(text, "strings cannot have new lines"):
		text += "; the closing quote is missing"
	case strings.HasSuffix(text, "expected '=' after key"):
		text += "; a line is  key = value,  a [table] or a # comment"
	}
	return text
}

type reader struct {
	document
	parser unstable.Parser
	data   []byte
	ends   []int    // offsets of the line ends in data
	from   int      // offset in data of what the parser was given last
	table  []string // the [table] that keys belong to now
	lost   bool     // that table is unknown: its header could not be read
}

func lineEnds(data []byte) (ends []int) {
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i)
		}
	}
	return ends
}

// lineAt returns the line, from 1, of an offset in data.
func (r *reader) lineAt(offset int) int { return 1 + sort.SearchInts(r.ends, offset) }

// lineOf returns the line of a piece of what the parser was given.
func (r *reader) lineOf(piece unstable.Range) int { return r.lineAt(r.from + int(piece.Offset)) }

func (r *reader) expression(n *unstable.Node) {
	path, line := r.keyOf(n)
	r.lost = r.lost && n.Kind == unstable.KeyValue
	switch n.Kind {
	case unstable.KeyValue:
		if r.lost {
			r.unread = append(r.unread, joinKey(path))
			return
		}
		r.keyValue(r.table, n)
	case unstable.Table:
		r.table = path
		r.entries = append(r.entries, entry{path, line, value{kind: kindTable, line: line}})
	case unstable.ArrayTable:
		r.table = path
		r.entries = append(r.entries, entry{path, line, value{kind: kindList, line: line}})
	}
}

// keyValue appends what n sets below the table prefix; an inline table becomes its keys.
func (r *reader) keyValue(prefix []string, n *unstable.Node) {
	key, line := r.keyOf(n)
	path := slices.Concat(prefix, key)
	path = path[:min(len(path), maxDepth)]
	r.entries = append(r.entries, entry{path, line, r.valueOf(n.Value(), line)})
	if n.Value().Kind != unstable.InlineTable || len(path) == maxDepth {
		return
	}
	for it := n.Value().Children(); it.Next(); {
		r.keyValue(path, it.Node())
	}
}

func (r *reader) keyOf(n *unstable.Node) (path []string, line int) {
	for it := n.Key(); it.Next(); {
		if line == 0 {
			line = r.lineOf(it.Node().Raw)
		}
		if len(path) < maxDepth {
			path = append(path, string(it.Node().Data))
		}
	}
	return path, line
}

// valueOf converts a value that stands on the given line unless its own place is known: texts and numbers have one,
// booleans and lists do not need one.
func (r *reader) valueOf(n *unstable.Node, line int) value {
	if n.Raw.Length > 0 {
		line = r.lineOf(n.Raw)
	}
	v := value{kind: kindOther, line: line, text: string(n.Data)}
	switch n.Kind {
	case unstable.String:
		v.kind = kindText
	case unstable.Integer:
		v.kind = kindNumber
	case unstable.Bool:
		v.kind = kindBool
	case unstable.InlineTable:
		v.kind = kindTable
	case unstable.Array:
		v.kind = kindList
		for it := n.Children(); it.Next(); {
			v.list = append(v.list, r.valueOf(it.Node(), line))
		}
	}
	return v
}

func joinKey(path []string) string {
	parts := make([]string, len(path))
	for i, part := range path {
		if parts[i] = part; !isBareKey(part) {
			parts[i] = strconv.Quote(part)
		}
	}
	return strings.Join(parts, ".")
}

func isBareKey(part string) bool {
	for i := range len(part) {
		c := part[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return part != ""
}
