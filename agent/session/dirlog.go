package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// dirLog is an open, locked session file.
type dirLog struct {
	dir  *dir
	file *os.File // nil when closed
	id   string
	end  *logFile // the state after the last record; nil until the file is read
	err  error    // error of a failed write, after which the contents on disk are unknown
}

// Load reads the whole file, to which nothing else writes: it is locked.
func (l *dirLog) Load(ctx context.Context) ([]Record, error) {
	if l.file == nil {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	end, err := readLog(l.file, l.id, 0)
	if err != nil {
		return nil, err
	}
	recs := end.recs
	end.recs = nil
	l.end = end
	return recs, nil
}

// readLog reads a session file up to the size that it has now.
func readLog(f *os.File, id string, seq int64) (*logFile, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return nil, err
	}
	return parseLog(data, id, seq)
}

// Append accepts no more records after a failed write, because the system may treat pages as written after a failed
// fsync.
func (l *dirLog) Append(ctx context.Context, rec Record) error {
	switch {
	case l.file == nil:
		return errClosed
	case l.err != nil:
		return fmt.Errorf("an earlier write failed; open the session again: %w", l.err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if l.end == nil {
		if _, err := l.Load(ctx); err != nil {
			return err
		}
	}
	if err := CheckRecord(rec, l.end.info(l.id)); err != nil {
		return err
	}
	if err := l.checkConsumed(rec); err != nil {
		return err
	}
	sum := l.end.summaryAfter(rec, time.Now())
	lines, err := recordLines(rec, sum)
	if err != nil {
		return err
	}
	if ok, err := l.inPlace(); err != nil || !ok {
		return errors.Join(fmt.Errorf("%w: its file was removed or replaced", ErrConflict), err)
	}
	if l.err = l.write(lines); l.err != nil {
		return l.err
	}
	l.end.summary, l.end.fresh, l.end.torn = sum, false, false
	for _, in := range rec.Consumed {
		l.end.consumed[in.ID] = Entry{Record: rec.Seq}
	}
	l.notifyFollowers(rec)
	return nil
}

// checkConsumed returns an error unless the inputs that rec consumes wait.
func (l *dirLog) checkConsumed(rec Record) error {
	if len(rec.Consumed) == 0 {
		return nil
	}
	inputs, err := l.dir.readInbox(l.id)
	if err != nil {
		return err
	}
	_, err = consume(withConsumed(inputs, l.end.consumed), rec)
	return err
}

// summaryAfter returns the summary of the session after rec.
func (l *logFile) summaryAfter(rec Record, now time.Time) summary {
	in := l.info("")
	in.update(rec, now)
	return summary{Seq: in.Seq, Event: in.Event, Consumed: l.Consumed + len(rec.Consumed), Status: in.Status, Labels: maps.Clone(in.Labels), Updated: now}
}

func recordLines(rec Record, sum summary) ([]byte, error) {
	lines, err := appendLine(nil, recordLine, storedRecord{rec, sum.Event, rec.Events})
	if err != nil {
		return nil, err
	}
	sum.Size = len(lines)
	return appendLine(lines, summaryLine, sum)
}

// inPlace reports whether the file still has its name.
func (l *dirLog) inPlace() (bool, error) {
	return isNamed(l.file, l.dir.root.Stat, l.id+suffix)
}

// write appends lines and returns when they are on the disk.
func (l *dirLog) write(lines []byte) error {
	err := writeLines(l.file, lines, header(sessionHeader, l.id), l.end.fresh, l.end.torn)
	if err == nil && l.end.fresh { // the name of a new file must be on the disk too
		err = syncDir(l.dir.root.Open("."))
	}
	return err
}

// writeLines appends lines to a file and syncs it, after the header if the file is fresh.
func writeLines(f *os.File, lines, header []byte, fresh, torn bool) error {
	switch {
	case fresh:
		if err := f.Truncate(0); err != nil { // removes a header that was cut off
			return err
		}
		lines = append(header, lines...)
	case torn: // the partial line stays, with a wrong checksum
		lines = append([]byte("\n"), lines...)
	}
	if _, err := f.Write(lines); err != nil {
		return err
	}
	return f.Sync()
}

func (l *dirLog) Close() error {
	if l.file == nil {
		return nil
	}
	l.endFollowers()
	var errs []error
	if info, err := l.file.Stat(); err == nil && info.Size() == 0 { // nothing was stored
		if ok, err := l.inPlace(); ok {
			errs = append(errs, l.dir.root.Remove(l.id+suffix))
		} else {
			errs = append(errs, err)
		}
	}
	errs = append(errs, release(l.file))
	l.file = nil
	return errors.Join(errs...)
}
