package conf

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// mustBe says what a value should have been.
func mustBe(want string, v value) error { return fmt.Errorf("must be %s, not %s", want, v.describe()) }

func (v value) describe() string {
	switch v.kind {
	case kindText:
		return `"` + shorten(v.text) + `"`
	case kindNumber, kindBool:
		return shorten(v.text)
	case kindList:
		return "a list"
	case kindTable:
		return "a table"
	}
	return "a fraction, a date or a time"
}

func (v value) isEmptyText() bool { return v.kind == kindText && v.text == "" }

// isOff reports whether v switches off whatever it belongs to: false, 0, "", or a list of nothing else.
func (v value) isOff() bool {
	switch v.kind {
	case kindText:
		return v.text == ""
	case kindNumber:
		return v.text == "0"
	case kindBool:
		return v.text == "false"
	case kindList:
		for _, item := range v.list {
			if !item.isOff() {
				return false
			}
		}
		return true
	}
	return false
}

func (v value) boolean() (bool, error) {
	if v.kind != kindBool {
		return false, mustBe("true or false, without quotes", v)
	}
	return v.text == "true", nil
}

func (v value) whole(from, to int) (int, error) {
	n, err := strconv.ParseInt(v.text, 0, 64)
	if v.kind != kindNumber || err != nil || n < int64(from) || n > int64(to) {
		return 0, mustBe(fmt.Sprintf("a whole number from %d to %d, without quotes", from, to), v)
	}
	return int(n), nil
}

// choice returns the index of the value among names, whatever its case.
func (v value) choice(names []string) (int, error) {
	for i, name := range names {
		if v.kind == kindText && strings.EqualFold(v.text, name) {
			return i, nil
		}
	}
	return 0, mustBe(`"`+strings.Join(names, `" or "`)+`"`, v)
}

// address returns an IP address without a zone.
func (v value) address(family string, right func(netip.Addr) bool) (netip.Addr, error) {
	a, err := netip.ParseAddr(v.text)
	if v.kind != kindText || err != nil || !right(a) || a.Zone() != "" {
		return netip.Addr{}, mustBe("an "+family+" address in quotes", v)
	}
	return a, nil
}

// frontHost returns a host name in canonical form or an IP address.
func (v value) frontHost() (string, error) {
	if v.kind != kindText {
		return "", mustBe("a host name or an IP address in quotes", v)
	}
	if a, err := netip.ParseAddr(strings.Trim(v.text, "[]")); err == nil && a.Zone() == "" {
		return a.Unmap().String(), nil
	}
	return ParseHost(v.text)
}

// Addresses as messages describe them.
const (
	wantTarget   = `an IP address and a port in quotes, such as "203.0.113.7:443" or "[2001:db8::7]:443"`
	wantListener = `an IP address and a port in quotes, such as "203.0.113.7:443" or "[2001:db8::7]:443", or ":443" for all addresses`
)

// listener returns where to listen: IP:port, or :port for every address of either family.
func (v value) listener() (netip.AddrPort, error) {
	port := strings.TrimPrefix(v.text, ":")
	if n, err := strconv.ParseUint(port, 10, 16); v.kind == kindText && port != v.text && err == nil && n != 0 {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(n)), nil
	}
	return v.addrPort(wantListener)
}

// target returns where to connect: IP:port.
func (v value) target() (netip.AddrPort, error) { return v.addrPort(wantTarget) }

// addrPort returns an address without a zone and a port other than 0; IPv4 in IPv6 becomes IPv4.
func (v value) addrPort(want string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(v.text)
	switch {
	case v.kind == kindText && err != nil && isAddr(v.text):
		return netip.AddrPort{}, fmt.Errorf("has no port; must be %s", want)
	case v.kind != kindText || err != nil || a.Addr().Zone() != "":
		return netip.AddrPort{}, mustBe(want, v)
	case a.Port() == 0:
		return netip.AddrPort{}, errors.New("has port 0; choose one from 1 to 65535")
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return err == nil
}

// items returns the elements of a list; a value that is no list is its own only element.
func (v value) items() []value {
	if v.kind == kindList {
		return v.list
	}
	return []value{v}
}

// addresses reads one address or a list of at least one, all of them distinct.
func (v value) addresses(read func(value) (netip.AddrPort, error)) ([]netip.AddrPort, []problem) {
	var found []netip.AddrPort
	var wrong []problem
	seen := map[netip.AddrPort]bool{}
	for _, item := range v.items() {
		a, err := read(item)
		if err == nil && seen[a] {
			err = fmt.Errorf("names %s twice", a)
		}
		if err != nil {
			wrong = append(wrong, problem{line: item.line, text: err.Error()})
			continue
		}
		seen[a] = true
		found = append(found, a)
	}
	if len(v.items()) == 0 {
		wrong = append(wrong, problem{line: v.line, text: "is an empty list; name at least one address"})
	}
	return found, wrong
}
