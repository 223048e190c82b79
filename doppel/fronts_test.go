package doppel

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// These are fronts as an observer sees them, each modelled on what the real one was measured to send. A front is asked for a
// body of n bytes and returns the records of its response, with the time since the first.
type front interface {
	connect(rnd *rand.Rand) frontConn
}

type frontConn interface {
	respond(n int) []Record
}

// nginx sends a file through one buffer of 16 KiB, with the header in front.
type nginx struct{ firstAlone bool } // firstAlone: the header is flushed alone, as some modules do

func (f nginx) connect(rnd *rand.Rand) frontConn { return &nginxConn{f, rnd} }

type nginxConn struct {
	nginx
	rnd *rand.Rand
}

func (c *nginxConn) respond(n int) (records []Record) {
	var at time.Duration
	add := func(plain int) {
		records = append(records, Record{at, plain + 17})
		at += time.Duration(c.rnd.IntN(40)) * time.Microsecond
		if c.rnd.IntN(100) == 0 { // the scheduler
			at += time.Duration(1000+c.rnd.IntN(2000)) * time.Microsecond
		}
	}
	header := 235 + len(itoa(n))
	if c.firstAlone {
		add(235)
	} else {
		n += header
	}
	for ; n > 0; n -= min(n, 16384) {
		add(min(n, 16384))
	}
	return records
}

// goServer is net/http on crypto/tls: a buffer of 4 KiB in front of records that grow.
type goServer struct {
	chunked bool // writes and flushes chunks with pauses between them
	weibull bool // pauses are not log-normal
	off     bool // DynamicRecordSizingDisabled
}

func (f goServer) connect(rnd *rand.Rand) frontConn { return &goConn{goServer: f, rnd: rnd} }

type goConn struct {
	goServer
	rnd            *rand.Rand
	records, bytes int // of the connection
	buffered       int
	at             time.Duration
	out            []Record
}

func (c *goConn) respond(n int) []Record {
	c.out, c.at = nil, 0
	if !c.chunked {
		c.write(180 + len(itoa(n)))
		for ; n > 0; n -= min(n, 32<<10) { // io.Copy
			c.write(min(n, 32<<10))
		}
		c.flush()
		return c.out
	}
	c.write(150)
	for n > 0 {
		k := min(n, 1024+c.rnd.IntN(16384))
		n -= k
		c.write(len(hex(k)) + 2)
		c.write(k)
		c.write(2)
		c.flush()
		c.pause()
	}
	c.write(5)
	c.flush()
	return c.out
}

func (c *goConn) pause() {
	ms := math.Exp(math.Log(9) + 0.6*c.rnd.NormFloat64())
	if c.weibull {
		ms = 12 * math.Pow(c.rnd.ExpFloat64(), 1/1.5)
	}
	c.at += time.Duration(min(max(ms, 2), 40)*1e6) + time.Duration(c.rnd.IntN(200))*time.Microsecond
}

func (c *goConn) write(n int) { // bufio.Writer.Write
	const buffer = 4096
	for n > buffer-c.buffered {
		if c.buffered == 0 {
			c.send(n)
			return
		}
		n -= buffer - c.buffered
		c.buffered = buffer
		c.flush()
	}
	c.buffered += n
}

func (c *goConn) flush() {
	c.send(c.buffered)
	c.buffered = 0
}

func (c *goConn) send(n int) { // tls.Conn.Write
	for n > 0 {
		limit := goLimit(c.records, c.bytes) - 17
		if c.off {
			limit = 16384
		}
		k := min(n, limit)
		n -= k
		c.records++
		c.bytes += k + 17
		c.out = append(c.out, Record{c.at, k + 17})
		c.at += time.Duration(c.rnd.IntN(60)) * time.Microsecond
	}
}

// cloudflare is the patch for nginx that begins with 40 records of a segment, then 40 of three, and again after idle.
type cloudflare struct{}

func (f cloudflare) connect(rnd *rand.Rand) frontConn { return &cloudflareConn{rnd: rnd} }

type cloudflareConn struct {
	rnd     *rand.Rand
	records int
}

func (c *cloudflareConn) reset() { c.records = 0 }

func (c *cloudflareConn) respond(n int) (records []Record) {
	var at time.Duration
	for n += 300; n > 0; {
		k := 16384
		if c.records < 40 {
			k = 1369
		} else if c.records < 80 {
			k = 4229
		}
		k = min(n, k)
		n -= k
		c.records++
		records = append(records, Record{at, k + 17})
		at += time.Duration(c.rnd.IntN(40)) * time.Microsecond
	}
	return records
}

func itoa(n int) string { return strconv.Itoa(n) }
func hex(n int) string  { return strconv.FormatInt(int64(n), 16) }
