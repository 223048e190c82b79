//go:build !race

package stats

// raceEnabled tells tests of allocations that the race detector adds its own.
const raceEnabled = false
