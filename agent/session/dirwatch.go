package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"
)

// pollEvery is the interval at which a watcher reads the file of a session that another process has open.
const pollEvery = 50 * time.Millisecond

// followPause is the minimum interval at which a watcher receives the records that its own store appends: waking the
// watcher for every record would take longer than storing the records.
const followPause = 100 * time.Millisecond

// Watch reads the file, and then what other processes append to it; records that this store appends come from memory.
func (d *dir) Watch(ctx context.Context, id string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := CheckID(id); err != nil {
			yield(Event{}, err)
			return
		}
		w := &dirWatch{dir: d, id: id, after: after}
		err := w.run(ctx, func(ev Event) bool { return yield(ev, nil) })
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		if err != nil && !w.stopped {
			yield(Event{}, fmt.Errorf("watch session %q: %w", id, err))
		}
	}
}

// A dirWatch follows a session file.
type dirWatch struct {
	dir   *dir
	id    string
	after int64 // only events with higher numbers are yielded

	file    *os.File // nil until the file has a complete header
	reader  *bufio.Reader
	line    []byte // the beginning of a line whose end is not in the file yet
	seq     int64  // of the last record that was read or received
	stopped bool   // the consumer has stopped
}

func (w *dirWatch) run(ctx context.Context, yield func(Event) bool) error {
	for {
		if err := w.poll(ctx, yield); err != nil || w.stopped {
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// poll yields the events that were appended since the last call. If this store has the session open, poll then
// follows it until it is closed.
func (w *dirWatch) poll(ctx context.Context, yield func(Event) bool) error {
	if err := w.open(); err != nil || w.file == nil {
		return err
	}
	f := w.dir.addFollower(w.id) // before the file is read, so that no record is missed
	defer w.dir.removeFollower(w.id, f)
	// Before the file is read, so that everything written before its deletion is yielded.
	named, err := w.dir.isNamed(w.file, w.id+sessionSuffix)
	if err != nil {
		return err
	}
	if err := w.read(yield); err != nil || w.stopped {
		return err
	}
	if !named {
		return fmt.Errorf("the session was deleted: %w", fs.ErrNotExist)
	}
	if f == nil {
		return nil
	}
	return w.follow(ctx, f, yield)
}

// A follower gets the records that an open log of the same store appends. dir.mu guards its fields.
type follower struct {
	records []appendedRecord
	changed chan struct{} // receives a value after records or ended has changed
	ended   bool          // no more records will follow: the log was closed, or the watcher must read the file
}

type appendedRecord struct {
	seq    int64
	end    int64 // where the record ends in the file
	events []Event
}

// maxBehind limits the records in the memory of a follower. A watcher that is further behind reads the file.
const maxBehind = 256

// addFollower returns a new follower of a session, or nil if this store does not have the session open.
func (d *dir) addFollower(id string) *follower {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, open := d.followers[id]
	if !open {
		return nil
	}
	f := &follower{changed: make(chan struct{}, 1)}
	list[f] = true
	return f
}

func (d *dir) removeFollower(id string, f *follower) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.followers[id], f)
}

// notifyFollowers gives a stored record to the followers of its session.
func (l *dirLog) notifyFollowers(rec Record) {
	l.dir.mu.Lock()
	defer l.dir.mu.Unlock()
	followers := l.dir.followers[l.id]
	if len(followers) == 0 {
		return
	}
	end, err := l.file.Seek(0, io.SeekEnd)
	events, cloneErr := cloneEvents(rec.Events)
	for f := range followers {
		if err != nil || cloneErr != nil || len(f.records) == maxBehind {
			f.ended = true // the watcher reads the file, and reports any error
			delete(followers, f)
		} else {
			f.records = append(f.records, appendedRecord{rec.Seq, end, events})
		}
		f.wake()
	}
}

func (f *follower) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// endFollowers ends the followers of a session whose log is closed.
func (l *dirLog) endFollowers() {
	l.dir.mu.Lock()
	defer l.dir.mu.Unlock()
	for f := range l.dir.followers[l.id] {
		f.ended = true
		f.wake()
	}
	delete(l.dir.followers, l.id)
}

// follow yields the events that f receives until f has ended, and then skips them in the file.
func (w *dirWatch) follow(ctx context.Context, f *follower, yield func(Event) bool) error {
	var end int64 // of the last record from f
	var pause time.Duration
	for ended := false; !ended; pause = followPause {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var records []appendedRecord
		w.dir.mu.Lock()
		records, f.records, ended = f.records, nil, f.ended
		w.dir.mu.Unlock()
		for _, rec := range records {
			if rec.seq <= w.seq { // already read from the file
				continue
			}
			end = rec.end
			if err := w.yieldEvents(rec.seq, rec.events, yield); err != nil || w.stopped {
				return err
			}
		}
	}
	if end == 0 { // nothing to skip
		return nil
	}
	_, err := w.file.Seek(end, io.SeekStart)
	w.reader.Reset(w.file)
	w.line = w.line[:0]
	return err
}

// yieldEvents yields the events of record seq, which must be the next one.
func (w *dirWatch) yieldEvents(seq int64, events []Event, yield func(Event) bool) error {
	if seq != w.seq+1 {
		return gapError(seq, w.seq, 0)
	}
	w.seq = seq
	for _, ev := range events {
		if ev.Record = seq; ev.Seq > w.after && !yield(ev) {
			w.stopped = true
			break
		}
	}
	return nil
}

// open opens the file once it has a complete header. A writer may still replace an incomplete header.
func (w *dirWatch) open() error {
	if w.file != nil {
		return nil
	}
	f, err := w.dir.openRegular(w.id + sessionSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	reader := bufio.NewReaderSize(f, 64<<10) // records are often larger than the default of 4 KiB
	line, err := reader.ReadBytes('\n')
	if err == nil || errors.Is(err, io.EOF) {
		var fresh bool
		if _, fresh, err = cutHeader(line, sessionHeader, w.id); fresh {
			return f.Close()
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.file, w.reader = f, reader
	return nil
}

// read yields the events of the appended records.
func (w *dirWatch) read(yield func(Event) bool) error {
	for {
		part, err := w.reader.ReadBytes('\n')
		w.line = append(w.line, part...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var rec struct {
			Seq    int64   `json:"seq"`
			Events []Event `json:"events"`
		}
		intact, err := parseLine(bytes.TrimSuffix(w.line, []byte("\n")), recordLine, &rec)
		w.line = w.line[:0]
		switch {
		case !intact: // cut off, or a summary
			continue
		case err != nil:
			return fmt.Errorf("cannot decode the record; if another version of kitbag wrote it, use that version: %w", err)
		}
		if err := w.yieldEvents(rec.Seq, rec.Events, yield); err != nil || w.stopped {
			return err
		}
	}
}
