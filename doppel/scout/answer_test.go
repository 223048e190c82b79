package scout

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"mtrelay/tlsfront"
)

// record returns one with n payload bytes that mean nothing.
func record(typ byte, n int) []byte {
	b := make([]byte, tlsfront.RecordHeaderLen+n)
	b[0], b[1], b[2] = typ, 3, 3
	binary.BigEndian.PutUint16(b[3:], uint16(n))
	return b
}

// wrap makes a record of a payload.
func wrap(typ byte, payload []byte) []byte {
	return append(record(typ, len(payload))[:tlsfront.RecordHeaderLen], payload...)
}

// helloMessage makes a ServerHello with the extensions given as they are on the wire.
func helloMessage(random string, id [32]byte, suite uint16, extensions string) []byte {
	b := []byte{typeServerHello, 0, 0, 0, 3, 3}
	b = append(b, random...)
	b = append(append(b, 32), id[:]...)
	b = append(binary.BigEndian.AppendUint16(b, suite), 0)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(extensions))), extensions...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-handshakeHeaderLen))
	return b
}

const (
	someRandom = "abcdefghijklmnopqrstuvwxyzabcdef"
	tls13      = "\x00\x2b\x00\x02\x03\x04"
	someShare  = "\x00\x33\x00\x05\x00\x1d\x00\x01\x07"
	retryShare = "\x00\x33\x00\x02\x00\x17"
)

// goldenAnswer is a ServerHello and the ChangeCipherSpec behind it.
func goldenAnswer(id [32]byte) []byte {
	return slices.Concat(wrap(22, helloMessage(someRandom, id, 0x1301, tls13+someShare)), wrap(20, []byte{1}))
}

func TestAnswer(t *testing.T) {
	id := [32]byte{7}
	good := tlsfront.Flight{OK: true, Version: 0x304, Suite: 0x1301, Group: 29, Extensions: []uint16{43, 51}, EchoesSessionID: true}
	seen := good // a flight that went wrong behind its ServerHello
	seen.OK = false
	hello := goldenAnswer(id)
	with := func(f tlsfront.Flight, records ...int) tlsfront.Flight {
		f.Records = [][]int{records}
		return f
	}
	for _, c := range []struct {
		name string
		in   []byte
		want tlsfront.Flight
	}{
		{"flight", slices.Concat(hello, record(23, 42), record(23, 4000)), with(good, 42, 4000)},
		{"key share first", slices.Concat(wrap(22, helloMessage(someRandom, id, 0x1303, someShare+tls13)), record(23, 18)),
			with(tlsfront.Flight{OK: true, Version: 0x304, Suite: 0x1303, Group: 29, Extensions: []uint16{51, 43}, EchoesSessionID: true}, 18)},
		{"another session id", slices.Concat(wrap(22, helloMessage(someRandom, [32]byte{8}, 0x1301, tls13+someShare)), record(23, 18)),
			with(tlsfront.Flight{OK: true, Version: 0x304, Suite: 0x1301, Group: 29, Extensions: []uint16{43, 51}}, 18)},
		{"retry", slices.Concat(wrap(22, helloMessage(retryRandom, id, 0x1301, tls13+retryShare)), wrap(20, []byte{1})),
			tlsfront.Flight{Retry: true, Version: 0x304, Suite: 0x1301, Group: 23, Extensions: []uint16{43, 51}, EchoesSessionID: true}},
		{"TLS 1.2", wrap(22, append(helloMessage(someRandom, id, 0xc02f, "\xff\x01\x00\x01\x00"), 11, 0, 0, 1, 0)),
			tlsfront.Flight{Version: 0x303, Suite: 0xc02f, Extensions: []uint16{0xff01}, EchoesSessionID: true}},
		{"no share", slices.Concat(wrap(22, helloMessage(someRandom, id, 0x1301, tls13)), record(23, 18)),
			tlsfront.Flight{Version: 0x304, Suite: 0x1301, Extensions: []uint16{43}, EchoesSessionID: true}},
		{"more behind the ServerHello", wrap(22, append(helloMessage(someRandom, id, 0x1301, tls13+someShare), 8)), seen},
		{"alert", wrap(21, []byte{2, 40}), tlsfront.Flight{}},
		{"alert behind", slices.Concat(hello, wrap(21, []byte{2, 40})), seen},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), tlsfront.Flight{}},
		{"too long a record", slices.Concat(hello, record(23, tlsfront.MaxRecord+1)), seen},
		{"too short a record", slices.Concat(hello, record(23, 17)), seen},
		{"empty record", slices.Concat(hello, record(23, 0)), seen},
		{"endless flight", slices.Concat(hello, slices.Repeat(record(23, 16000), 9)), seen},
		{"endless small records", slices.Concat(hello, slices.Repeat(record(23, 18), tlsfront.MaxFlightRecords+1)), seen},
		{"endless ChangeCipherSpec", slices.Repeat(wrap(20, []byte{1}), maxFlightBytes/6+1), tlsfront.Flight{}},
		{"absurd ServerHello", wrap(22, []byte{2, 255, 255, 255, 3, 3}), tlsfront.Flight{}},
		{"another message", wrap(22, []byte{1, 0, 0, 1, 3}), tlsfront.Flight{}},
		{"data first", record(23, 100), tlsfront.Flight{}},
	} {
		got, over := answerTo(id, c.in, len(c.in))
		if !over || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, over %v\nwant %+v", c.name, got, over, c.want)
		}
		for _, cut := range []int{1, 2, 3, 5, 1000} {
			if again, _ := answerTo(id, c.in, cut); !reflect.DeepEqual(got, again) {
				t.Errorf("%s, %d bytes at a time: %+v, whole: %+v", c.name, cut, again, got)
			}
		}
	}
}

