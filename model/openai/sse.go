package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	// readSize fits about fifty events, which arrive together when the reader is slower than the model.
	readSize = 16 << 10
	// maxPending bounds an event whose JSON is spread over several lines.
	maxPending = 1 << 20
)

// lines is a reader that splits an answer into lines.
type lines struct {
	*bufio.Reader
	long  []byte // memory for a line that is longer than the reader's buffer
	limit int    // for the length of a line, in bytes
}

var linesPool = sync.Pool{New: func() any {
	return &lines{Reader: bufio.NewReaderSize(nil, readSize), limit: provider.MaxLine}
}}

// newLines returns lines of r; the caller must call release.
func newLines(r io.Reader) *lines {
	l := linesPool.Get().(*lines)
	l.Reset(r)
	return l
}

func (l *lines) release() {
	l.Reset(nil)
	l.long = nil
	linesPool.Put(l)
}

// next returns the next line without the LF or CRLF at its end. The line is valid until the next call of next. A CR
// alone does not end a line, although the standard for server-sent events allows it.
func (l *lines) next() ([]byte, error) {
	line, err := l.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		l.long = l.long[:0]
		for err == bufio.ErrBufferFull && len(l.long) < l.limit {
			l.long = append(l.long, line...)
			line, err = l.ReadSlice('\n')
		}
		if err == bufio.ErrBufferFull {
			return nil, fmt.Errorf("a line of the answer is longer than the limit of %d bytes", l.limit)
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// errStopped ends reading when the consumer has stopped. It is not returned to callers.
var errStopped = errors.New("the consumer of the answer stopped")

// A parser turns the parts of an answer into chunks.
type parser interface {
	handleData(event string, payload []byte) error // a data line, and the name of its event
	handleBlankLine() error                        // a blank line
	handleUnstreamed(data []byte) error            // an answer that is not a stream
	finishing() bool                               // the model has finished; only the usage and [DONE] may follow
	ended() bool                                   // the end of the answer was received
	finish() error                                 // called after the end
}

// read reads an answer to its end; a yields the chunks.
func read(x *exchange, a parser) error {
	l := newLines(x)
	defer l.release()
	defer x.drain(l)
	whole, err := provider.ReadUnstreamed(l.Reader)
	switch {
	case err != nil:
		return err
	case whole != nil:
		err = a.handleUnstreamed(whole)
	default:
		err = stream(l, x, a)
	}
	if err != nil {
		return err
	}
	x.complete = true // also if the consumer stops at one of the last chunks
	return a.finish()
}

// stream reads server-sent events (HTML Standard, section 9.2) until [DONE] or the end of the stream. Each data line that
// is JSON is an event, since some servers send no blank lines between events. Of the other fields only the name of the
// event is used.
func stream(l *lines, x *exchange, a parser) error {
	event := ""
	for !a.ended() {
		line, err := l.next()
		if err != nil {
			return streamEnd(err, a)
		}
		switch {
		case len(line) == 0:
			event = ""
			if err := a.handleBlankLine(); err != nil {
				return err
			}
		case line[0] == ':': // a comment, to keep the connection open
		case bytes.HasPrefix(line, []byte("data:")):
			if err := a.handleData(event, bytes.TrimSpace(line[len("data:"):])); err != nil {
				return err
			}
		case bytes.HasPrefix(line, []byte("event:")):
			event = string(bytes.TrimSpace(line[len("event:"):]))
		case line[0] == '{': // an error without a field name
			if err := a.handleData("error", line); err != nil {
				return err
			}
		}
		if a.finishing() {
			x.EndIdle = usageTime
		}
	}
	return nil
}

// streamEnd returns the error for a stream that ended before [DONE], where reading failed with err. It returns nil if the
// model had finished, since nothing is lost.
func streamEnd(err error, a parser) error {
	switch {
	case a.finishing():
		return nil
	case err == io.EOF:
		return &model.Error{Kind: model.KindConnection, Message: "the stream ended before the answer was finished", Err: io.ErrUnexpectedEOF}
	}
	return err
}

func (a *answer) finishing() bool { return a.reason != "" }

func (a *answer) ended() bool { return a.done }

func (a *answer) handleBlankLine() error {
	if len(a.pending) > 0 {
		return httperror.BadAnswer("a part of the stream is not valid JSON", a.pending)
	}
	return nil
}
