package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// At runs f in the network namespace that a file stands for, such as /proc/PID/ns/net. Sockets that f makes stay in it for
// good, whoever uses them later, and so do processes that it starts. Goroutines that f starts are not in it: a dial must not
// race several addresses. Needs root unless the namespace is the caller's own.
func At(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return in(ns, f)
}

// in is At for a file that is open. A namespace is a thread's, so f keeps its thread to itself.
func in(ns *os.File, f func() error) error {
	return onThread(func(home *os.File) error {
		if same(home, ns) {
			return f()
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// same tells whether both files stand for one namespace.
func same(a, b *os.File) bool {
	first, err1 := a.Stat()
	second, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

// create makes a namespace with nothing in it. It lasts until the file is closed and no process and no socket is in it.
func create() (ns *os.File, err error) {
	err = onThread(func(*os.File) (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace, which takes root: %w", err)
		}
		ns, err = os.Open(threadNamespace)
		return err
	})
	return ns, err
}

const threadNamespace = "/proc/thread-self/ns/net"

// onThread runs f, which may change the thread's namespace; home is the one that it had. A thread that does not find its
// way back is left locked, and so ends with a goroutine that has nothing else to do.
func onThread(f func(home *os.File) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(threadNamespace)
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = f(home)
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
