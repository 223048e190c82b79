package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"mtrelay/relay/relaytest"
)

var sizesScenario = scenario{
	help:        "messages of one length after another, echoed one by one; length 0 is a mixture of 8 to 16,384 bytes",
	defaults:    Options{Connections: []int{4}, Duration: 3 * time.Second, Sizes: []int{8, 64, 512, 2048, 8192, 32768, 0}},
	connections: mostConnections,
	run:         (*run).sizes,
}

func (r *run) sizes(ctx context.Context) error {
	for _, n := range r.o.Sizes {
		r.progress.begin("sizes: messages of %d bytes", n)
		if err := r.size(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) size(ctx context.Context, length int) error {
	s := &streams{run: r}
	var messages atomic.Int64
	for range mostConnections(r.o) {
		c, err := r.open(ctx)
		if err != nil {
			s.stop()
			return err
		}
		s.clients = append(s.clients, c)
		count := new(atomic.Int64)
		s.counts = append(s.counts, count)
		cmd := command{op: opMessages, length: int64(length), seed: c.number}
		if err := c.ask(cmd); err != nil {
			s.stop()
			return err
		}
		s.all.Go(func() { s.fault(c.sendMessages(newLengths(cmd))) })
		s.all.Go(func() { s.fault(c.takeMessages(newLengths(cmd), count, &messages)) })
	}
	defer s.stop()
	if err := r.settle(ctx); err != nil {
		return err
	}
	before := messages.Load()
	t, err := s.during(ctx, r.o.Duration)
	if err == nil {
		err = t.some()
	}
	if err != nil {
		return err
	}
	r.sizeRow(length, float64(messages.Load()-before), &t)
	return nil
}

// sendMessages writes messages of the pattern, each in a write of its own.
func (c *client) sendMessages(next *lengths) error {
	b := make([]byte, maxMessage)
	for p := relaytest.NewPattern(c.number); ; {
		m := b[:next.next()]
		p.Read(m)
		if _, err := c.Write(m); err != nil {
			return c.broke("sending messages", err)
		}
	}
}

// takeMessages verifies what comes back and counts whole messages.
func (c *client) takeMessages(next *lengths, bytes, messages *atomic.Int64) error {
	left := next.next() // of the present message
	err := c.receive(endless, func(n int) {
		bytes.Add(int64(n))
		whole := int64(0)
		for ; n >= left; left = next.next() {
			n -= left
			whole++
		}
		left -= n
		messages.Add(whole)
	})
	if errors.Is(err, io.EOF) {
		err = c.broke("awaiting messages", io.ErrUnexpectedEOF)
	}
	return err
}

func (r *run) sizeRow(length int, messages float64, t *transferred) {
	cells := []cell{
		{"length", "bytes", float64(length)},
		{"messages", "/s", messages / t.elapsed.Seconds()},
		{"speed", "MB/s", t.mbPerS()},
	}
	if r.measured() {
		each := 1e6 * t.target.Seconds() / max(1, messages)
		cells = append(cells, cell{"CPU each", "µs", each}, cell{"CPU", "s/GB", t.cpuPerGB()})
		r.report.metric(fmt.Sprintf("cpu_us_per_message_%d", length), each)
	}
	r.report.metric(fmt.Sprintf("messages_per_s_%d", length), messages/t.elapsed.Seconds())
	r.report.add(append(cells, r.cpuCells(t.spent)...)...)
}
