// Command copyrelay is a TCP relay as one is quickly written in Go: two goroutines per connection, each of which copies
// through a buffer of 16 KiB from a pool. It is what the proxy is measured against, and nothing to use.
//
//	copyrelay LISTEN TARGET
package main

import (
	"io"
	"log"
	"net"
	"os"
	"sync"
)

const bufferSize = 16 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: copyrelay LISTEN TARGET")
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		client, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go relay(client.(*net.TCPConn), os.Args[2])
	}
}

func relay(client *net.TCPConn, target string) {
	defer client.Close()
	c, err := net.Dial("tcp", target)
	if err != nil {
		log.Print(err)
		return
	}
	defer c.Close()
	upstream := c.(*net.TCPConn)
	var up sync.WaitGroup
	up.Go(func() { copyTo(upstream, client) })
	copyTo(client, upstream)
	up.Wait()
}

// copyTo copies until from ends and passes that on. The types hide ReadFrom and WriteTo, with which io would let the
// kernel splice: the bytes of a proxy that decrypts have to pass through its memory.
func copyTo(to, from *net.TCPConn) {
	b := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(b)
	if _, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, b[:]); err != nil {
		to.SetLinger(0) // a reset is passed on as one
		to.Close()
		return
	}
	to.CloseWrite()
}
