//go:build race

package relay

// raceEnabled: allocation counts mean nothing under the race detector.
const raceEnabled = true
