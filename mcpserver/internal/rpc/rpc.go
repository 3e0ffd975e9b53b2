// Package rpc reads and writes the messages of JSON-RPC as MCP uses them.
package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// A Message is a request, a notification or an answer.
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`

	Meta Meta `json:"-"` // from Params; fields that cannot be read count as absent
}

// An Error is the error of a request. For a tool that fails a result is sent instead.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// IsRequest reports whether the message must be answered: it is neither a notification nor an answer.
func (m *Message) IsRequest() bool { return m.ID != nil && m.Method != "" }

// Failure returns the error of an answer, or nil.
func (m *Message) Failure() error {
	if m.Error == nil {
		return nil
	}
	return m.Error
}

// Errorf returns the error of a request. The text says what is wrong and what to do about it.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Parse reads one message. It rejects a message that another reader, such as a proxy, could read
// differently. The message that it returns with an error has only the id to answer to, or no id. The id of a
// request is a string or a number, as MCP requires.
func Parse(data []byte) (*Message, *Error) {
	m, err := parse(data)
	if err != nil {
		m = &Message{}
		if utf8.Valid(data) && json.Valid(data) {
			m.ID = RequestID(data, nil)
		}
	}
	return m, err
}

// RequestID returns the id of a request that cannot be parsed, so that its client does not wait for an answer.
// It returns nil if the id is not certain or if the message is not a request. If only the beginning of the
// message is in data, tail is its end.
func RequestID(data, tail []byte) (id json.RawMessage) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	isRequest := false
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			break
		}
		switch {
		case name == "method":
			isRequest = true
		case strings.EqualFold(name, "id"):
			if id != nil || name != "id" || !validID(value) {
				return nil
			}
			id = value
		}
	}
	if !isRequest {
		return nil
	}
	if m := idAtEnd().FindSubmatch(tail); id == nil && m != nil && validID(m[1]) {
		id = m[1]
	}
	return id
}

// idAtEnd matches an id that is the last member of a message.
var idAtEnd = lazy.Regexp(`[,{]\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)\s*}\s*$`)

func parse(data []byte) (*Message, *Error) {
	var m Message
	if !utf8.Valid(data) { // ids and tokens are sent back unchanged
		return nil, Errorf(mcp.PARSE_ERROR, "the message is not UTF-8; encode it as UTF-8")
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return nil, Errorf(mcp.INVALID_REQUEST, "batches are not supported; send one message at a time")
	}
	if _, err := strictjson.Message(data); err != nil {
		return nil, Errorf(mcp.INVALID_REQUEST, "the message cannot be read: %v", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, Errorf(mcp.PARSE_ERROR, "the message is not JSON-RPC: %v", err)
	}
	var p struct {
		Meta Meta `json:"_meta"`
	}
	if err := strictjson.Unmarshal(m.Params, &p); errors.Is(err, strictjson.ErrAmbiguous) {
		return nil, Errorf(mcp.INVALID_REQUEST, "the message cannot be read: %v", err)
	}
	m.Meta = p.Meta
	switch {
	case m.Version != mcp.JSONRPC_VERSION:
		return nil, Errorf(mcp.INVALID_REQUEST, `jsonrpc must be "2.0"`)
	case m.ID != nil && !validID(m.ID):
		return nil, Errorf(mcp.INVALID_REQUEST, "id must be a string or a number of at most %d bytes", maxID)
	case m.Method == "" && (m.ID == nil || m.Result == nil && m.Error == nil):
		return nil, Errorf(mcp.INVALID_REQUEST, "the message has neither a method nor an id with a result or an error; see JSON-RPC 2.0")
	}
	return &m, nil
}

// maxID is how long an id may be, in bytes.
const maxID = 256

// validID reports whether a request may have the id. It rejects long ids, and null, because a request with it
// looks like a notification.
func validID(id json.RawMessage) bool {
	return len(id) <= maxID && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// Encode encodes v without the escapes that only HTML needs, which cost tokens. A value that cannot be encoded
// is a bug and is sent as a JSON-RPC error.
func Encode(v any) []byte {
	data, err := strictjson.Encode(v)
	if err != nil {
		return Answer(nil, nil, Errorf(mcp.INTERNAL_ERROR, "%v", err))
	}
	return data
}

// Answer encodes the outcome of a request. A result that cannot be encoded becomes an error with the same id, so that the
// client does not wait for its answer.
func Answer(id json.RawMessage, result any, err *Error) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	data, encodeErr := strictjson.Encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"` // an empty object is not omitted
		Error   *Error          `json:"error,omitempty"`
	}{mcp.JSONRPC_VERSION, id, result, err})
	if encodeErr != nil && result != nil {
		return Answer(id, nil, Errorf(mcp.INTERNAL_ERROR, "the result: %v", encodeErr))
	}
	return data
}

// Notification encodes a notification; params may be nil.
func Notification(method string, params map[string]any) []byte {
	return Encode(struct {
		Version string         `json:"jsonrpc"`
		Method  string         `json:"method"`
		Params  map[string]any `json:"params,omitempty"`
	}{mcp.JSONRPC_VERSION, method, params})
}

// Decode reads the parameters of a request.
func (m *Message) Decode(into any) *Error {
	if len(m.Params) == 0 {
		return nil
	}
	if err := strictjson.Unmarshal(m.Params, into); err != nil {
		return Errorf(mcp.INVALID_PARAMS, "the parameters of %s: %v", m.Method, err)
	}
	return nil
}

// A Meta is the _meta of a request. Without sessions it contains what a client sends in a handshake otherwise.
type Meta struct {
	Version      string          `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
	Progress     json.RawMessage `json:"progressToken"`

	Level mcp.LoggingLevel `json:"io.modelcontextprotocol/logLevel"` // from 2026-07-28 on
}

// Check reports what a request without a session is missing.
func (m *Meta) Check() *Error {
	if !slices.Contains(mcp.ValidProtocolVersions, m.Version) {
		e := Errorf(mcp.UNSUPPORTED_PROTOCOL_VERSION, "protocol version %q is not supported", m.Version)
		e.Data = map[string]any{"supported": mcp.ValidProtocolVersions, "requested": m.Version}
		return e
	}
	var caps map[string]json.RawMessage
	if json.Unmarshal(m.Capabilities, &caps) != nil || caps == nil {
		return Errorf(mcp.INVALID_PARAMS, "missing or invalid _meta field %s", mcp.MetaKeyClientCapabilities)
	}
	return nil
}
