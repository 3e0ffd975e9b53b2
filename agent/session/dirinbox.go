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
// session file. Inputs stay in it: the records of the session file say which inputs were consumed.
//
//	{"kitbag_inbox":1,"id":"customer-7"}
//	{"crc":"8d0a41c5","n":1,"id":"in_1","data":{…},"sent":"…"}
//	{"sum":"51f2bb90","size":63,"n":1}
//
// A sender locks the file while it appends.

// inboxSuffix ends the names of inbox files.
const inboxSuffix = ".inbox"

// A storedEntry is the content of an input's line.
type storedEntry struct {
	N int `json:"n"` // 1, 2, 3 …
	Entry
}

type inboxSummary struct {
	Size int `json:"size"` // bytes of the input's line, with its newline
	N    int `json:"n"`    // of the input, which is how many were sent so far
}

// parseInbox parses an inbox file. fresh means that the header is missing or incomplete, and torn that the last line is
// incomplete.
func parseInbox(data []byte, id string) (entries []Entry, fresh, torn bool, err error) {
	lines, fresh, err := cutHeader(data, inboxHeader, id)
	if fresh || err != nil {
		return nil, fresh, false, err
	}
	for n := 2; len(lines) > 0; n++ {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		var e storedEntry
		intact, err := parseLine(line, recordLine, &e)
		switch {
		case !intact: // torn, or a summary
			continue
		case err != nil:
			return nil, false, false, fmt.Errorf("line %d: cannot decode the input; if another version of kitbag wrote it, use that version: %w", n, err)
		case e.N != len(entries)+1:
			return nil, false, false, fmt.Errorf("line %d: input %d follows input %d: the lines between them are damaged or missing; restore the file from a copy",
				n, e.N, len(entries))
		}
		entries = append(entries, e.Entry)
	}
	return entries, false, !bytes.HasSuffix(data, []byte("\n")), nil
}

// setConsumed copies Record and Refused from consumed, which has the consumed inputs by id, to the entries.
func setConsumed(entries []Entry, consumed map[string]Entry) {
	for i := range entries {
		e := &entries[i]
		e.Record, e.Refused = consumed[e.ID].Record, consumed[e.ID].Refused
	}
}

// readInbox returns all inputs that were ever sent to a session, without Record and Refused.
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

// countSent returns the number of inputs that were ever sent to a session. It usually reads only the end of the inbox.
func (d *dir) countSent(id string) (int, error) {
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
	if err := in.Check(0); err != nil { // an invalid input must not create a file
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

// send appends an input to a locked inbox file, unless the file has it.
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
		return false, f.Sync() // the call of Send that wrote the input may have failed to sync
	}
	sum, err := d.sessionSummary(id)
	if err != nil {
		return false, err
	}
	if err := in.Check(len(entries) - sum.Consumed); err != nil {
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

// allInputs returns all inputs that were ever sent to a session. It reads the inbox before the records, so that it finds
// the record of every input that is consumed in between.
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
	setConsumed(entries, log.consumed)
	return entries, nil
}

// Inputs reads only the ends of the files unless an input waits.
func (d *dir) Inputs(ctx context.Context, id string) ([]Entry, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	sent, err := d.countSent(id)
	if err != nil || sent == 0 {
		return nil, err
	}
	if sum, err := d.sessionSummary(id); err != nil || sum.Consumed == sent {
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

// waitLocked opens and locks an inbox file. It waits while a sender has the file locked, which is only for a moment.
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
