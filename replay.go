package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"mtrelay/clock"
	"mtrelay/conf"
	"mtrelay/stats"
	"mtrelay/tlsfront"
)

const (
	replayName = "replay" // of the file in the state directory

	// replayEvery is how often the file is written when hellos were accepted since. What a crash loses is at most that
	// much; a write is 20 bytes per hello that is remembered, 9 MB when the default memory is full.
	replayEvery = 5 * time.Minute
)

// replay makes the window and shows its size; nil when the configuration turns it off.
func replay(c *conf.Config, counters *stats.Stats) *tlsfront.Replay {
	if !c.AntiReplay.Enabled {
		return nil
	}
	r := tlsfront.NewReplay(c.TolerateTimeSkewness, clock.Unix(time.Now().Unix()), c.AntiReplay.MaxSize/tlsfront.ReplayEntryLen)
	counters.WatchReplay(r.Len, r.Size)
	return r
}

// replayFile keeps the memory of accepted hellos over restarts. The zero value stores nothing. Its methods are called by
// one goroutine at a time, and never by a loop: they wait for the disk.
type replayFile struct {
	memory *tlsfront.Replay // nil: nothing is stored
	dir    *os.File         // the state directory, locked by this process
	every  time.Duration
	saved  uint64 // memory.Admitted at the last write
	log    zerolog.Logger
}

// openReplay fills memory with what the process before left in the directory, "" for none; memory is nil when there is
// to be none. To be called before the memory is used. What goes wrong is a warning: the proxy serves with the memory
// that there is.
func openReplay(directory string, memory *tlsfront.Replay, log zerolog.Logger) *replayFile {
	f := &replayFile{every: replayEvery, log: log}
	if directory == "" || memory == nil {
		return f
	}
	var err error
	if f.dir, err = lockDirectory(directory); err != nil {
		log.Warn().Err(err).Msg("hellos that are accepted cannot be stored: after a restart one that was recorded may be accepted once more")
		return f
	}
	f.memory = memory
	f.load()
	return f
}

// lockDirectory opens a directory, which is made if there is none, for this process alone, until it is closed or the process
// ends in whatever way. Two proxies that wrote the same file would each forget what the other has accepted.
func lockDirectory(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return dir, nil
	}
	_ = dir.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: another proxy uses it: give each a state-directory of its own", path)
	}
	return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
}

// load takes over what is stored. A clean end may be believed once: before it is, the file is replaced by one that is not
// clean, so that the end of this process is what the next one sees.
func (f *replayFile) load() {
	since, known := f.read()
	if f.save(false) && known {
		f.memory.RefuseBefore(since)
	}
}

// read returns what tlsfront.Replay.ReadState does. known is false when there is nothing to read or it is not usable.
func (f *replayFile) read() (since clock.Unix, known bool) {
	file, err := os.Open(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false
	}
	if err == nil {
		since, err = f.memory.ReadState(file)
		_ = file.Close()
	}
	if err != nil {
		f.log.Warn().Err(err).Str("file", f.path()).
			Msg("the hellos accepted before are not known: one that was recorded may be accepted once more")
		return 0, false
	}
	f.log.Debug().Int("hellos", f.memory.Len()).Msg("hellos accepted before the start are known")
	return since, true
}

func (f *replayFile) path() string { return filepath.Join(f.dir.Name(), replayName) }

// keep writes the file every now and then until ctx ends.
func (f *replayFile) keep(ctx context.Context) {
	if f.memory == nil {
		return
	}
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.memory.Admitted() != f.saved {
			f.save(false)
		}
	}
}

// finish writes the file for the last time. Nothing may be accepted any more.
func (f *replayFile) finish() {
	if f.memory == nil {
		return
	}
	f.save(true)
	_ = f.dir.Close()
}

// save replaces the file and tells whether it did.
func (f *replayFile) save(clean bool) bool {
	admitted := f.memory.Admitted() // before what is written, which may hold more
	if err := f.replace(clean); err != nil {
		f.log.Warn().Err(err).Msg("the hellos accepted cannot be stored: after a restart one that was recorded may be accepted once more")
		return false
	}
	f.saved = admitted
	return true
}

// replace puts a new file in the place of the old one at once, so that a crash leaves one of them whole, and returns when
// that is on the disk.
func (f *replayFile) replace(clean bool) error {
	next := f.path() + ".new" // one name, so that crashes do not fill the directory
	if err := f.write(next, clean); err != nil {
		_ = os.Remove(next)
		return err
	}
	if err := os.Rename(next, f.path()); err != nil {
		return err
	}
	return f.dir.Sync()
}

func (f *replayFile) write(path string, clean bool) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = f.memory.WriteState(file, clock.Unix(time.Now().Unix()), clean)
	return errors.Join(err, file.Sync(), file.Close())
}