// TestAnswerNotOver: no prefix of a flight but those that end with a record may be taken for one.
func TestAnswerNotOver(t *testing.T) {
	whole := slices.Concat(goldenAnswer([32]byte{}), record(23, 42), record(23, 100))
	ends := []int{len(whole) - 105, len(whole)}
	for n := range len(whole) + 1 {
		if _, over := answerTo([32]byte{}, whole[:n], 7); over != slices.Contains(ends, n) {
			t.Errorf("%d of %d bytes: over %v", n, len(whole), over)
		}
	}
}

// answerTo feeds b, step bytes at a time; over if the answer is, at once or by a pause.
func answerTo(id [32]byte, b []byte, step int) (f tlsfront.Flight, over bool) {
	a := answer{sessionID: id}
	for c := range slices.Chunk(b, max(step, 1)) {
		a.feed(slices.Clone(c))
	}
	switch {
	case a.stage == concluded:
		return a.flight, true
	case a.atRest():
		return a.ended(), true
	}
	return a.flight, false
}

func FuzzFlight(f *testing.F) {
	id := [32]byte{1}
	hello := goldenAnswer(id)
	f.Add(slices.Concat(hello, record(23, 42), record(23, 400)), uint16(7))
	f.Add(wrap(22, helloMessage(retryRandom, id, 0x1301, tls13+retryShare)), uint16(1))
	f.Add(wrap(22, append(helloMessage(someRandom, id, 0xc02f, ""), 11, 0, 0, 0)), uint16(100))
	f.Add(wrap(21, []byte{2, 40}), uint16(2))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), uint16(3))
	f.Add(slices.Concat(hello, record(23, 20)[:6]), uint16(60))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		whole, over := answerTo(id, b, len(b))
		cutUp, overToo := answerTo(id, b, int(cut))
		if over != overToo || !reflect.DeepEqual(whole, cutUp) {
			t.Errorf("whole %+v %v, %d bytes at a time %+v %v", whole, over, cut, cutUp, overToo)
		}
		p := tlsfront.Profile{}
		p.Flights[0] = whole
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		if whole.OK != (len(whole.Records) > 0) {
			t.Errorf("%+v: OK or records, not both", whole)
		}
	})
}
