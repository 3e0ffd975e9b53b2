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

// A dirLog is an open session of a dir. Its file is locked, so that no other process writes to it.
type dirLog struct {
	dir     *dir
	file    *os.File // nil when closed
	id      string
	content *logFile // of the file, without its records; nil until the file is read
	err     error    // error of a failed write, after which the content of the file is unknown
}

func (l *dirLog) Load(ctx context.Context) ([]Record, error) {
	if l.file == nil {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	content, err := readLogFile(l.file, l.id, 0)
	if err != nil {
		return nil, err
	}
	recs := content.recs
	content.recs = nil
	l.content = content
	return recs, nil
}

// readLogFile reads a session file up to record seq, or all of it if seq is 0. It does not read what another process
// appends in the meantime.
func readLogFile(f *os.File, id string, seq int64) (*logFile, error) {
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

// Append accepts no more records after a failed write: after a failed fsync the system may treat data as written that
// is not on the disk.
func (l *dirLog) Append(ctx context.Context, rec Record) error {
	switch {
	case l.file == nil:
		return errClosed
	case l.err != nil:
		return fmt.Errorf("an earlier write failed; open the session again: %w", l.err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if l.content == nil {
		if _, err := l.Load(ctx); err != nil {
			return err
		}
	}
	if err := CheckRecord(rec, l.content.info(l.id)); err != nil {
		return err
	}
	if err := l.checkConsumed(rec); err != nil {
		return err
	}
	sum := l.content.summaryAfter(rec, time.Now())
	lines, err := recordLines(rec, sum)
	if err != nil {
		return err
	}
	if named, err := l.isNamed(); err != nil || !named {
		return errors.Join(fmt.Errorf("%w: its file was removed or replaced", ErrConflict), err)
	}
	if l.err = l.write(lines); l.err != nil {
		return l.err
	}
	l.content.summary, l.content.fresh, l.content.torn = sum, false, false
	l.content.addConsumed(rec)
	l.notifyFollowers(rec)
	return nil
}

// checkConsumed returns an error if rec consumes an input that is not waiting.
func (l *dirLog) checkConsumed(rec Record) error {
	if len(rec.Consumed) == 0 {
		return nil
	}
	inputs, err := l.dir.readInbox(l.id)
	if err != nil {
		return err
	}
	setConsumed(inputs, l.content.consumed)
	_, err = consume(inputs, rec)
	return err
}

// summaryAfter returns the summary of the session after rec.
func (s summary) summaryAfter(rec Record, now time.Time) summary {
	in := s.info("") // the id is not in a summary
	in.update(rec, now)
	return summary{Seq: in.Seq, Event: in.Event, Consumed: s.Consumed + len(rec.Consumed), Status: in.Status, Labels: maps.Clone(in.Labels), Updated: now}
}

// recordLines returns the line of a record and the summary line, whose Size it sets.
func recordLines(rec Record, sum summary) ([]byte, error) {
	lines, err := appendLine(nil, recordLine, storedRecord{rec, sum.Event, rec.Events})
	if err != nil {
		return nil, err
	}
	sum.Size = len(lines)
	return appendLine(lines, summaryLine, sum)
}

// isNamed reports whether the file still has the name of the session's file.
func (l *dirLog) isNamed() (bool, error) {
	return l.dir.isNamed(l.file, l.id+sessionSuffix)
}

// write appends lines and returns when they are on the disk.
func (l *dirLog) write(lines []byte) error {
	err := writeLines(l.file, lines, header(sessionHeader, l.id), l.content.fresh, l.content.torn)
	if err == nil && l.content.fresh { // a new file: its name must be on the disk too
		err = syncDir(l.dir.root.Open("."))
	}
	return err
}

// writeLines appends lines to a file and syncs the file. It writes the header first if that is missing or incomplete
// (fresh), and ends the last line if that is incomplete (torn).
func writeLines(f *os.File, lines, header []byte, fresh, torn bool) error {
	switch {
	case fresh:
		if err := f.Truncate(0); err != nil { // removes an incomplete header
			return err
		}
		lines = append(header, lines...)
	case torn: // readers ignore the incomplete line: its checksum is wrong
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
		named, err := l.isNamed()
		if named {
			err = l.dir.root.Remove(l.id + sessionSuffix)
		}
		errs = append(errs, err)
	}
	errs = append(errs, release(l.file))
	l.file = nil
	return errors.Join(errs...)
}
