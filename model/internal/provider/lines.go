package provider

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/model"
)

const (
	// ReadSize fits about fifty events, which arrive together when the reader is slower than the
	// model.
	ReadSize = 16 << 10
	// drainTime limits the wait for the rest of the body after a complete answer.
	drainTime = 100 * time.Millisecond
)

// Lines is a reader that splits an answer into lines.
type Lines struct {
	*bufio.Reader
	long  []byte // memory for a line that is longer than the reader's buffer
	limit int    // for the length of a line, in bytes
}

var linesPool = sync.Pool{New: func() any {
	return &Lines{Reader: bufio.NewReaderSize(nil, ReadSize), limit: MaxLine}
}}

// NewLines returns the lines of r; the caller must call Release.
func NewLines(r io.Reader) *Lines {
	l := linesPool.Get().(*Lines)
	l.Reset(r)
	return l
}

// Release returns the memory of the lines, which must not be used any more.
func (l *Lines) Release() {
	l.Reset(nil)
	l.long = nil
	linesPool.Put(l)
}

// Next returns the next line without the LF or CRLF at its end. The line is valid until the next
// call of Next. A CR alone does not end a line, although the standard for server-sent events allows
// it.
func (l *Lines) Next() ([]byte, error) {
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

// StreamEnd returns the error for a stream whose reading failed with err before the end of the
// answer. It returns nil if the model had finished, since nothing is lost.
func StreamEnd(err error, finished bool) error {
	switch {
	case finished:
		return nil
	case err == io.EOF:
		return &model.Error{Kind: model.KindConnection, Message: "the stream ended before the answer was finished", Err: io.ErrUnexpectedEOF}
	}
	return err
}

// Drain reads what follows a complete answer, such as [DONE] and the end of the chunked encoding,
// so that the connection can be reused. It reads at most 4 KiB: if more follows, a new connection
// is cheaper.
func (x *Exchange) Drain(l *Lines) {
	if x.Complete && !x.eof {
		x.timer.Reset(drainTime)
		l.Reset(x.body)
		_, _ = l.Discard(4 << 10)
	}
}
