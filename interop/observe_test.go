package interop

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// observationWindow is how long a stranger looks at a connection that does not end: longer than frontOpening and
// the timer of the front, one after the other.
const observationWindow = 4500 * time.Millisecond

// ending is how a connection ended in the eyes of the client.
type ending string

const (
	endFIN  ending = "FIN"
	endRST  ending = "RST"
	endHeld ending = "held open"
)

// observation is all that a stranger can tell about one connection.
type observation struct {
	got   []byte
	end   ending
	first time.Duration // from connect to the first byte; 0 when none came
	last  time.Duration // from connect to the end
}

// timeClass names d by its nearest whole second. Every timer in these tests is a whole number of seconds, so a
// class reaches half a second to either side: wide enough for a busy machine, narrow enough to tell timers apart.
func timeClass(d time.Duration) int { return int(math.Round(d.Seconds())) }

// looks returns what two observations must agree in: the bytes as far as they are not random, how it ended and in
// which second. later is taken off the second of the ending.
func (o observation) looks(later int) string {
	s := fmt.Sprintf("%s, then %s", maskReply(o.got), o.end)
	if o.end != endHeld {
		s += fmt.Sprintf(" in second %d", timeClass(o.last)-later)
	}
	if len(o.got) > 0 {
		s += fmt.Sprintf(" (first byte in second %d)", timeClass(o.first))
	}
	return s
}

// step is something that a stranger does on its connection.
type step func(*net.TCPConn) error

func send(b []byte) step {
	return func(c *net.TCPConn) error {
		_, err := c.Write(b)
		return err
	}
}

func text(s string) step { return send([]byte(s)) }

// trickle sends b in segments of n bytes, one per gap.
func trickle(b []byte, n int, gap time.Duration) step {
	return func(c *net.TCPConn) error {
		for segment := range slices.Chunk(b, n) {
			if _, err := c.Write(segment); err != nil {
				return err
			}
			time.Sleep(gap)
		}
		return nil
	}
}

func fin() step { return (*net.TCPConn).CloseWrite }

func pause(d time.Duration) step {
	return func(*net.TCPConn) error {
		time.Sleep(d)
		return nil
	}
}

// observe carries out script on a connection to addr and looks at it until it ends or the window is over.
func observe(addr string, script ...step) (observation, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return observation{}, err
	}
	defer conn.Close()
	start := time.Now()
	conn.SetDeadline(start.Add(observationWindow))

	var reset atomic.Bool
	acted := make(chan struct{})
	go func() {
		defer close(acted)
		for _, act := range script {
			if err := act(conn.(*net.TCPConn)); err != nil {
				reset.Store(errors.Is(err, syscall.ECONNRESET))
				return
			}
		}
	}()
	o := watch(conn, start)
	conn.SetWriteDeadline(time.Now()) // a script that still writes has nobody to answer
	<-acted
	if reset.Load() { // the kernel tells of a RST once, to the read or to the write
		o.end = endRST
	}
	return o, nil
}

// watch reads conn to its end.
func watch(conn net.Conn, start time.Time) (o observation) {
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 && o.got == nil {
			o.first = time.Since(start)
		}
		o.got = append(o.got, buf[:n]...)
		if err != nil {
			o.last = time.Since(start)
			o.end = endingOf(err)
			return o
		}
	}
}

func endingOf(err error) ending {
	switch {
	case errors.Is(err, io.EOF):
		return endFIN
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endHeld
	}
	return endRST
}
