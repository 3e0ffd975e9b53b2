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

// pollEvery is the interval at which a watcher checks a session file.
const pollEvery = 50 * time.Millisecond

// Watch reads the file once, and then what is appended.
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
	after int64

	file    *os.File // nil until there is one with a header
	reader  *bufio.Reader
	line    []byte // an incomplete line
	seq     int64  // of the last record
	stopped bool   // the consumer has stopped
}

func (w *dirWatch) run(ctx context.Context, yield func(Event) bool) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err := w.open(); err != nil {
			return err
		}
		if w.file != nil {
			// Checked first, so that everything written before the deletion is yielded.
			named, err := isNamed(w.file, w.dir.root.Stat, w.id+suffix)
			if err != nil {
				return err
			}
			if err := w.read(yield); err != nil || w.stopped {
				return err
			}
			if !named {
				return fmt.Errorf("it was deleted: %w", fs.ErrNotExist)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open opens the file when it has its header. Until then a writer may rewrite it.
func (w *dirWatch) open() error {
	if w.file != nil {
		return nil
	}
	f, err := w.dir.openRegular(w.id + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	head := make([]byte, len(header(w.id)))
	n, err := io.ReadFull(f, head)
	if bytes.HasPrefix(header(w.id), head[:n]) && n < len(head) {
		return f.Close()
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.Join(err, f.Close())
	}
	_, err = f.Seek(0, io.SeekStart)
	w.file, w.reader = f, bufio.NewReaderSize(f, 64<<10)
	if err != nil {
		return err
	}
	line, err := w.reader.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return checkHeader(line, "kitbag_session", w.id)
}

// read yields the events of the appended records.
func (w *dirWatch) read(yield func(Event) bool) error {
	for {
		piece, err := w.reader.ReadBytes('\n')
		w.line = append(w.line, piece...)
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
		case !intact:
			continue
		case err != nil:
			return fmt.Errorf("the record may be of another version: %w", err)
		case rec.Seq != w.seq+1:
			return gap(rec.Seq, w.seq, 0)
		}
		w.seq = rec.Seq
		for _, ev := range rec.Events {
			if ev.Record = rec.Seq; ev.Seq > w.after && !yield(ev) {
				w.stopped = true
				return nil
			}
		}
	}
}
