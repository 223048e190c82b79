package conf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValues(t *testing.T) {
	for _, test := range []struct {
		file string
		got  func(*Config) any
		want any
	}{
		{`concurrency = 1_000`, func(c *Config) any { return c.DomainFronting.MaxConnections }, 250},
		{`concurrency = 10`, func(c *Config) any { return c.DomainFronting.MaxConnections }, 64},
		{`prefer-ip = "only-ipv6"`, func(c *Config) any { return c.PreferIP.String() }, "only-ipv6"},
		{`tolerate-time-skewness = ""`, func(c *Config) any { return c.TolerateTimeSkewness }, 2 * time.Minute},
		{`tolerate-time-skewness = " 1 M 30 S"`, func(c *Config) any { return c.TolerateTimeSkewness }, 90 * time.Second},
		{`relay.downlink = "reencrypt"`, func(c *Config) any { return c.Reencrypt }, true},
		{`relay = { downlink = "pass" }`, func(c *Config) any { return c.Reencrypt }, false},
		{`network.tcp-window-clamp = "0b"`, func(c *Config) any { return c.Network.WindowClamp }, 0},
		{`network.tcp-window-clamp = 0`, func(c *Config) any { return c.Network.WindowClamp }, 0},
		{`network.tcp-not-sent-lowat = "64 KB"`, func(c *Config) any { return c.Network.NotSentLowat }, 64 << 10},
		{`network.tcp-user-timeout = "0s"`, func(c *Config) any { return c.Network.UserTimeout }, time.Duration(0)},
		{`network.timeout.drain = 0`, func(c *Config) any { return c.Network.Timeout.Drain }, time.Duration(0)},
		{`domain-fronting.host = "EXAMPLE.com."`, func(c *Config) any { return c.DomainFronting.Host }, "example.com"},
		{`domain-fronting.host = "[2001:db8::1]"`, func(c *Config) any { return c.DomainFronting.Host }, "2001:db8::1"},
		{`stats.bind-to = ""`, func(c *Config) any { return c.Stats.BindTo.IsValid() }, false},
		{`stats.enabled = false`, func(c *Config) any { return c.Stats.BindTo.IsValid() }, false},
		{`stats.prometheus.enabled = false`, func(c *Config) any { return c.Stats.BindTo.IsValid() }, false},
		{"stats.enabled = true\nstats.prometheus.enabled = false", func(c *Config) any { return c.Stats.BindTo.Port() }, uint16(3129)},
		{`stats.prometheus.bind-to = "10.0.0.1:1"`, func(c *Config) any { return c.Stats.BindTo.String() }, "127.0.0.1:3129"},
		{"stats.prometheus.enabled = true\nstats.prometheus.bind-to = \"10.0.0.1:1\"", func(c *Config) any { return c.Stats.BindTo.String() }, "10.0.0.1:1"},
		{"stats.prometheus.enabled = true\nstats.prometheus.bind-to = \"10.0.0.1:1\"\nstats.bind-to = \":9\"", func(c *Config) any { return c.Stats.BindTo.String() }, "[::]:9"},
		{"stats.prometheus.enabled = true\nstats.prometheus.http-path = \"a/b/\"", func(c *Config) any { return c.Stats.MetricsPath }, "/a/b"},
		{"domain-fronting-ip = \"192.0.2.1\"\ndomain-fronting.ip = \"192.0.2.2\"", func(c *Config) any { return c.DomainFronting.Host }, "192.0.2.2"},
		{"domain-fronting.ip = \"192.0.2.2\"\ndomain-fronting-ip = \"192.0.2.1\"", func(c *Config) any { return c.DomainFronting.Host }, "192.0.2.2"},
		{"domain-fronting.port = 1\ndomain-fronting-port = 2", func(c *Config) any { return c.DomainFronting.Port }, uint16(1)},
		{`network.proxies = [""]`, func(c *Config) any { return c.Debug }, false},
	} {
		t.Run(test.file, func(t *testing.T) {
			c, _ := mustParse(t, test.file)
			if got := test.got(c); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestDurations: the spellings of a duration, in quotes unless the entry has none.
func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"90s"`: 90 * time.Second, `"1m30s"`: 90 * time.Second, `"1M30S"`: 90 * time.Second, `"1.5m"`: 90 * time.Second,
		`"90 sec"`: 90 * time.Second, `"1 min 30 s"`: 90 * time.Second, `"1 Minute 30 Seconds"`: 90 * time.Second,
		`"1h"`: time.Hour, `"1H"`: time.Hour, `"1 hour"`: time.Hour, `"2hrs"`: 2 * time.Hour, `"60mins"`: time.Hour,
		`"1h30m"`: 90 * time.Minute, `"24h"`: 24 * time.Hour, `"1d"`: 24 * time.Hour, `"1 Day"`: 24 * time.Hour,
		`"1500ms"`: 1500 * time.Millisecond, `"1500 MS"`: 1500 * time.Millisecond, `'2s'`: 2 * time.Second,
		`"1200000us"`: 1200 * time.Millisecond, `"1200000µs"`: 1200 * time.Millisecond, `"+2s"`: 2 * time.Second,
		`"0"`: 0, `"0s"`: 0, `0`: 0, `"0 min"`: 0, `"0ms"`: 0, `+0`: 0, `0.0`: 0,
		`""`: 10 * time.Second, // the default
	} {
		c, _, err := Parse("f", []byte(minimal+"network.timeout.drain = "+text))
		if err != nil || c.Network.Timeout.Drain != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		`300`:                     `has no unit; write "300s" for seconds or "300ms" for milliseconds`,
		`"300"`:                   `has no unit; write "300s" for seconds or "300ms" for milliseconds`,
		`"1h30"`:                  `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not "1h30"`,
		`1.5`:                     `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not a fraction, a date or a time`,
		`"25h"`:                   `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not "25h"`,
		`"2d"`:                    `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not "2d"`,
		`"0 x"`:                   `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not "0 x"`,
		`"-5s"`:                   `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not "-5s"`,
		`true`:                    `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not true`,
		`"99999999999999999999h"`: `must be a duration from 0s to 24h in quotes, such as "90s", "5m" or "1h30m", not "…"`,
	} {
		wantProblem(t, "network.timeout.drain", text, want)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int{
		`"1mib"`: 1 << 20, `"1 MiB"`: 1 << 20, `"1MIB"`: 1 << 20, `"1mb"`: 1 << 20, `"1 MB"`: 1 << 20, `"1m"`: 1 << 20,
		`"1M"`: 1 << 20, `1048576`: 1 << 20, `"1048576"`: 1 << 20, `"1048576b"`: 1 << 20, `1_048_576`: 1 << 20,
		`"1024kib"`: 1 << 20, `"1024 KB"`: 1 << 20, `"1024k"`: 1 << 20, `"0.5mib"`: 1 << 19, `"1.5 MiB"`: 3 << 19,
		`"1gib"`: 1 << 30, `"1G"`: 1 << 30, `"64KiB"`: 64 << 10, `65537`: 65537,
		`0`: 0, `"0"`: 0, `"0b"`: 0, `"0 KiB"`: 0, `""`: 2 << 20,
	} {
		c, _, err := Parse("f", []byte(minimal+"network.tcp-window-clamp = "+text))
		if err != nil || c.Network.WindowClamp != want {
			t.Errorf("%s: %v, want %d", text, err, want)
		}
	}
	const must = `must be a size from 64kib to 1gib, such as "128kib" or "1mib", where a number alone counts bytes, not `
	for text, want := range map[string]string{
		`"1kib"`: must + `"1kib"`, `1024`: must + `1024`, `"2gib"`: must + `"2gib"`, `"64.00001kib"`: must + `"64.00001kib"`,
		`"1tib"`: must + `"1tib"`, `"many"`: must + `"many"`, `"-1mib"`: must + `"-1mib"`, `-1`: must + `-1`,
		`1.5`: must + `a fraction, a date or a time`, `false`: must + `false`, `"999999999999gib"`: must + `"999999999999gib"`,
	} {
		wantProblem(t, "defense.anti-replay.max-size", text, want)
	}
}

// wantProblem demands that the only thing wrong with a file is the value of key.
func wantProblem(t *testing.T, key, value, want string) {
	t.Helper()
	_, _, err := Parse("f", []byte(minimal+key+" = "+value))
	if got := fmt.Sprint(err); got != fmt.Sprintf("f:4: %s: %s", key, want) {
		t.Errorf("%s: %s\nwant %s", value, got, want)
	}
}

// TestZero: wherever a number, a size or a duration is expected, 0 is either refused, with a reason, or among those that
// config.example.toml explains.
func TestZero(t *testing.T) {
	explained := []string{
		"loops", "domain-fronting.max-connections", "network.tcp-user-timeout", "network.tcp-not-sent-lowat",
		"network.tcp-window-clamp", "network.timeout.drain", "defense.doppelganger.min-rate",
	}
	for _, o := range options {
		// Another number than 0 is of the right type, even if it lacks its unit.
		_, _, err := Parse("f", []byte(minimal+o.key+" = 1"))
		if err != nil && !strings.Contains(err.Error(), "has no unit") && !strings.Contains(err.Error(), "a size from") {
			continue
		}
		for _, zero := range []string{"0", "0x0"} {
			_, _, err := Parse("f", []byte(minimal+o.key+" = "+zero))
			var refused *Error
			switch {
			case slices.Contains(explained, o.key):
				if err != nil {
					t.Errorf("%s = %s: %v", o.key, zero, err)
				}
			case !errors.As(err, &refused) || !strings.Contains(err.Error(), o.key+": is 0: "):
				t.Errorf("%s = %s: %v", o.key, zero, err)
			}
		}
	}
}
