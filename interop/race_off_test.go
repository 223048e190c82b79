//go:build !race

package interop

// raceEnabled tells whether this test binary was built with -race.
const raceEnabled = false
