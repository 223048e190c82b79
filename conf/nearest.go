package conf

import (
	"regexp"
	"strings"
	"unicode"
)

// maxTypos is how far a key may be from the one that we take it for, in letters changed, added or left out; for a short
// one it is a third of its length.
const maxTypos = 3

// nearest returns the known key or table that was most likely meant by an unknown one, "" when none is close, and how
// far it is.
func nearest(key string, known []string) (found string, typos int) {
	typos = tooFar
	for _, k := range known {
		if d := remoteness(key, k); d < typos {
			found, typos = k, d
		}
	}
	return found, typos
}

// Farther than any typo: the right name in the wrong table, nearly the right name there, and anything else.
const (
	wrongTable = maxTypos + iota
	wrongTableAndTypos
	tooFar
)

func remoteness(key, known string) int {
	last := lastPart(known)
	if d := distance(key, known); isClose(d, known) {
		return d
	}
	switch d := distance(lastPart(key), last); {
	case d == 0:
		return wrongTable
	case isClose(d, last):
		return wrongTableAndTypos
	}
	return tooFar
}

func isClose(typos int, known string) bool { return typos <= min(maxTypos, len(known)/3) }

func lastPart(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// distance is the Levenshtein distance of a and b, where case and _ for - cost nothing; more than maxTypos is not
// counted further.
func distance(a, b string) int {
	if d := len(a) - len(b); d > maxTypos || -d > maxTypos {
		return maxTypos + 1
	}
	a, b = loosely(a), loosely(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func loosely(key string) string { return strings.ReplaceAll(strings.ToLower(key), "_", "-") }

// secretLike matches what could be a secret or a good part of one, in hexadecimal, base64 or a link. The shortest that
// gives a key away is 16 bytes in base64, 22 characters.
var secretLike = regexp.MustCompile(`[0-9A-Za-z+/_=%-]{20,}`)

// redact replaces everything in text that could be a secret which was put in a wrong place: as a key, or as the value
// of another option. Names of options, and names that are nearly one, stay.
func redact(text string) string {
	return secretLike.ReplaceAllStringFunc(text, func(run string) string {
		for _, part := range optionParts {
			if distance(run, part) <= maxTypos {
				return run
			}
		}
		return "…"
	})
}

// shorten makes a value fit into a message. It is redacted before it is cut: half a secret would look harmless.
func shorten(text string) string {
	const limit = 64
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, redact(text))
	if runes := []rune(clean); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return clean
}
