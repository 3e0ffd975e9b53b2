package mcpgateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"sync"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// An auditFile appends records to a file, or passes them to Config.AuditWriter. Each record is one write to a file
// opened for appending, so that lines of several programs do not mix, and truncating the file leaves no hole. If the
// file was moved away, a new one is created before the next record.
type auditFile struct {
	path      string
	arguments bool
	writer    io.Writer // Config.AuditWriter, or standard output; if not nil, there is no file

	mu          sync.Mutex
	file        *os.File // the file that was opened last
	closed      bool
	partialLine bool   // the last write was incomplete
	pending     []byte // complete lines that are not in the file yet
}

// maxPending is how many bytes of records are kept while the file cannot be written. Once half of it is used, records
// lose their arguments; once all of it is used, records are dropped.
const maxPending = 1 << 20

func openAudit(cfg *Config) (*auditFile, error) {
	a := &auditFile{path: cfg.AuditFile, arguments: cfg.AuditArguments, writer: cfg.AuditWriter}
	if a.path == "-" {
		a.writer = os.Stdout
	}
	if err := a.reopen(); err != nil {
		return nil, fmt.Errorf("the audit log: %w", err)
	}
	return a, nil
}

// reopen opens the file that is at the path now. The caller holds a.mu, unless nothing else uses a yet.
func (a *auditFile) reopen() error {
	if a.closed {
		return os.ErrClosed
	}
	if a.writer != nil {
		return nil
	}
	if a.file != nil {
		opened, err := a.file.Stat()
		if err != nil {
			return err
		}
		// Unlike a signal from log rotation, a stat for every record needs no setup, and it is cheap compared with a call.
		current, err := os.Stat(a.path)
		if err == nil && os.SameFile(opened, current) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Only the owner may read the file, because records say who does what.
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if a.file != nil {
		_ = a.file.Close() // writes are not buffered
	}
	a.file, a.partialLine = f, endsInPartialLine(f)
	if a.partialLine {
		slog.Warn("the audit log ended in an incomplete line, perhaps of a killed program; the next record begins a new line", "file", a.path)
	}
	return nil
}

// endsInPartialLine reports whether a file does not end in a line break. It returns true for a file that cannot
// be read, because an empty line is better than two records in one.
func endsInPartialLine(f *os.File) bool {
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

// append adds a record.
func (a *auditFile) append(r mcpserver.Record) {
	if !a.arguments {
		r.Input = nil
	}
	line, err := json.Marshal(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	failing := len(a.pending) > 0 // the failure was already logged
	// Long arguments must not prevent a record: a record is written whatever its length, which Limits.Request
	// limits, but without its arguments if others are pending.
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

// flush writes the pending lines. The caller holds a.mu.
func (a *auditFile) flush() error {
	if err := a.reopen(); err != nil {
		return err
	}
	data := a.pending
	if a.partialLine { // end the incomplete line
		data = append([]byte{'\n'}, data...)
	}
	to := a.writer
	if to == nil {
		to = a.file
	}
	n, err := to.Write(data)
	if err == nil {
		a.pending, a.partialLine = a.pending[:0], false
		return nil
	}
	if n > 0 { // a full disk may accept a part; incomplete lines are written again
		whole := bytes.LastIndexByte(data[:n], '\n') + 1
		a.pending, a.partialLine = data[whole:], n > whole
	}
	return err
}

// middleware refuses calls while records cannot be written. The call whose record fails first has already run: its
// record is kept in memory.
func (a *auditFile) middleware(next tool.Handler) tool.Handler {
	return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
		if !a.writable() {
			return func(yield func(tool.Chunk, error) bool) { yield(tool.Failure(unwritable), nil) }
		}
		return next(ctx, t, call)
	}
}

const unwritable = "The call was not run: the gateway's audit log cannot be written; the gateway's owner must correct that."

// writable reports whether all records are written, and tries to write pending ones.
func (a *auditFile) writable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pending) == 0 || a.flush() == nil
}

// close writes the pending lines and closes the file.
func (a *auditFile) close() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if len(a.pending) > 0 {
		if err = a.flush(); err != nil {
			err = fmt.Errorf("the last records could not be written to the audit log: %w", err)
		}
	}
	a.closed = true
	if a.file == nil {
		return err
	}
	return errors.Join(err, a.file.Close())
}
