package interop

import "testing"

func TestWithStats(t *testing.T) {
	given := "secret = \"x\"\n[dc]\n\"*\" = [\"a\"]\n\n[stats]\n# loopback\nbind-to = \"127.0.0.1:7\"\n"
	if config, address := withStats(t, given); config != given || address != "127.0.0.1:7" {
		t.Errorf("a [stats] of the test's own: %q, %q", config, address)
	}
	config, address := withStats(t, "[stats]\n[dc]\nbind-to = \"127.0.0.1:7\"\n")
	if address == "127.0.0.1:7" {
		t.Errorf("took another table's bind-to: %q", config)
	}
	if again, same := withStats(t, config); again != config || same != address {
		t.Errorf("what was added is not found: %q", config)
	}
}
