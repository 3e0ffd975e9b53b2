package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// An inbox file is a header line, then for each input a line and a summary line, with checksums as in a
// session file. It only grows: the records of the session file say which inputs were consumed.
//
//	{"kitbag_inbox":1,"id":"customer-7"}
//	{"crc":"8d0a41c5","n":1,"id":"in_1","data":{…},"sent":"…"}
//	{"sum":"51f2bb90","size":63,"n":1}
//
// A sender locks the file while it appends.

// inboxSuffix ends the names of inboxes. No file name ends in both it and [suffix].
const inboxSuffix = ".inbox"

type storedEntry struct {
	N int `json:"n"`
	Entry
}

type inboxSummary struct {
	Size int `json:"size"` // bytes of the input's line, with its newline
	N    int `json:"n"`    // inputs so far
}

// parseInbox parses an inbox file. fresh means that the header is incomplete, and torn that the last line is.
func parseInbox(data []byte, id string) (entries []Entry, fresh, torn bool, err error) {
	if want := header(inboxHeader, id); len(data) < len(want) && bytes.HasPrefix(want, data) {
		return nil, true, false, nil
	}
	line, rest, ended := bytes.Cut(data, []byte("\n"))
	if err := checkHeader(line, inboxHeader, id); err != nil {
		return nil, false, false, err
	}
	for n := 2; len(rest) > 0; n++ {
		line, rest, ended = bytes.Cut(rest, []byte("\n"))
		var e storedEntry
		intact, err := parseLine(line, recordLine, &e)
		switch {
		case !intact:
			continue
		case err != nil:
			return nil, false, false, fmt.Errorf("line %d: cannot decode the input; if another version of kitbag wrote it, use that version: %w", n, err)
		case e.N != len(entries)+1:
			return nil, false, false, fmt.Errorf("line %d: input %d follows input %d: the lines between them are damaged or missing; restore the file from a copy",
				n, e.N, len(entries))
		}
		entries = append(entries, e.Entry)
	}
	return entries, false, !ended, nil
}

// withConsumed sets the Record and Refused of the entries that were consumed, which are the keys of consumed.
func withConsumed(entries []Entry, consumed map[string]Entry) []Entry {
	for i := range entries {
		e := &entries[i]
		if c, ok := consumed[e.ID]; ok {
			e.Record, e.Refused = c.Record, c.Refused
		}
	}
	return entries
}

// readInbox returns all inputs that were ever sent to a session, but not whether they were consumed.
func (d *dir) readInbox(id string) ([]Entry, error) {
	f, err := d.openRegular(id + inboxSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	entries, _, _, err := parseInbox(data, id)
	if err != nil {
		return nil, fmt.Errorf("the inbox of session %q: %w", id, err)
	}
	return entries, nil
}

// countInputs returns the number of inputs that were ever sent to a session.
func (d *dir) countInputs(id string) (int, error) {
	f, err := d.openRegular(id + inboxSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var sum inboxSummary
	ok, err := readSummary(f, &sum)
	if err = errors.Join(err, f.Close()); err != nil || ok {
		return sum.N, err
	}
	entries, err := d.readInbox(id)
	return len(entries), err
}

func (d *dir) Send(ctx context.Context, id string, in Entry) (bool, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return false, err
	}
	if err := in.Check(0); err != nil { // before a file is created for it
		return false, fmt.Errorf("session %q: %w", id, err)
	}
	f, err := d.waitLocked(ctx, id+inboxSuffix, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return false, fmt.Errorf("session %q: its inbox: %w", id, err)
	}
	accepted, err := d.send(f, id, in)
	if err = errors.Join(err, release(f)); err != nil {
		return false, fmt.Errorf("session %q: its inbox: %w", id, err)
	}
	return accepted, nil
}

// send appends an input to an inbox that is locked.
func (d *dir) send(f *os.File, id string, in Entry) (bool, error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return false, err
	}
	entries, fresh, torn, err := parseInbox(data, id)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(entries, func(e Entry) bool { return e.ID == in.ID }) {
		return false, f.Sync() // the Send that wrote it may have failed to sync
	}
	log, err := d.summary(id)
	if err != nil {
		return false, err
	}
	if err := in.Check(len(entries) - log.Consumed); err != nil {
		return false, err
	}
	n := len(entries) + 1
	lines, err := appendLine(nil, recordLine, storedEntry{n, Entry{ID: in.ID, Data: in.Data, Sent: time.Now()}})
	if err == nil {
		lines, err = appendLine(lines, summaryLine, inboxSummary{len(lines), n})
	}
	if err != nil {
		return false, err
	}
	if err := writeLines(f, lines, header(inboxHeader, id), fresh, torn); err != nil {
		return false, err
	}
	return true, syncDir(d.root.Open("."))
}

// allInputs returns all inputs that were ever sent to a session. It reads the inbox before the log, so that an input
// that is consumed in between is returned as consumed.
func (d *dir) allInputs(ctx context.Context, id string) ([]Entry, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	entries, err := d.readInbox(id)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	log, err := d.readLog(id, 0)
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", id, err)
	}
	return withConsumed(entries, log.consumed), nil
}

// Inputs reads the whole files only if an input waits.
func (d *dir) Inputs(ctx context.Context, id string) ([]Entry, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	n, err := d.countInputs(id)
	if err != nil || n == 0 {
		return nil, err
	}
	if log, err := d.summary(id); err != nil || log.Consumed == n {
		return nil, err
	}
	entries, err := d.allInputs(ctx, id)
	return slices.DeleteFunc(entries, func(e Entry) bool { return e.Record != 0 }), err
}

func (d *dir) Input(ctx context.Context, id, input string) (Entry, error) {
	entries, err := d.allInputs(ctx, id)
	if err != nil {
		return Entry{}, err
	}
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.ID == input }); i >= 0 {
		return entries[i], nil
	}
	return Entry{}, noInput(id, input)
}

// waitLocked opens and locks a file, and waits while another process has it locked: a sender has the lock of
// an inbox only for a moment.
func (d *dir) waitLocked(ctx context.Context, name string, flag int) (*os.File, error) {
	for {
		f, err := d.openLocked(name, flag)
		if !errors.Is(err, ErrConflict) {
			return f, err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
