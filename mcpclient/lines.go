package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// A lineReader passes on the lines of a server's output, each of which is a
// message. In place of a line that is too long it passes an error answer to the
// request that the line seemed to answer, so that the caller learns what
// happened and memory stays bounded; so it does in place of one that two readers could
// read differently. It ends with io.EOF only: whatever else
// went wrong, the server is gone.
type lineReader struct {
	src  *bufio.Reader
	max  int
	eof  func()
	line []byte // what is left to pass on
}

func newLineReader(r io.Reader, limit int, eof func()) *lineReader {
	return &lineReader{src: bufio.NewReaderSize(r, 64<<10), max: limit, eof: eof}
}

func (l *lineReader) Read(p []byte) (int, error) {
	for len(l.line) == 0 {
		line, err := l.next()
		if err != nil {
			l.eof()
			return 0, io.EOF
		}
		if _, err := strictjson.Message(line); err != nil {
			line = instead(ownID(line), codeAmbiguous, err.Error())
		}
		l.line = exactLog(line)
	}
	n := copy(p, l.line)
	l.line = l.line[n:]
	return n, nil
}

func (l *lineReader) next() ([]byte, error) {
	part, err := l.src.ReadSlice('\n')
	if err == nil && len(part) <= l.max {
		return part, nil
	}
	line := bytes.Clone(part)
	for errors.Is(err, bufio.ErrBufferFull) && len(line) <= l.max {
		part, err = l.src.ReadSlice('\n')
		line = append(line, part...)
	}
	if len(line) > l.max {
		return l.skip(line, err)
	}
	return line, err
}

// ends is how much of either end of a long line is searched for its id.
const ends = 4 << 10

// skip reads the rest of a line that is too long and returns what stands for it.
func (l *lineReader) skip(head []byte, err error) ([]byte, error) {
	size := len(head)
	last := bytes.Clone(head[max(0, len(head)-ends):])
	head = bytes.Clone(head[:min(ends, len(head))])
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = l.src.ReadSlice('\n')
		size += len(part)
		last = append(last, part...)
		last = append(last[:0], last[max(0, len(last)-ends):]...)
	}
	if err != nil {
		return nil, err
	}
	id := ownID(head)
	if id == "" {
		id = ownID(last)
	}
	return instead(id, codeTooLarge, fmt.Sprintf("%v: %d bytes, the limit is %d", ErrTooLarge, size, l.max)), nil
}

// instead returns the line that is passed on in place of one that is not: an answer to the
// request with the id, or none.
func instead(id string, code int, why string) []byte {
	text, err := json.Marshal(why)
	if id == "" || err != nil {
		return []byte("\n")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"error":{"code":%d,"message":%s}}`+"\n", id, code, text)
}

// These codes are ours, outside of the range of JSON-RPC's.
const (
	codeTooLarge  = -30413
	codeAmbiguous = -30422
)

// ownID finds an id that we gave to a request. Inside of a JSON string the
// quotes would be escaped, so that text cannot be mistaken for one.
func ownID(b []byte) string {
	for _, key := range []string{`"id":"` + idPrefix, `"id": "` + idPrefix} {
		if i := bytes.LastIndex(b, []byte(key)); i >= 0 {
			rest := b[i+len(key)-len(idPrefix):]
			if id, _, ok := bytes.Cut(rest, []byte{'"'}); ok {
				return string(id)
			}
		}
	}
	return ""
}
