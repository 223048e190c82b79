package loop

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"mtrelay/relay"
	"mtrelay/relay/relaytest"
	"mtrelay/tlsfront"
)

func TestRelaysBothWays(t *testing.T) {
	for _, reencrypt := range []bool{false, true} {
		t.Run(fmt.Sprintf("reencrypt=%v", reencrypt), func(t *testing.T) {
			dc := fakeDC(t, relaytest.Echo)
			o := options(dc.Addr(), fakeFront(t, echoFront))
			o.Reencrypt = reencrypt
			s := serve(t, o)
			for _, n := range []int64{1, 64, 1000, 100_000, 5 << 20} {
				echo(t, connect(t, s), n)
			}
		})
	}
}

// TestDeliversTail lets the DC send and close at once: every byte must arrive, then FIN.
func TestDeliversTail(t *testing.T) {
	for _, n := range []int64{0, 1, 17, 64 << 10, 2 << 20, 16 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dc := fakeDC(t, relaytest.Source(7, n))
			s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
			c := connect(t, s, relaytest.ReceiveBuffer(8<<10))
			if err := relaytest.CheckPattern(c, 7, n); err != nil {
				t.Fatal(err)
			}
			if _, err := c.ReadEnd(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestNoCrumbs: whatever a DC writes at once, no record is too short to be one, unless it is all there is.
func TestNoCrumbs(t *testing.T) {
	for _, n := range []int{tlsfront.FullRecord + 1, tlsfront.FullRecord + 5, tlsfront.FullRecord + 17, 4*tlsfront.FullRecord + 3} {
		dc := fakeDC(t, func(c *relaytest.DCConn) {
			io.CopyN(io.Discard, c, 1)
			c.Write(make([]byte, n))
			io.Copy(io.Discard, c)
		})
		s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
		var sizes []int
		c := connect(t, s, relaytest.OnRecord(func(n int) { sizes = append(sizes, n) }))
		c.Write([]byte{1})
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if last := sizes[len(sizes)-1]; last < relay.MinRecord {
			t.Errorf("%d bytes left in records of %v", n, sizes)
		}
	}
}

// TestClientsResetEndsTheDownload: the DC is not left sending into nowhere.
func TestClientsResetEndsTheDownload(t *testing.T) {
	ended := make(chan error, 1)
	dc := fakeDC(t, func(c *relaytest.DCConn) { ended <- relaytest.SendPattern(c, 1, 1<<40) })
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	c := connect(t, s)
	if err := relaytest.CheckPattern(c, 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	c.NetConn().(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-ended; err == nil {
		t.Fatal("the DC sent it all")
	}
	await(t, "the session ended", func() bool { return s.Clients() == 0 })
}

// TestTrafficIsCounted: all bytes of a stranger, and those of a client even for a DC without a number.
func TestTrafficIsCounted(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	v := visit(t, s)
	v.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	if _, err := io.ReadFull(v, make([]byte, 18)); err != nil {
		t.Fatal(err)
	}
	if up, down := s.opts.Stats.Front.Up.Get(), s.opts.Stats.Front.Down.Get(); up != 18 || down != 18 {
		t.Errorf("front: %d up, %d down", up, down)
	}
	c, err := relaytest.Dial(t.Context(), s.Addresses()[0].String(), key, frontHost, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo(t, c, 1000)
	if owner := s.opts.Stats.Secrets[0]; owner.Up.Get() < 1000 || owner.Down.Get() < 1000 {
		t.Errorf("the secret: %d up, %d down", owner.Up.Get(), owner.Down.Get())
	}
}

// TestEveryWakeUp moves random amounts both ways at once through tiny socket buffers, so that each side
// stops and resumes in every order while the other does, too. A lost wake-up hangs it.
func TestEveryWakeUp(t *testing.T) {
	dc := fakeDC(t, func(c *relaytest.DCConn) {
		c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		c.Conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
		relaytest.Echo(c)
	})
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	var all sync.WaitGroup
	for i := range 24 {
		c := connect(t, s, relaytest.ReceiveBuffer(16<<10<<(i%4)), relaytest.RecordSize(1+i*997))
		all.Go(func() { echo(t, c, int64(1+i)*10_000) })
	}
	all.Wait()
}

func TestFrontGetsEveryByteAndTheFIN(t *testing.T) {
	s := serve(t, options("127.0.0.1:1", fakeFront(t, echoFront)))
	c := visit(t, s)
	sent := []byte("GET / HTTP/1.1\r\nHost: front.example\r\n\r\n")
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != string(sent) {
		t.Fatalf("echoed %q, %v", got, err)
	}
}

// TestFrontsResetArrives: what the front sent before its RST must arrive first.
func TestFrontsResetArrives(t *testing.T) {
	const n = 200 << 10 // more than the client's kernel takes, less than all kernels on the way do
	reset := make(chan struct{})
	front := fakeFront(t, func(c *net.TCPConn) {
		relaytest.SendPattern(c, 3, n)
		await(t, "the proxy's kernel has all of it", func() bool { return unsent(t, c) == 0 })
		c.SetLinger(0)
		c.Close()
		close(reset)
	})
	s := serve(t, options("127.0.0.1:1", front))
	c := visit(t, s)
	if _, err := c.Write([]byte("no hello")); err != nil {
		t.Fatal(err)
	}
	<-reset // and only now the client reads
	if err := relaytest.CheckPattern(c, 3, n); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Fatalf("read after the front's RST: %v, want a reset", err)
	}
}

// unsent returns the number of bytes that the peer's kernel has not acknowledged.
func unsent(t *testing.T, c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestClientsResetReachesTheFront(t *testing.T) {
	ended := make(chan error, 1)
	front := fakeFront(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	s := serve(t, options("127.0.0.1:1", front))
	c := visit(t, s)
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	await(t, "the front is connected", func() bool { return s.fronted.taken.Load() == 1 })
	c.SetLinger(0)
	c.Close()
	if err := <-ended; err == nil {
		t.Fatal("the front saw FIN, want RST")
	}
	await(t, "the place is free again", func() bool { return s.fronted.taken.Load() == 0 && s.Clients() == 0 })
}

// TestDescriptorsComeBack ends sessions in different ways and counts descriptors.
func TestDescriptorsComeBack(t *testing.T) {
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	echo(t, connect(t, s), 1)
	base := openDescriptors(t)
	for range 20 {
		c := connect(t, s)
		echo(t, c, 1000)
		c.Close()
		v := visit(t, s)
		v.Write([]byte("hello?"))
		v.SetLinger(0)
		v.Close()
		visit(t, s).Close()
	}
	await(t, "descriptors are back", func() bool { return openDescriptors(t) <= base })
}

// TestMovingAllocatesNothing counts what the whole process allocates per relayed record, both ways.
func TestMovingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	dc := fakeDC(t, relaytest.Echo)
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	c := connect(t, s, relaytest.RecordSize(1000))
	message, answer := make([]byte, 1000), make([]byte, 1000)
	roundTrip := func() {
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
	}
	roundTrip()
	if got := testing.AllocsPerRun(2000, roundTrip); got >= 1 {
		t.Fatalf("%v allocations per round trip of one record", got)
	}
}

// TestBulkAllocatesNothing counts what the whole process allocates for a long download.
func TestBulkAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const n = 64 << 20
	dc := fakeDC(t, relaytest.Source(5, n))
	s := serve(t, options(dc.Addr(), fakeFront(t, echoFront)))
	var before, after runtime.MemStats
	c := connect(t, s)
	if err := relaytest.CheckPattern(c, 5, n/2); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&before)
	if _, err := io.CopyN(io.Discard, c, n/2); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	records := uint64(n / 2 / tlsfront.FullRecord)
	if got := after.Mallocs - before.Mallocs; got > records/10 {
		t.Fatalf("%d allocations for %d records", got, records)
	}
}

// TestIdlePairIsSmall: what an idle client costs beside its two cipher streams, and all that a dozing one does. Go
// has a size class of 480 bytes, and then one of 512.
func TestIdlePairIsSmall(t *testing.T) {
	if got := unsafe.Sizeof(pair{}); got > 480 {
		t.Fatalf("a pair takes %d bytes", got)
	}
}
