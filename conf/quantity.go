package conf

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// blanks may stand anywhere in a duration or a size, as in mtg.
var blanks = strings.NewReplacer(" ", "", "\t", "")

func compact(text string) string { return blanks.Replace(strings.ToLower(text)) }

// zero matches 0 in every spelling, compact, and captures its unit.
var zero = regexp.MustCompile(`^[+-]?(?:0[0_]*(?:\.0+)?|0x[0_]+)([a-zµμ]*)$`)

// isZero reports whether v is 0, of whatever unit and with or without quotes.
func (v value) isZero() bool {
	if v.kind != kindText && v.kind != kindNumber && v.kind != kindOther {
		return false
	}
	parts := zero.FindStringSubmatch(compact(v.text))
	if parts == nil {
		return false
	}
	_, isSize := sizeUnits[parts[1]]
	return isSize || durationUnits[parts[1]] != ""
}

// duration returns a text with units, or 0, which needs none. Programs differ in whether a number alone counts seconds
// or milliseconds, so here it is refused.
func (v value) duration(from, to time.Duration) (time.Duration, error) {
	if v.isZero() && from == 0 {
		return 0, nil
	}
	text := compact(v.text)
	d, ok := parseDuration(text)
	switch {
	case (v.kind == kindText || v.kind == kindNumber) && bareNumber.MatchString(text):
		return 0, fmt.Errorf("has no unit; write \"%ss\" for seconds or \"%sms\" for milliseconds", text, text)
	case v.kind != kindText || !ok || d < from || d > to:
		return 0, mustBe(fmt.Sprintf("a duration from %s to %s in quotes, such as \"90s\", \"5m\" or \"1h30m\"", brief(from), brief(to)), v)
	}
	return d, nil
}

// bareNumber matches a number that is short enough to be repeated to its owner: it is no secret.
var bareNumber = regexp.MustCompile(`^[0-9]{1,12}$`)

// durationUnits maps what people write to what time.ParseDuration reads.
var durationUnits = map[string]string{
	"ns": "ns", "us": "us", "µs": "us", "μs": "us", "ms": "ms",
	"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
}

var durationUnit = regexp.MustCompile(`[a-zµμ]+`)

// parseDuration reads a duration in lower case without blanks: one or more numbers, each with its unit, or 0.
func parseDuration(text string) (time.Duration, bool) {
	if text == "1d" || text == "1day" { // the most that any option takes
		return 24 * time.Hour, true
	}
	d, err := time.ParseDuration(durationUnit.ReplaceAllStringFunc(text, func(unit string) string {
		if known := durationUnits[unit]; known != "" {
			return known
		}
		return unit
	}))
	return d, err == nil
}

// brief writes a duration without the zero parts of Duration.String: 5m, not 5m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeUnits holds the bits to shift by. As in mtg, kb means the same as kib: 1024 bytes.
var sizeUnits = map[string]uint{
	"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30,
}

// size returns a number of bytes.
func (v value) size(from, to int) (int, error) {
	n, ok := parseSize(compact(v.text))
	if v.kind != kindText && v.kind != kindNumber || !ok || n < int64(from) || n > int64(to) {
		return 0, mustBe(fmt.Sprintf("a size from %s to %s, such as \"128kib\" or \"1mib\", where a number alone counts bytes", sized(from), sized(to)), v)
	}
	return int(n), nil
}

// sizeParts matches a number, of which a fraction is a part, and a unit.
var sizeParts = regexp.MustCompile(`^([0-9][0-9_]{0,11})(\.[0-9]{1,9})?([a-z]*)$`)

// parseSize reads a size in lower case without blanks. A fraction must come to whole bytes.
func parseSize(text string) (n int64, ok bool) {
	parts := sizeParts.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	bits, ok := sizeUnits[parts[3]]
	number, err := strconv.ParseFloat(strings.ReplaceAll(parts[1], "_", "")+parts[2], 64)
	bytes := math.Ldexp(number, int(bits))
	return int64(bytes), ok && err == nil && bytes == math.Trunc(bytes)
}

// sized writes a number of bytes in the largest unit that divides it.
func sized(n int) string {
	for _, unit := range []string{"gib", "mib", "kib"} {
		if bits := sizeUnits[unit]; n != 0 && n%(1<<bits) == 0 {
			return strconv.Itoa(n>>bits) + unit
		}
	}
	return strconv.Itoa(n)
}
