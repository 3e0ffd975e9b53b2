package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// A rpcMessage is a request, a notification or an answer.
type rpcMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`

	meta meta // of Params; what cannot be read of it counts as absent
}

// An rpcError is the error of a request that is wrong. A tool that fails has a result instead.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error implements error.
func (e *rpcError) Error() string { return e.Message }

// failure returns what an answer says went wrong, or nil.
func (m *rpcMessage) failure() error {
	if m.Error == nil {
		return nil
	}
	return m.Error
}

// invalid returns the error of a request; the text says what is wrong and what to do.
func invalid(code int, format string, args ...any) *rpcError {
	return &rpcError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// parseMessage reads one message. It refuses a message that another reader, such as a proxy, could
// read differently. The id of a request is a string or a number, as MCP has it, and so can be a
// key.
func parseMessage(data []byte) (*rpcMessage, *rpcError) {
	var m rpcMessage
	if !utf8.Valid(data) { // ids and tokens are sent back as they came
		return nil, invalid(mcp.PARSE_ERROR, "the message is not UTF-8; encode it as UTF-8")
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return nil, invalid(mcp.INVALID_REQUEST, "batches are not taken; send one message at a time")
	}
	if _, err := strictjson.Message(data); err != nil {
		return nil, invalid(mcp.INVALID_REQUEST, "the message cannot be taken: %v", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, invalid(mcp.PARSE_ERROR, "the message is not JSON-RPC: %v", err)
	}
	var p struct {
		Meta meta `json:"_meta"`
	}
	if err := strictjson.Unmarshal(m.Params, &p); errors.Is(err, strictjson.ErrAmbiguous) {
		return nil, invalid(mcp.INVALID_REQUEST, "the message cannot be taken: %v", err)
	}
	m.meta = p.Meta
	switch {
	case m.Version != mcp.JSONRPC_VERSION:
		return nil, invalid(mcp.INVALID_REQUEST, `jsonrpc must be "2.0"`)
	case m.ID != nil && !validID(m.ID):
		return nil, invalid(mcp.INVALID_REQUEST, "id must be a string or a number of at most %d bytes", maxID)
	case m.Method == "" && (m.ID == nil || m.Result == nil && m.Error == nil):
		return nil, invalid(mcp.INVALID_REQUEST, "neither a request nor an answer")
	}
	return &m, nil
}

// maxID is how long an id may be, in bytes.
const maxID = 256

// validID refuses null, with which a request looks like a notification, and long ids.
func validID(id json.RawMessage) bool {
	return len(id) <= maxID && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// encode writes v without the escapes that only HTML needs, which cost tokens. A value that cannot
// be encoded is a bug, and becomes an error.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		b.Reset()
		fmt.Fprintf(&b, `{"jsonrpc":"2.0","error":{"code":%d,"message":%q}}`, mcp.INTERNAL_ERROR, err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

// answer encodes the outcome of a request.
func answer(id json.RawMessage, result any, err *rpcError) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	if err != nil {
		return encode(struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Error   *rpcError       `json:"error"`
		}{mcp.JSONRPC_VERSION, id, err})
	}
	return encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{mcp.JSONRPC_VERSION, id, result})
}

// notification encodes a notification; params may be nil.
func notification(method string, params object) []byte {
	return encode(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  object `json:"params,omitempty"`
	}{mcp.JSONRPC_VERSION, method, params})
}

// decode reads the parameters of a request.
func decode(m *rpcMessage, into any) *rpcError {
	if len(m.Params) == 0 {
		return nil
	}
	if err := strictjson.Unmarshal(m.Params, into); err != nil {
		return invalid(mcp.INVALID_PARAMS, "the parameters of %s: %v", m.Method, err)
	}
	return nil
}

// A meta is what requests without sessions say about themselves.
type meta struct {
	Version      string          `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
	Progress     json.RawMessage `json:"progressToken"`

	Level mcp.LoggingLevel `json:"io.modelcontextprotocol/logLevel"` // from 2026-07-28 on
}

// check reports what a request without a session lacks.
func (m *meta) check() *rpcError {
	if !slices.Contains(mcp.ValidProtocolVersions, m.Version) {
		e := invalid(mcp.UNSUPPORTED_PROTOCOL_VERSION, "protocol version %q is not supported", m.Version)
		e.Data = map[string]any{"supported": mcp.ValidProtocolVersions, "requested": m.Version}
		return e
	}
	var caps map[string]json.RawMessage
	if json.Unmarshal(m.Capabilities, &caps) != nil || caps == nil {
		return invalid(mcp.INVALID_PARAMS, "missing or invalid _meta field %s", mcp.MetaKeyClientCapabilities)
	}
	return nil
}
