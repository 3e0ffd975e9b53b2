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
)

const (
	// readSize is enough for some fifty events, which arrive together when the
	// reader is slower than the model.
	readSize = 16 << 10
	// maxLine bounds a line of a stream, and a whole answer that is not one. A
	// picture comes in one line.
	maxLine = 64 << 20
	// maxPending bounds an event whose JSON is spread over several lines.
	maxPending = 1 << 20
)

// lines splits an answer into lines.
type lines struct {
	*bufio.Reader
	long  []byte // a line that is longer than the buffer
	limit int    // of a line, in bytes
}

// pool keeps the buffers of lines from one answer to the next.
var pool = sync.Pool{New: func() any {
	return &lines{Reader: bufio.NewReaderSize(nil, readSize), limit: maxLine}
}}

// newLines returns lines with a buffer that release must give back.
func newLines(r io.Reader) *lines {
	l := pool.Get().(*lines)
	l.Reset(r)
	return l
}

func (l *lines) release() {
	l.Reset(nil)
	l.long = nil
	pool.Put(l)
}

// next returns the next line without its end, be that LF, CRLF or the end of the stream. It is
// valid until the next call. CR alone ends no line, though the standard for server-sent events
// allows it.
func (l *lines) next() ([]byte, error) {
	line, err := l.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		l.long = l.long[:0]
		for err == bufio.ErrBufferFull && len(l.long) < l.limit {
			l.long = append(l.long, line...)
			line, err = l.ReadSlice('\n')
		}
		if err == bufio.ErrBufferFull {
			return nil, l.tooLong()
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// rest returns everything that is left.
func (l *lines) rest() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(l, int64(l.limit)+1))
	if err == nil && len(data) > l.limit {
		return nil, l.tooLong()
	}
	return data, err
}

func (l *lines) tooLong() error {
	return fmt.Errorf("a line of the answer is longer than %d bytes", l.limit)
}

// first returns the first byte that is not a space or part of a byte order mark, and leaves it
// to be read.
func (l *lines) first() (byte, error) {
	for {
		c, err := l.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF:
		default:
			return c, l.UnreadByte()
		}
	}
}

// errStopped ends the reading of an answer when its consumer stops. No caller sees it.
var errStopped = errors.New("the consumer of the answer stopped")

// A parser turns the parts of an answer into chunks. Its errors are those of the answer.
type parser interface {
	data(event string, payload []byte) error // a data line, and the name of its event
	blank() error                            // the end of an event
	whole(data []byte) error                 // an answer that is not a stream
	said() bool                              // the model said that it is finished: little may follow
	over() bool                              // nothing more follows
	finish() error                           // after the end
}

// read reads an answer to its end and yields it. The first byte says what it is: neither the
// Content-Type nor what was asked for can be relied on.
func read(x *exchange, a parser) error {
	l := newLines(x)
	defer l.release()
	defer x.drain(l)
	first, err := l.first()
	switch {
	case err == io.EOF:
		return httperror.BadAnswer("the server's answer is empty", nil)
	case err != nil:
		return err
	case first == '{' || first == '[':
		data, err := l.rest()
		if err != nil {
			return err
		}
		if err := a.whole(data); err != nil {
			return err
		}
	case first == '<':
		data, err := l.rest()
		if err != nil {
			return err
		}
		return httperror.BadAnswer("the server's answer is a web page, not JSON; the base URL may lack its path, such as /v1", data)
	default:
		if err := stream(l, x, a); err != nil {
			return err
		}
	}
	x.whole = true // also if the consumer stops at one of the last chunks
	return a.finish()
}

// stream reads server-sent events (HTML Standard, section 9.2) until [DONE] or the end. Each
// data line that is JSON is an event, since some servers send no blank lines between them; of
// other fields only the event's name counts.
func stream(l *lines, x *exchange, a parser) error {
	event := ""
	for !a.over() {
		line, err := l.next()
		if err != nil {
			return broken(err, a)
		}
		switch {
		case len(line) == 0:
			event = ""
			if err := a.blank(); err != nil {
				return err
			}
		case line[0] == ':': // a comment, to keep the connection open
		case bytes.HasPrefix(line, []byte("data:")):
			if err := a.data(event, bytes.TrimSpace(line[len("data:"):])); err != nil {
				return err
			}
		case bytes.HasPrefix(line, []byte("event:")):
			event = string(bytes.TrimSpace(line[len("event:"):]))
		case line[0] == '{': // an error put into the stream as it is
			if err := a.data("error", line); err != nil {
				return err
			}
		}
		x.ending = a.said() // what may still come is the usage and [DONE]
	}
	return nil
}

// broken judges the end of a stream that came before [DONE]: nothing is lost if the model had
// said that it was finished.
func broken(err error, a parser) error {
	switch {
	case a.said():
		return nil
	case err == io.EOF:
		return &model.Error{Kind: model.KindConnection, Message: "the stream ended before the answer was finished", Err: io.ErrUnexpectedEOF}
	}
	return err
}

func (a *answer) said() bool { return a.reason != "" }

func (a *answer) over() bool { return a.done }

func (a *answer) blank() error {
	if len(a.pending) > 0 {
		return httperror.BadAnswer("a part of the stream is not valid JSON", a.pending)
	}
	return nil
}
