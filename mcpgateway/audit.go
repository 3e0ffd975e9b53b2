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

// An auditLog appends records to a file, or passes them to Config.AuditWriter. Each record is one write to a file
// opened for appending, so that lines of several programs do not mix, and truncating the file leaves no hole. If the
// file was moved away, a new file is created before the next record.
type auditLog struct {
	path      string
	arguments bool      // Config.AuditArguments
	writer    io.Writer // Config.AuditWriter, or standard output; if not nil, there is no file

	mu          sync.Mutex
	file        *os.File // nil before it is first opened
	closed      bool
	partialLine bool   // what was written last does not end in a line break
	pending     []byte // complete lines that are not written yet
}

// maxPending is how many bytes of records are kept while the log cannot be written. When half of them are used, records
// lose their arguments; when all are used, records are dropped.
const maxPending = 1 << 20

func openAudit(cfg *Config) (*auditLog, error) {
	a := &auditLog{path: cfg.AuditFile, arguments: cfg.AuditArguments, writer: cfg.AuditWriter}
	if a.path == "-" {
		a.writer = os.Stdout
	}
	if err := a.reopenIfMoved(); err != nil {
		return nil, fmt.Errorf("the audit log: %w", err)
	}
	return a, nil
}

// reopenIfMoved opens the file at the path unless it is already open. The caller holds a.mu, except in openAudit.
func (a *auditLog) reopenIfMoved() error {
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
		// A stat for every record is cheap compared with a call. With it log rotation need not send a signal.
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

// endsInPartialLine reports whether a file is not empty and does not end in a line break. It returns true for a file
// that cannot be read, because an empty line in the log is better than two records in one line.
func endsInPartialLine(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	readable, err := os.Open(f.Name()) // f is open for writing only
	if err != nil {
		return true
	}
	defer readable.Close()
	var last [1]byte
	_, err = readable.ReadAt(last[:], info.Size()-1)
	return err != nil || last[0] != '\n'
}

// append writes a record. If that fails, the record is kept as long as there is room.
func (a *auditLog) append(r mcpserver.Record) {
	if !a.arguments {
		r.Input = nil
	}
	line, err := json.Marshal(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	failing := len(a.pending) > 0 // an earlier write has failed, which is logged only once
	// A record loses its arguments if they are not JSON, or if the pending records would use half of maxPending. The first
	// record that fails keeps its arguments whatever their length, which Limits.Request limits.
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
func (a *auditLog) flush() error {
	if err := a.reopenIfMoved(); err != nil {
		return err
	}
	data := a.pending
	if a.partialLine { // end the incomplete line
		data = append([]byte{'\n'}, data...)
	}
	w := a.writer
	if w == nil {
		w = a.file
	}
	n, err := w.Write(data)
	if err == nil {
		a.pending, a.partialLine = a.pending[:0], false
		return nil
	}
	if n > 0 { // a full disk may accept a part of data; a line that it cuts is written again
		complete := bytes.LastIndexByte(data[:n], '\n') + 1 // the length of the complete lines written
		a.pending, a.partialLine = data[complete:], n > complete
	}
	return err
}

// middleware refuses calls while records are pending that cannot be written. A call runs before its record is written:
// the call whose record fails first has already run.
func (a *auditLog) middleware(next tool.Handler) tool.Handler {
	return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
		if !a.writable() {
			return func(yield func(tool.Chunk, error) bool) { yield(tool.Failure(auditUnwritable), nil) }
		}
		return next(ctx, t, call)
	}
}

const auditUnwritable = "The call was not run: the gateway's audit log cannot be written; the gateway's owner must correct that."

// writable tries to write the pending records, and reports whether none are left.
func (a *auditLog) writable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pending) == 0 || a.flush() == nil
}

// close writes the pending lines and closes the file.
func (a *auditLog) close() (err error) {
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
