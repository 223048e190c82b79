package loadtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"mtrelay/relay/relaytest"
)

// patience is how long a client waits for anything before it counts as a fault.
const patience = 30 * time.Second

// client is a connection to the DC as a Telegram client holds it, through the target or past it. One goroutine may use it
// at a time, but for its streams' two directions.
type client struct {
	net.Conn
	number uint64 // unlike all others of the run
	said   uint64 // echoes so far
}

// scratch is what a worker needs to speak for any client.
type scratch struct{ out, want, in []byte }

// echo sends n bytes with the command in one write, and fails unless the same come back in time.
func (c *client) echo(s *scratch, n int) error {
	c.said++
	s.out = command{op: opEcho, length: int64(n)}.append(s.out[:0])
	s.want = append(s.want[:0], make([]byte, n)...)
	relaytest.NewPattern(c.number<<32 | c.said).Read(s.want)
	s.out = append(s.out, s.want...)
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(s.out); err != nil {
		return c.broke("sending an echo", err)
	}
	s.in = append(s.in[:0], make([]byte, n)...)
	if _, err := io.ReadFull(c, s.in); err != nil {
		return c.broke("awaiting an echo", err)
	}
	if !bytes.Equal(s.in, s.want) {
		return c.broke("reading an echo", errors.New("it differs"))
	}
	return nil
}

func (c *client) broke(doing string, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing in %s", patience)
	}
	return fmt.Errorf("client %d, %s: %w", c.number, doing, err)
}

// ask sends a command; what follows is up to the caller.
func (c *client) ask(cmd command) error {
	c.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.Write(cmd.append(nil)); err != nil {
		return c.broke("sending a command", err)
	}
	c.SetWriteDeadline(time.Time{})
	return nil
}
