package relay

import "strings"

// Fronts says which front a stranger goes to. It is immutable and may be shared by loops. Only the indices
// it was made with ever come out of it: a stranger's SNI selects among the configured fronts and can
// name no other.
type Fronts struct {
	byHost   map[string]int
	fallback int
}

// NewFronts maps the host hosts[i] to the front i, and everybody else to fallback. Hosts are compared
// without regard to case or a trailing dot; of two equal ones the first counts. No hosts: everybody
// goes to fallback.
func NewFronts(hosts []string, fallback int) *Fronts {
	f := &Fronts{byHost: make(map[string]int, len(hosts)), fallback: fallback}
	for i, host := range hosts {
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		if _, taken := f.byHost[name]; !taken {
			f.byHost[name] = i
		}
	}
	return f
}

// Index returns the front of a stranger whose SNI, as tlsfront.Hello.ServerName gives it, is name.
func (f *Fronts) Index(name string) int {
	if i, ok := f.byHost[name]; ok {
		return i
	}
	return f.fallback
}
