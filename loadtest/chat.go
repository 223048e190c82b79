package loadtest

import (
	"context"
	"sync"
	"time"
)

// chat has clients exchange small messages with the DC at a steady rate and measures how long each takes.
//
// A latency counts from the instant at which the message was due, when its worker was still busy then: a proxy that
// stops for a second delays all messages of that second, not one. When the worker was free, it counts from the write:
// that a timer fires up to a millisecond late is the generator's doing, and shown in late.
type chat struct {
	run     *run
	clients []*client
	rate    float64 // messages per second, all clients together
	size    int     // bytes of a message
	workers int

	latency, late *latency
}

// chatSize is a message as clients send most: a ping or an acknowledgement with its envelope.
const chatSize = 128

// chatters bounds the workers that speak for clients which say something now and then.
const chatters = 64

func (r *run) newChat(clients []*client, rate float64) *chat {
	return &chat{
		run: r, clients: clients, rate: rate, size: chatSize, workers: min(chatters, len(clients)),
		latency: newLatency(), late: newLatency(),
	}
}

// talk goes on until ctx ends, which is no error.
func (c *chat) talk(ctx context.Context) {
	var all sync.WaitGroup
	began := time.Now()
	for w := range c.workers {
		all.Go(func() { c.work(ctx, w, began) })
	}
	all.Wait()
}

// work speaks for every workers-th client. Message m of the chat is client m's, modulo their number, and due m/rate after
// the beginning.
func (c *chat) work(ctx context.Context, worker int, began time.Time) {
	var s scratch
	mine := c.share(worker)
	for i := 0; ; i++ {
		for j, one := range mine {
			m := float64(i*len(c.clients) + j*c.workers + worker)
			due := began.Add(time.Duration(m / c.rate * float64(time.Second)))
			from, ok := c.await(ctx, due)
			if !ok {
				return
			}
			if err := one.echo(&s, c.size); err != nil {
				c.run.faults.add(err)
				return
			}
			c.latency.record(time.Since(from))
		}
	}
}

func (c *chat) share(worker int) (mine []*client) {
	for i := worker; i < len(c.clients); i += c.workers {
		mine = append(mine, c.clients[i])
	}
	return mine
}

// await waits until a message is due and returns the instant that its latency counts from.
func (c *chat) await(ctx context.Context, due time.Time) (from time.Time, ok bool) {
	wait := time.Until(due)
	if wait <= 0 {
		return due, ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return due, false
	case <-time.After(wait):
	}
	from = time.Now()
	c.late.record(from.Sub(due))
	return from, true
}

// background runs fn until the stop function is called, which waits for its end.
func background(ctx context.Context, fn func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
