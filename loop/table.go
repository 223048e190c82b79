package loop

import (
	"iter"
	"sync/atomic"
)

// A table finds the socket that a descriptor belongs to. All loops share one, since descriptors are numbered across
// the process: with a table of its own, each loop would keep a place for the clients of all others too, half a KiB
// for every client with sixteen loops. An entry is written by the loop that holds the descriptor only, and so it is a
// loop's own if the socket is of its pairs; it is atomic because the kernel, which passes a number from one loop to
// the other, is not seen by Go's memory model.
type table struct {
	pages [maxDescriptors / tablePage]atomic.Pointer[[tablePage]atomic.Pointer[socket]]
}

// Numbers of our choosing.
const (
	// maxDescriptors is the highest limit of open files that Linux sets by itself (fs.nr_open). What is above it
	// is kept in each loop's map.
	maxDescriptors = 1 << 20
	tablePage      = 1 << 10 // entries, 8 KiB
)

// get returns fd's socket, nil if there is none.
func (t *table) get(fd int) *socket {
	if fd >= maxDescriptors {
		return nil
	}
	page := t.pages[fd/tablePage].Load()
	if page == nil {
		return nil
	}
	return page[fd%tablePage].Load()
}

// set makes s fd's socket; nil: it has none any more. It reports whether there is a place for fd.
func (t *table) set(fd int, s *socket) bool {
	if fd >= maxDescriptors {
		return false
	}
	slot := &t.pages[fd/tablePage]
	if slot.Load() == nil {
		slot.CompareAndSwap(nil, new([tablePage]atomic.Pointer[socket])) // or another loop was faster
	}
	slot.Load()[fd%tablePage].Store(s)
	return true
}

// all goes through every loop's sockets.
func (t *table) all() iter.Seq[*socket] {
	return func(yield func(*socket) bool) {
		for i := range t.pages {
			page := t.pages[i].Load()
			for j := 0; page != nil && j < tablePage; j++ {
				if s := page[j].Load(); s != nil && !yield(s) {
					return
				}
			}
		}
	}
}

// enter directs fd's events to s.
func (l *loop) enter(fd int, s source) {
	if socket, ok := s.(*socket); ok && l.server.sockets.set(fd, socket) {
		delete(l.others, fd)
		return
	}
	l.others[fd] = s
}

// leave directs fd's events nowhere.
func (l *loop) leave(fd int) {
	if l.server.sockets.get(fd) != nil {
		l.server.sockets.set(fd, nil)
	}
	delete(l.others, fd)
}

// owner returns what fd's events go to, nil if it is not the loop's, or not any more.
func (l *loop) owner(fd int) source {
	if s := l.server.sockets.get(fd); s != nil && s.pair.loop == l {
		return s
	}
	if s, ok := l.others[fd]; ok {
		return s
	}
	return nil
}

// sockets goes through the loop's own. Pairs may be closed meanwhile.
func (l *loop) sockets() iter.Seq[*socket] {
	return func(yield func(*socket) bool) {
		for s := range l.server.sockets.all() {
			if s.pair.loop == l && !yield(s) {
				return
			}
		}
		for _, s := range l.others {
			if s, ok := s.(*socket); ok && !yield(s) {
				return
			}
		}
	}
}
