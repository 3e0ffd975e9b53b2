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
	src      *bufio.Reader
	maxBytes int    // of a line
	onEOF    func() // called when the output has ended
	unread   []byte // of a checked line: not yet read by the caller
}

func newLineReader(r io.Reader, maxBytes int, onEOF func()) *lineReader {
	return &lineReader{src: bufio.NewReaderSize(r, 64<<10), maxBytes: maxBytes, onEOF: onEOF}
}

func (l *lineReader) Read(p []byte) (int, error) {
	for len(l.unread) == 0 {
		line, err := l.nextLine()
		if err != nil {
			l.onEOF()
			return 0, io.EOF
		}
		line = validUTF8(line)
		if _, err := checkMessage(line); err != nil {
			line = append(errorAnswer(ownID(line), codeMalformed, err.Error()), '\n')
		}
		l.unread = withRawLogData(line)
	}
	n := copy(p, l.unread)
	l.unread = l.unread[n:]
	return n, nil
}

// nextLine returns the next line, which is valid until the next call. Only a line longer than the buffer is copied.
func (l *lineReader) nextLine() ([]byte, error) {
	part, err := l.src.ReadSlice('\n')
	if err == nil && len(part) <= l.maxBytes {
		return part, nil
	}
	line := bytes.Clone(part)
	for errors.Is(err, bufio.ErrBufferFull) && len(line) <= l.maxBytes {
		part, err = l.src.ReadSlice('\n')
		line = append(line, part...)
	}
	if len(line) > l.maxBytes {
		return l.skipLong(line, err)
	}
	return line, err
}

// idSearchBytes is how much of either end of a long line is searched for its id.
const idSearchBytes = 4 << 10

// skipLong reads the rest of a line that is too long and returns an error answer in its place. head is what was read of
// the line, and err the error of the last ReadSlice: bufio.ErrBufferFull if the line continues.
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
	reason := fmt.Sprintf("%d bytes, the limit is %d", size, l.maxBytes)
	return append(errorAnswer(id, codeTooLarge, reason), '\n'), nil
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
	isObject := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))                         // otherwise it is a log line
	hasOwnID := bytes.HasPrefix(head.ID, []byte(`"`+idPrefix)) || head.ID == nil && ownID(data) != "" // the JSON may be broken
	if err != nil || !isObject || !hasOwnID {
		return head, err
	}
	var shape struct {
		Version string                   `json:"jsonrpc"`
		Method  string                   `json:"method"`
		Error   *mcp.JSONRPCErrorDetails `json:"error"`
	}
	return head, json.Unmarshal(data, &shape)
}

// errorAnswer returns an error answer to the request with the id, or nil without an id.
func errorAnswer(id string, code int, reason string) []byte {
	if id == "" {
		return nil
	}
	text, _ := json.Marshal(reason) // strings can be encoded
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"error":{"code":%d,"message":%s}}`, id, code, text)
}

// The codes of errorAnswer, outside the range that JSON-RPC reserves.
const (
	codeTooLarge  = -30413
	codeMalformed = -30422
)

// ownID returns the id of a request of the client that data contains, or "". data may be broken JSON or a part of it.
// Text cannot be mistaken for an id, since quotes in a JSON string are escaped.
func ownID(data []byte) string {
	for _, key := range []string{`"id":"` + idPrefix, `"id": "` + idPrefix} {
		if i := bytes.LastIndex(data, []byte(key)); i >= 0 {
			rest := data[i+len(key)-len(idPrefix):]
			if id, _, ok := bytes.Cut(rest, []byte{'"'}); ok {
				return string(id)
			}
		}
	}
	return ""
}

// idPrefix begins the ids of the client's requests, so that none equals the number of a server's request: mcp-go's SSE
// transport would mistake a ping with an equal id for an answer.
const idPrefix = "kb-"

// rawDataKey is the member that withRawLogData adds.
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
