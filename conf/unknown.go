package conf

import (
	"fmt"
	"slices"
)

// inUnknownTable reports whether e belongs to a table that was refused already: one problem is enough for it.
func (d *draft) inUnknownTable(e entry) bool {
	for i := 1; i < len(e.path); i++ {
		if d.unknownTables[joinKey(e.path[:i])] {
			return true
		}
	}
	return false
}

// takeMisplaced reports a key that stands in a table but belongs outside of all: TOML gives every key to the header
// above it, which people forget who add a line at the end. It reports false for any other key.
func (d *draft) takeMisplaced(e entry) bool {
	name := e.path[len(e.path)-1]
	if len(e.path) == 1 || !slices.Contains(topKeys, name) || !e.isForeign() {
		return false
	}
	d.problem(e.line, e.key(), fmt.Sprintf("is no known option; %s belongs above the first [table]", name))
	if d.lines[name] != 0 {
		return true
	}
	// Its value is judged too, and it is not missing.
	moved := entry{[]string{name}, e.line, e.value}
	d.lines[name] = e.line
	if err := optionByKey[name].apply(d, moved); err != nil {
		d.problem(e.value.line, name, err.Error())
	}
	return true
}

// isForeign reports whether e, which has the name of an option outside of all tables, was not meant for the table that
// it is in, rightly spelt or not.
func (e entry) isForeign() bool {
	table := joinKey(e.path[:len(e.path)-1])
	switch table {
	case "dc":
		return true
	case "secrets":
		// Somebody may be called debug. That secret is a name, too, is no reason to send it elsewhere.
		_, err := ParseSecret(e.value.text)
		return e.path[1] != "secret" && (e.value.kind != kindText || err != nil)
	}
	name := e.path[len(e.path)-1]
	meant, _ := nearest(table, tables)
	key, _ := nearest(e.key(), knownKeys)
	return optionByKey[meant+"."+name].key == "" && key == name
}

// unknown reports a key that is none of ours, or a table with the name of an option, with what was probably meant.
func (d *draft) unknown(e entry) {
	key := e.key()
	if e.isTable() {
		d.unknownTables[key] = true
		d.tried[key] = true // [secret] is not what is wanted, but was meant to be
	}
	if len(d.problems) >= maxShown {
		d.problem(e.line, key, "") // counted, not shown: a file that is something else need not take long
		return
	}
	d.problem(e.line, key, whyUnknown(e))
}

func whyUnknown(e entry) string {
	key := e.key()
	_, isOption := optionByKey[key]
	switch {
	case slices.Contains(tables, key):
		return fmt.Sprintf("is a table; write its keys below a line [%s]", key)
	case isOption:
		return "is an option, not a table; " + advice(e, fmt.Sprintf("write  %s = …", key))
	case e.isTable():
		return "is no known table; " + advice(e, "take it out")
	}
	return "is no known option; " + advice(e, "take it out")
}

// advice names what is nearest to an unknown key or table, or gives other advice.
func advice(e entry, other string) string {
	option, typos := nearest(e.key(), knownKeys)
	table, tableTypos := nearest(e.key(), tables)
	switch {
	case option != "" && typos <= tableTypos && !e.isTable():
		if len(e.path) > 1 && slices.Contains(topKeys, option) {
			option += ", above the first [table]"
		}
		return "nearest: " + option
	case table != "" && table != joinKey(e.path[:len(e.path)-1]):
		return fmt.Sprintf("nearest: [%s]", table)
	}
	return other
}
