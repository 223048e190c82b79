package conf

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The functions below make setters out of a range and a field. An empty text leaves the default, as in mtg.

func toggle(field func(*draft) *bool) func(*draft, entry) error {
	return func(d *draft, e entry) (err error) {
		*field(d), err = e.value.boolean()
		return err
	}
}

// What 0 means to an option that takes it beside a range.
const (
	zeroIsKernel = "0 leaves it to the kernel"
	zeroIsSite   = "0 is as slow as the site"
)

// orZero makes a setter that takes 0 as well, of which meaning tells.
func orZero[T int | time.Duration](
	kind func(from, to T, field func(*draft) *T) func(*draft, entry) error, meaning string, from, to T, field func(*draft) *T,
) func(*draft, entry) error {
	other := kind(from, to, field)
	return func(d *draft, e entry) error {
		if e.value.isZero() {
			*field(d) = 0
			return nil
		}
		if err := other(d, e); err != nil {
			return fmt.Errorf("%w; %s", err, meaning)
		}
		return nil
	}
}

func number(from, to int, field func(*draft) *int) func(*draft, entry) error {
	return func(d *draft, e entry) (err error) {
		*field(d), err = e.value.whole(from, to)
		return err
	}
}

func span(from, to time.Duration, field func(*draft) *time.Duration) func(*draft, entry) error {
	return func(d *draft, e entry) (err error) {
		if !e.value.isEmptyText() {
			*field(d), err = e.value.duration(from, to)
		}
		return err
	}
}

func size(from, to int, field func(*draft) *int) func(*draft, entry) error {
	return func(d *draft, e entry) (err error) {
		if !e.value.isEmptyText() {
			*field(d), err = e.value.size(from, to)
		}
		return err
	}
}

func port(field func(*draft) *uint16) func(*draft, entry) error {
	return func(d *draft, e entry) error {
		n, err := e.value.whole(1, 65535)
		*field(d) = uint16(n) //nolint:gosec // in range
		return err
	}
}

func host(field func(*draft) *string) func(*draft, entry) error {
	return func(d *draft, e entry) (err error) {
		if !e.value.isEmptyText() {
			*field(d), err = e.value.frontHost()
		}
		return err
	}
}

func public(family string, right func(netip.Addr) bool, field func(*draft) *netip.Addr) func(*draft, entry) error {
	return func(d *draft, e entry) (err error) {
		if !e.value.isEmptyText() {
			*field(d), err = e.value.address(family, right)
		}
		return err
	}
}

func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// The setters below are for one key each.

func setPreferIP(d *draft, e entry) error {
	if e.value.isEmptyText() {
		return nil
	}
	i, err := e.value.choice(preferIPNames)
	d.PreferIP = PreferIP(i) //nolint:gosec // four of them
	return err
}

func setDownlink(d *draft, e entry) error {
	i, err := e.value.choice([]string{"pass", "reencrypt"})
	d.Reencrypt = i == 1
	return err
}

func setBindTo(d *draft, e entry) error {
	if e.value.isEmptyText() {
		return nil // as if it were missing
	}
	d.tried[requiredBindTo] = true
	var wrong []problem
	d.BindTo, wrong = e.value.addresses(value.listener)
	d.all(e.key(), wrong)
	return nil
}

// all reports problems with the parts of one value.
func (d *draft) all(key string, wrong []problem) {
	for _, p := range wrong {
		d.problem(p.line, key, p.text)
	}
}

func statsEnabled(d *draft, e entry) error {
	on, err := e.value.boolean()
	d.legacy.statsOff = !on
	return err
}

func statsBindTo(d *draft, e entry) (err error) {
	d.Stats.BindTo = netip.AddrPort{}
	if !e.value.isEmptyText() {
		d.Stats.BindTo, err = e.value.listener()
	}
	return err
}

func setDC(d *draft, e entry) error {
	id := 0
	if e.path[1] != "*" {
		var err error
		if id, err = dcID(e.path[1]); err != nil {
			return err
		}
	}
	addresses, wrong := e.value.addresses(value.target)
	d.all(e.key(), wrong)
	if id == 0 {
		d.DC.Rest = addresses
		return nil
	}
	if d.DC.Addresses == nil {
		d.DC.Addresses = map[int][]netip.AddrPort{}
	}
	d.DC.Addresses[id] = addresses
	return nil
}

// dcID reads an id as a client would send it, in 16 bits. One id has one spelling, so that two lines cannot name the
// same one.
func dcID(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatInt(n, 10) != text {
		return 0, errors.New(`must be a DC id from -32768 to 32767 without 0, such as 2, -2, 203 or 10002, or "*" for all others`)
	}
	return int(n), nil
}

func setSecret(d *draft, e entry) error {
	if e.value.isEmptyText() {
		return nil // as if it were missing
	}
	return d.addSecret("default", e)
}

func setNamedSecret(d *draft, e entry) error {
	d.tried[requiredSecret] = true
	name := e.path[1]
	if err := checkName(name); err != nil {
		return err
	}
	return d.addSecret(name, e)
}

// maxName is the most characters that the name of a secret may have.
const maxName = 32

// checkName keeps out what would not do as a label of a metric or in a log, and what is a secret itself.
func checkName(name string) error {
	if _, err := ParseSecret(name); err == nil || utf8.RuneCountInString(name) > maxName {
		return errors.New("has a name that is a secret or longer than 32 characters; write  name = \"ee…\"")
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-@+", r) {
			return errors.New("has a name with other characters than letters, digits and . _ - @ +")
		}
	}
	if name == "" {
		return errors.New("has an empty name")
	}
	return nil
}

func (d *draft) addSecret(name string, e entry) error {
	d.tried[requiredSecret] = true
	if e.value.kind != kindText {
		// Not mustBe: 32 digits without quotes are a number that nobody should see.
		return errors.New("must be a secret in quotes")
	}
	s, err := ParseSecret(e.value.text)
	if err != nil {
		return err
	}
	for _, other := range d.Secrets {
		if other.Name == name {
			return errors.New("is there already, as the secret option; choose another name")
		}
		if other.key == s.key {
			return fmt.Errorf("has the same key as %s; clients of one could not be told from those of the other", other.Name)
		}
	}
	if s.key == mtgExampleKey {
		d.warn(e.value.line, e.key(), "is the secret of mtg's example, which everybody knows; make one of your own with \"proxy generate-secret HOST\"")
	}
	if s.wasUnicode {
		d.warn(e.value.line, e.key(), "spells its host in Unicode, as clients do that were given it so: their hellos will not match; hand out the link that \"proxy link\" prints")
	}
	d.Secrets = append(d.Secrets, NamedSecret{name, s})
	return nil
}
