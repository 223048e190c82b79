package loadtest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// operation is what a client asks the DC for.
type operation byte

const (
	opEcho     operation = iota + 1 // send back the next length bytes
	opMessages                      // send back message by message, of length bytes each (0: of mixed lengths), until the end
	opSource                        // send length bytes of the pattern, at rate bytes/s unless that is 0
	opSink                          // take length bytes of the pattern, then send the seed
)

// command is what a client says first, and again after each command but opMessages:
//
//	[0:4] CRC-32 of the rest · [4] operation · [5:8] 0 · [8:16] length · [16:24] seed · [24:32] rate
//
// The checksum is there because a length that comes through wrong would look like a connection that hangs.
type command struct {
	op     operation
	length int64
	seed   uint64
	rate   int64
}

const commandLen = 32

func (c command) append(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(c.op), 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(c.length))
	b = binary.BigEndian.AppendUint64(b, c.seed)
	b = binary.BigEndian.AppendUint64(b, uint64(c.rate))
	binary.BigEndian.PutUint32(b[start:], crc32.ChecksumIEEE(b[start+4:]))
	return b
}

func parseCommand(b []byte) (c command, err error) {
	if binary.BigEndian.Uint32(b) != crc32.ChecksumIEEE(b[4:commandLen]) {
		return c, fmt.Errorf("a command reached the DC as % x", b[:commandLen])
	}
	c.op = operation(b[4])
	c.length = int64(binary.BigEndian.Uint64(b[8:]))
	c.seed = binary.BigEndian.Uint64(b[16:])
	c.rate = int64(binary.BigEndian.Uint64(b[24:]))
	return c, nil
}
