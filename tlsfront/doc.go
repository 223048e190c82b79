// Package tlsfront is the TLS face of the proxy: it decides whether a ClientHello proves that its sender holds a
// secret, writes the reply that such a client expects and an observer takes for a web site's, and strips the records of
// what follows.
//
// Start with [Hello]: Feed it what a client sent until it is whole, let a [Gate] Judge it, then answer with
// Gate.AppendReply or splice the client to the front. Everything here is a calculation over bytes, a time and a source
// of randomness that the caller hands in.
package tlsfront
