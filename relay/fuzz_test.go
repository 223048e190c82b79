package relay

import (
	"bytes"
	"testing"
	"time"

	"mtrelay/tlsfront"
)

// FuzzSession plays what a stranger sends, in any cuts, with anything happening in between, under the
// loop's contract; world checks that after every call.
//
// stream is what the client sends, behind a genuine hello and, if telegramToo, a genuine init. Each byte of
// schedule is one event: the upper bits choose it, the lower ones say how much.
func FuzzSession(f *testing.F) {
	g := readGenuine(f, "tdlib-1.8.65")
	c := newTelegram(g, tagPaddedIntermediate, 2, 7)
	all := []byte{0xff, 0xff, 0x10, 0x30, 0x50, 0x5f, 0x20, 0x60, 0x70, 0xf8}
	f.Add(uint8(0), []byte("GET / HTTP/1.1\r\n\r\n"), all)
	f.Add(uint8(0), g.hello, []byte{0x01, 0x10, 0x01, 0x10, 0x0f, 0x10, 0xd0, 0x30})
	f.Add(uint8(0), g.hello[:700], []byte{0x0f, 0x10, 0x21, 0x10, 0x31, 0x51, 0x40, 0x70, 0x40})
	f.Add(uint8(1), c.first([]byte("message")), []byte{0x0f, 0x10, 0x0f, 0x10, 0x10, 0x10, 0x31, 0x5f, 0x40})
	f.Add(uint8(2), record(pattern(100, 1)), []byte{0x0f, 0x10, 0x10, 0x10, 0x10, 0x31, 0x5f, 0x40, 0x22, 0x10, 0x40})
	f.Add(uint8(6), record(pattern(100, 1)), []byte{0x0f, 0x10, 0x10, 0x10, 0x31, 0x5f, 0x84, 0x40, 0x91, 0x62, 0x40})
	f.Add(uint8(8), g.hello[:700], []byte{0x0f, 0x10, 0x71, 0x31, 0x51, 0x40, 0x0f, 0x10, 0x73, 0x40})
	f.Add(uint8(10), record(pattern(100, 1)), []byte{0x71, 0x31, 0x0f, 0x10, 0x0f, 0x10, 0xff, 0x31, 0x5f, 0x40})
	f.Fuzz(func(t *testing.T, mode uint8, stream, schedule []byte) {
		if len(schedule) > 200 {
			return // more of the same
		}
		w := newWorld(t, g.time, g.secret)
		w.env.Reencrypt = mode&4 != 0
		if mode&8 != 0 {
			w.openEarly(time.Second)
		}
		c := newTelegram(g, tagPaddedIntermediate, 2, 7)
		sent := bytes.Clone(stream)
		if mode&3 != 0 {
			sent = append(bytes.Clone(g.hello), sent...)
		}
		if mode&2 != 0 {
			sent = append(append(bytes.Clone(g.hello), c.first(nil)...), stream...)
		}
		p := &fuzzed{world: w, unsent: sent}
		for _, event := range schedule {
			p.play(event)
		}
		p.check(sent)
		w.s.Release()
		if w.env.Chunks.Taken() != 0 {
			t.Fatal("chunks are lost")
		}
	})
}

type fuzzed struct {
	*world
	unsent       []byte // by the client
	fromUpstream []byte
}

// play makes one event happen, if it can happen now.
func (p *fuzzed) play(event byte) {
	amount := int(event & 15)
	if p.close == CloseNow {
		return
	}
	switch event >> 4 {
	case 0: // the client's bytes arrive: a few, or many
		n := min(amount*amount*amount, len(p.unsent))
		if p.peers[Client].hasEnd {
			return
		}
		p.deliver(Client, p.unsent[:n])
		p.unsent = p.unsent[n:]
	case 1:
		p.read(Client)
	case 2:
		p.stop(Client, End(amount&1))
	case 3:
		p.answerDial(amount&1 == 1)
	case 4:
		p.read(Upstream)
	case 5:
		p.deliver(Upstream, pattern(amount*amount*amount*10, byte(len(p.fromUpstream))))
	case 6:
		p.stop(Upstream, End(amount&1))
	case 7:
		p.now = p.now.Add(time.Duration(amount*amount) * time.Second)
		if due := p.s.Deadline(); due != 0 && due <= p.now {
			p.call(func(out *Out) { p.s.Expire(p.now, out) })
		}
	case 8:
		p.peers[amount&1].full = true
	case 9:
		p.peers[amount&1].full = false
		p.flush(Side(amount&1), 1<<30)
	case 10:
		p.flush(Side(amount&1), amount*100)
	case 11:
		p.fail(Side(amount & 1))
	case 12:
		if p.pending != DialNone {
			p.call(func(out *Out) { p.s.Hangup(p.now, out) })
		}
	case 13:
		p.goOn()
	case 14:
		p.limit = 200 + amount*amount*amount*20
	case 15:
		p.run()
	}
}

func (p *fuzzed) deliver(from Side, b []byte) {
	if peer := &p.peers[from]; peer.there && !peer.hasEnd {
		peer.in = append(peer.in, b...)
		if from == Upstream {
			p.fromUpstream = append(p.fromUpstream, b...)
		}
	}
}

func (p *fuzzed) stop(side Side, how End) {
	if peer := &p.peers[side]; peer.there && !peer.hasEnd {
		peer.hasEnd, peer.inEnd = true, how
	}
}

func (p *fuzzed) answerDial(ok bool) {
	if p.pending == DialNone {
		return
	}
	p.pending = DialNone
	p.peers[Upstream].there = ok
	p.call(func(out *Out) { p.s.Dialed(p.now, ok, out) })
}

// check: a front got what the client sent, from the first byte on, and nothing else; as much as was read of
// it. A client that was not accepted got nothing but what the front sent.
func (p *fuzzed) check(sent []byte) {
	if p.s.Verdict() != tlsfront.Front {
		return
	}
	front := p.peers[Upstream]
	got := append(bytes.Clone(front.got), front.queue...)
	if !bytes.HasPrefix(sent, got) {
		p.t.Fatalf("the front got %d bytes that the client did not send", len(got))
	}
	live := p.s.State() == StateFront && !front.deaf
	if read := len(sent) - len(p.unsent) - len(p.peers[Client].in); live && len(got) != read {
		p.t.Fatalf("the front got %d of %d bytes", len(got), read)
	}
	toClient := append(bytes.Clone(p.peers[Client].got), p.peers[Client].queue...)
	if !bytes.HasPrefix(p.fromUpstream, toClient) {
		p.t.Fatalf("a stranger got %d bytes that the front did not send", len(toClient))
	}
}
