//go:build race

package doppel

// raceEnabled: allocation counts mean nothing under the race detector.
const raceEnabled = true
