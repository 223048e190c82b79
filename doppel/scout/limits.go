package scout

import "time"

// Numbers of our choosing: what a front may cost us, and we it.
const (
	maxRaids     = 4 // at once, on different fronts
	maxAddresses = 3 // of a front that are tried in a raid
	maxFailures  = 3 // in a row, then a raid is given up
	maxURLs      = 16
	maxProblems  = 12
	maxProblem   = 300 // bytes of one

	// fetchTime bounds one connection, its pause included; raidTime all that is done in a row.
	fetchTime  = 40 * time.Second
	raidTime   = 10 * time.Minute
	fetchBytes = 8 << 20  // of one connection, down
	raidBytes  = 32 << 20 // of all connections of a raid, down
	// raidRecords bounds what is learned from: a front that sends records of a byte would make learning take seconds.
	raidRecords = 64 << 10
	leastBytes  = 64 << 10 // what is worth another fetch

	// between is the mean rest between two connections; each rest is drawn between half and one and a half of it, and
	// the time between raids by a tenth more or less.
	between = 300 * time.Millisecond

	retryFirst = 30 * time.Second // after a raid that failed; doubled each time
	retryMost  = time.Hour

	defaultEach = time.Hour
)

// pauses are what a connection rests before its last fetch, in turn. Servers that begin their record sizes anew after a
// rest do so after about a second (HAProxy, Apache Traffic Server, Cloudflare's patch of nginx), which lies between the
// first two.
var pauses = []time.Duration{1500 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}

// limits are the constants that tests shrink.
type limits struct {
	flightTime, fetchTime, raidTime time.Duration
	fetchBytes, raidBytes           int
	between                         time.Duration
	pauses                          []time.Duration
	retryFirst                      time.Duration
}

var defaultLimits = limits{
	flightTime: flightTime, fetchTime: fetchTime, raidTime: raidTime,
	fetchBytes: fetchBytes, raidBytes: raidBytes,
	between: between, pauses: pauses, retryFirst: retryFirst,
}
