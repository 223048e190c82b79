//go:build race

package tlsfront

const raceEnabled = true
