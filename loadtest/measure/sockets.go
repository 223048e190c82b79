package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"mtrelay/loadtest/netns"
)

// Sockets is what the kernel holds for a process's TCP connections and listeners.
type Sockets struct {
	Count int

	// Memory is, in bytes, what is charged to them: unread and unacknowledged data as it lies in memory, what is set aside
	// for more, options, backlog (`ss -m` shows it as r, w, f, o, bl). The sockets' own structures, some 2.5 KiB each, are
	// not in it.
	Memory int64
}

// ReadSockets asks the kernel for all TCP sockets of the process's network namespace (sock_diag(7)) and sums up those that
// the process has open. It takes 10 µs for each of them.
func ReadSockets(pid int) (s Sockets, err error) {
	own, err := socketInodes(pid)
	if err != nil {
		return s, err
	}
	add := func(inode uint32, memory int64) {
		if own[inode] {
			s.Count++
			s.Memory += memory
		}
	}
	err = netns.At(fmt.Sprintf("/proc/%d/ns/net", pid), func() error {
		return errors.Join(dumpSockets(unix.AF_INET, add), dumpSockets(unix.AF_INET6, add))
	})
	if err != nil {
		err = fmt.Errorf("sockets of process %d: %w", pid, err)
	}
	return s, err
}

// socketInodes returns the inodes of a process's sockets, of any kind: each is the target "socket:[inode]" of a link.
func socketInodes(pid int) (map[uint32]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inodes := make(map[uint32]bool, len(open))
	for _, f := range open {
		target, err := os.Readlink(dir + "/" + f.Name())
		if err != nil {
			continue // closed since
		}
		if text, ok := strings.CutPrefix(target, "socket:["); ok {
			if n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); err == nil {
				inodes[uint32(n)] = true
			}
		}
	}
	return inodes, nil
}

// Of the kernel's include/uapi/linux/inet_diag.h.
const (
	requestLen = 56 // struct inet_diag_req_v2
	messageLen = 72 // struct inet_diag_msg
	inodeAt    = 68 // in it
	attrMemory = 7  // INET_DIAG_SKMEMINFO: an uint32 for each unix.SK_MEMINFO_…
)

// dumpSockets calls each for every TCP socket of the family, in whatever state, and whosoever it is.
func dumpSockets(family byte, each func(inode uint32, memory int64)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, dumpRequest(family), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10) // the kernel fills at most 32 KiB at a time
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			case m.Header.Type == unix.SOCK_DIAG_BY_FAMILY && len(m.Data) >= messageLen:
				each(binary.NativeEndian.Uint32(m.Data[inodeAt:]), charged(m.Data[messageLen:]))
			}
		}
	}
}

func dumpRequest(family byte) []byte {
	const allStates = 1<<32 - 1
	b := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN+requestLen)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, make([]byte, 8)...) // sequence number and sender
	b = append(b, family, unix.IPPROTO_TCP, 1<<(attrMemory-1), 0)
	b = binary.NativeEndian.AppendUint32(b, allStates)
	return append(b, make([]byte, unix.NLMSG_HDRLEN+requestLen-len(b))...) // any addresses
}

// charged finds the account of a socket's memory among the attributes of a message and sums it up. SK_MEMINFO_WMEM_ALLOC
// is left out: the packets below TCP share their data with its queue, which is in SK_MEMINFO_WMEM_QUEUED.
func charged(attrs []byte) (sum int64) {
	for len(attrs) >= 4 {
		length, kind := int(binary.NativeEndian.Uint16(attrs)), binary.NativeEndian.Uint16(attrs[2:])
		if length < 4 || length > len(attrs) {
			break
		}
		if data := attrs[4:length]; kind == attrMemory && len(data) >= 4*unix.SK_MEMINFO_DROPS {
			for _, i := range []int{unix.SK_MEMINFO_RMEM_ALLOC, unix.SK_MEMINFO_FWD_ALLOC, unix.SK_MEMINFO_WMEM_QUEUED,
				unix.SK_MEMINFO_OPTMEM, unix.SK_MEMINFO_BACKLOG} {
				sum += int64(binary.NativeEndian.Uint32(data[4*i:]))
			}
		}
		attrs = attrs[min(len(attrs), (length+3)&^3):]
	}
	return sum
}
