package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// A lineReader reads the lines of a server's output, each of which is a message. An answer that is too long, or
// that [checkMessage] rejects, is replaced by an error answer to the same request, so that its caller fails at
// once and memory stays bounded. The only error is io.EOF: after any error the server is gone.
type lineReader struct {
	src  *bufio.Reader
	max  int    // bytes of a line
	eof  func() // called when the output has ended
	line []byte // not yet read by the caller
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
		line = validUTF8(line)
		if _, err := checkMessage(line); err != nil {
			line = append(errorAnswer(ownID(line), codeMalformed, err.Error()), '\n')
		}
		l.line = withRawLogData(line)
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
		return l.skipLong(line, err)
	}
	return line, err
}

// idSearchBytes is how much of either end of a long line is searched for its id.
const idSearchBytes = 4 << 10

// skipLong reads the rest of a line that is too long and returns an error answer in its place.
func (l *lineReader) skipLong(head []byte, err error) ([]byte, error) {
	size := len(head)
	last := bytes.Clone(head[max(0, len(head)-idSearchBytes):])
	head = bytes.Clone(head[:min(idSearchBytes, len(head))])
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = l.src.ReadSlice('\n')
		size += len(part)
		last = append(last, part...)
		last = append(last[:0], last[max(0, len(last)-idSearchBytes):]...)
	}
	if err != nil {
		return nil, err
	}
	id := ownID(head)
	if id == "" {
		id = ownID(last)
	}
	why := fmt.Sprintf("%v: %d bytes, the limit is %d", errTooLarge, size, l.max)
	return append(errorAnswer(id, codeTooLarge, why), '\n'), nil
}

// validUTF8 replaces bytes that are not UTF-8, as encoding/json does when it decodes a string. Raw JSON would otherwise
// not be valid.
func validUTF8(data []byte) []byte {
	if utf8.Valid(data) {
		return data
	}
	return bytes.ToValidUTF8(data, []byte("\uFFFD"))
}

// checkMessage returns an error for a message that cannot be used: one that two readers could read differently, or an
// answer that mcp-go cannot decode. mcp-go drops such an answer, and the caller would wait until its timeout.
func checkMessage(data []byte) (strictjson.Head, error) {
	head, err := strictjson.Message(data)
	if err != nil || !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) { // anything else is a log line
		return head, err
	}
	answersUs := bytes.HasPrefix(head.ID, []byte(`"`+idPrefix)) || head.ID == nil && ownID(data) != "" // the JSON may be broken
	if !answersUs {
		return head, nil
	}
	var shape struct {
		Version string                   `json:"jsonrpc"`
		Method  string                   `json:"method"`
		Error   *mcp.JSONRPCErrorDetails `json:"error"`
	}
	return head, json.Unmarshal(data, &shape)
}

// errorAnswer returns an error answer to the request with the id, or nil without an id.
func errorAnswer(id string, code int, why string) []byte {
	text, err := json.Marshal(why)
	if id == "" || err != nil {
		return nil
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"error":{"code":%d,"message":%s}}`, id, code, text)
}

// The codes of errorAnswer, outside the range of JSON-RPC's own.
const (
	codeTooLarge  = -30413
	codeMalformed = -30422
)

// ownID returns the id in b if the client has given it to a request, or "". Text cannot be mistaken for an id, since quotes in a
// JSON string are escaped.
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

// idPrefix begins the ids of the client's requests. They are strings because servers number their own requests, and
// mcp-go's SSE transport mistakes a ping for an answer if the ids are equal.
const idPrefix = "kb-"

// rawDataKey is the member for the data of a log message as the server wrote it.
const rawDataKey = "kitbag/data"

// withRawLogData returns a log message with its data as a string under rawDataKey: mcp-go reads numbers as
// floats, which cannot represent the ids and times that are common in logs. Other messages are returned
// unchanged.
func withRawLogData(line []byte) []byte {
	if !bytes.Contains(line, []byte(`/message"`)) {
		return line
	}
	var msg struct {
		ID     json.RawMessage            `json:"id"`
		Method string                     `json:"method"`
		Params map[string]json.RawMessage `json:"params"`
	}
	if json.Unmarshal(line, &msg) != nil || msg.Method != "notifications/message" || msg.ID != nil || msg.Params["data"] == nil {
		return line
	}
	// Encoding cannot fail: all values are strings or were decoded.
	msg.Params[rawDataKey], _ = json.Marshal(string(msg.Params["data"]))
	delete(msg.Params, "data")
	out, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": msg.Method, "params": msg.Params})
	return append(out, '\n')
}
