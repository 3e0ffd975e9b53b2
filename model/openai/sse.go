package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kitbag-go/kitbag/model"
)

const (
	// readSize is enough for some fifty events, which arrive together when the
	// reader is slower than the model.
	readSize = 16 << 10
	// maxLine bounds a line of a stream, and a whole answer that is not one. A
	// picture comes in one line.
	maxLine = 64 << 20
)

var readBuffers = sync.Pool{New: func() any { return new(make([]byte, readSize)) }}

// lines splits a stream into lines. It copies nothing: a line is valid until
// the next call. The end of a line is LF or CRLF, not CR alone, which the standard for
// server-sent events allows too.
type lines struct {
	r          io.Reader
	pooled     *[]byte
	buf        []byte
	start, end int
	searched   int // from start: how much holds no newline
	limit      int // of a line, in bytes
	err        error
}

// newLines returns lines with a buffer that release must give back.
func newLines(r io.Reader) *lines {
	p := readBuffers.Get().(*[]byte)
	return &lines{r: r, pooled: p, buf: *p, limit: maxLine}
}

// release gives back the buffer that newLines took. One that grew is left to the garbage
// collector.
func (l *lines) release() { readBuffers.Put(l.pooled) }

// next returns the next line without its end, be that LF, CRLF or the end of
// the stream.
func (l *lines) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.start+l.searched:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.start+l.searched+i]
			l.start += l.searched + i + 1
			l.searched = 0
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		l.searched = l.end - l.start
		if l.err != nil {
			line := l.buf[l.start:l.end]
			if len(line) == 0 || l.err != io.EOF {
				return nil, l.err
			}
			l.start, l.searched = l.end, 0
			return line, nil
		}
		l.fill()
	}
}

// rest returns everything that is left.
func (l *lines) rest() ([]byte, error) {
	for l.err == nil {
		l.fill()
	}
	if l.err != io.EOF {
		return nil, l.err
	}
	return l.buf[l.start:l.end], nil
}

// first returns the first byte that is not a space or part of a byte order
// mark, and takes nothing.
func (l *lines) first() (byte, error) {
	for {
		b := bytes.TrimPrefix(l.buf[l.start:l.end], []byte("\ufeff"))
		if b = bytes.TrimLeft(b, " \t\r\n"); len(b) > 0 && b[0] != 0xEF {
			l.start = l.end - len(b)
			return b[0], nil
		}
		if l.err != nil {
			return 0, l.err
		}
		l.fill()
	}
}

// fill reads more, into a buffer that is twice as large if it was full. The error is kept for
// when all that came before it was taken.
func (l *lines) fill() {
	if l.start > 0 {
		copy(l.buf, l.buf[l.start:l.end])
		l.start, l.end = 0, l.end-l.start
	}
	if l.end == len(l.buf) {
		if l.end >= l.limit {
			l.err = fmt.Errorf("a line of the answer is longer than %d bytes", l.limit)
			return
		}
		l.buf = append(l.buf, make([]byte, len(l.buf))...)
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	l.err = err
}

// errStopped ends the reading of an answer that nobody ranges over any more. No caller
// sees it.
var errStopped = errors.New("the reader of the answer stopped")

// read reads an answer to its end and yields it. The first byte says what it
// is: neither the Content-Type nor what was asked for can be relied on.
func (a *answer) read(x *exchange) error {
	l := newLines(x)
	defer l.release()
	first, err := l.first()
	switch {
	case err == io.EOF:
		return badAnswer("the server's answer is empty")
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
		a.done = true
	case first == '<':
		data, err := l.rest()
		if err != nil {
			return err
		}
		return badAnswer("the server's answer is a web page, not JSON; the base URL may lack its path, such as /v1: " + errorText(data))
	default:
		if err := a.stream(l, x); err != nil {
			return err
		}
	}
	x.whole = true // also if the reader stops at one of the last chunks
	return a.finish()
}

// stream reads server-sent events (HTML Standard, section 9.2) until [DONE] or the end. Each
// data line that is JSON is an event, since some servers send no blank lines between them; of
// other fields only the event's name counts.
func (a *answer) stream(l *lines, x *exchange) error {
	event := ""
	for !a.done {
		line, err := l.next()
		if err != nil {
			return a.broken(err)
		}
		switch {
		case len(line) == 0:
			event = ""
			if len(a.pending) > 0 {
				return badAnswer("a part of the stream is not valid JSON: " + errorText(a.pending))
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
		x.ending = a.reason != "" // what may still come is the usage and [DONE]
	}
	return nil
}

// broken judges the end of a stream that came before [DONE]: nothing is lost
// if the model had said that it was finished.
func (a *answer) broken(err error) error {
	switch {
	case a.reason != "":
		return nil
	case err == io.EOF:
		return &model.Error{Kind: model.ErrConnection, Message: "the stream ended before the answer was finished", Err: io.ErrUnexpectedEOF}
	}
	return err
}
