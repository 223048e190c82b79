// Package doppel knows how a site sizes and spaces its TLS records, and shapes the downlink of a session like that.
//
// Learn makes a Model of what a scout saw, and a Pacer takes one session through it: Next says how long the next record may be
// and when it is due, Sent tells what left. A site's traffic has two levels, and so has the model. A burst is a response: its
// first record leaves at once, for the time that a server thinks is not a gap between records. Inside a burst the first
// records are special (a header that was flushed alone, records that grow from one segment to the maximum), so that part of
// observed bursts is replayed as it was. Behind it comes a steady state, of which blocks are replayed from random places.
// Replaying keeps what belongs together, such as the pause behind the short record that ends a server's write, with no
// model of its causes. Only whether a record waited is replayed: for how long is drawn from a fitted distribution.
//
// The last record of a response is as long as what was left, so it is no size that a server chooses, and not learned. Ours
// end where our bytes end. What servers append of their own, as net/http its empty chunk, is learned as the model's tail.
//
// Nothing here reads a clock, sleeps or keeps bytes.
package doppel
