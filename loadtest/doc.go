// Package loadtest is many clients, a fake DC and a fake front around a running proxy, and the measurement of what the
// proxy takes to serve them. Every byte that comes through is verified: a proxy that is fast and wrong fails.
//
// The clients and the DC are relay/relaytest's, which share no code with the proxy. A connection that is idle costs the
// generator two descriptors, a few KiB and one sleeping goroutine at the DC's end.
package loadtest
