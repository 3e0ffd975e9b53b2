package mcpgateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"sync"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// An auditFile appends records to a file. Each is one write to a file opened for
// appending, so that lines of several programs do not mix, and cutting the file
// leaves no hole. Before each the file is opened anew if another one, or none, is
// at its path: it has been moved away.
type auditFile struct {
	path      string
	arguments bool

	mu      sync.Mutex
	file    *os.File // the last one that could be opened
	closed  bool
	torn    bool   // the last write left half a line
	pending []byte // whole lines that are not in the file
}

// maxPending is how much is kept while the file cannot be written, in bytes. Half of
// it is for records with arguments; the other is for those of calls at work, a few
// hundred bytes each. What comes then are calls that are refused.
const maxPending = 1 << 20

func openAudit(path string, arguments bool) (*auditFile, error) {
	a := &auditFile{path: path, arguments: arguments}
	if err := a.follow(); err != nil {
		return nil, fmt.Errorf("the audit log: %w", err)
	}
	return a, nil
}

// follow opens the file that is at the path now. The caller holds a.mu, or is
// alone.
func (a *auditFile) follow() error {
	if a.closed {
		return os.ErrClosed
	}
	if a.file != nil {
		mine, err := a.file.Stat()
		if err != nil {
			return err
		}
		// A look at the path for every record is cheap beside the call it is of,
		// and needs no signal from whoever rotates the file.
		there, err := os.Stat(a.path)
		if err == nil && os.SameFile(mine, there) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Only for the owner: it tells who does what.
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if a.file != nil {
		_ = a.file.Close() // nothing is buffered
	}
	a.file, a.torn = f, endsTorn(f)
	if a.torn {
		slog.Warn("the audit log ended in half a line, as a program leaves it that is killed while it writes; it is ended, and the next record has a line of its own", "file", a.path)
	}
	return nil
}

// endsTorn reports whether a file ends in half a line. What cannot be read, though it can
// be written, may: an empty line costs its reader less than two records in one.
func endsTorn(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	r, err := os.Open(f.Name())
	if err != nil {
		return true
	}
	defer r.Close()
	var last [1]byte
	_, err = r.ReadAt(last[:], info.Size()-1)
	return err != nil || last[0] != '\n'
}

// append writes a record.
func (a *auditFile) append(r mcpserver.Record) {
	if !a.arguments {
		r.Input = nil
	}
	line, err := json.Marshal(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	failing := len(a.pending) > 0 // which the log was told already
	// Nobody gets off the record by arguments that are too long for it: a record
	// that is the only one is written whatever its length, which Limits.Request
	// bounds, and among others it loses them.
	if err != nil || failing && len(a.pending)+len(line) >= maxPending/2 {
		r.Input = nil
		line, _ = json.Marshal(r)
	}
	if !failing || len(a.pending)+len(line) < maxPending {
		a.pending = append(append(a.pending, line...), '\n')
	}
	if err := a.flush(); err != nil && !failing {
		slog.Error("the audit log cannot be written; calls are refused until it can", "file", a.path, "err", err)
	}
}

// flush writes what is pending. The caller holds a.mu.
func (a *auditFile) flush() error {
	if err := a.follow(); err != nil {
		return err
	}
	data := a.pending
	if a.torn { // end the half line, so that it spoils no other
		data = append([]byte{'\n'}, data...)
	}
	n, err := a.file.Write(data)
	if err == nil {
		a.pending, a.torn = a.pending[:0], false
		return nil
	}
	if n > 0 { // a full disk takes a part; lines that are cut are written again
		whole := bytes.LastIndexByte(data[:n], '\n') + 1
		a.pending, a.torn = data[whole:], n > whole
	}
	return err
}

// required is around every call: while a record cannot be written no call runs. That
// is known only after the first one that could not, whose record is kept in memory.
func (a *auditFile) required(next tool.Handler) tool.Handler {
	return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
		if !a.writable() {
			return func(yield func(tool.Chunk, error) bool) { yield(tool.Failure(unwritable), nil) }
		}
		return next(ctx, t, call)
	}
}

const unwritable = "The call was not run: the gateway's audit log cannot be written. Its owner has to see to that."

// writable reports whether all records are written.
func (a *auditFile) writable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pending) == 0 || a.flush() == nil
}

// close writes what is still pending, for the last time.
func (a *auditFile) close() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if len(a.pending) > 0 {
		if err = a.flush(); err != nil {
			err = fmt.Errorf("the audit log lacks its last records: %w", err)
		}
	}
	a.closed = true
	return errors.Join(err, a.file.Close())
}
