package mcpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Why a server could not do what was asked; read with errors.Is.
var (
	ErrClosed     = errors.New("the client is closed")
	ErrRestarting = errors.New("the server is restarting")
	ErrLost       = errors.New("the connection to the server was lost")
	ErrTimeout    = errors.New("time-out")
	ErrTooLarge   = errors.New("the server's message is too large")
	ErrMalformed  = errors.New("the server's message cannot be read")
	ErrLogin      = errors.New("log in") // the server wants that, and it was not tried or has failed; see [OAuth]
)

// A ServerError says that a server could not be reached, started or kept. A
// call that ends with one may have run if it wraps [ErrLost], [ErrTimeout], [ErrTooLarge]
// or [ErrMalformed], and has not run otherwise.
type ServerError struct {
	Server string
	Err    error
	Stderr string // the last lines the server wrote there, if it was started by us
}

func (e *ServerError) Error() string {
	s := fmt.Sprintf("MCP server %q: %v", e.Server, e.Err)
	if e.Stderr != "" {
		s += "\nits stderr ended with:\n" + e.Stderr
	}
	return s
}

func (e *ServerError) Unwrap() error { return e.Err }

// A CallError is an error that the server answered with. Code is the JSON-RPC
// error code.
type CallError struct {
	Server  string
	Method  string
	Code    int
	Message string
	Data    json.RawMessage
}

func (e *CallError) Error() string {
	msg := strings.TrimSpace(e.Message)
	if msg == "" {
		msg = "no message"
	}
	return fmt.Sprintf("MCP server %q refused %s: %s (code %d)", e.Server, e.Method, msg, e.Code)
}

// The codes of JSON-RPC and MCP that the client itself looks at.
const (
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeURLRequired        = -32042 // a page must be visited first
	codeRefused            = -1     // the user is against it
	codeUnsupportedVersion = -32022
)

func hasCode(err error, code int) bool {
	ce, ok := errors.AsType[*CallError](err)
	return ok && ce.Code == code
}

// An unreached error says that the request certainly never came to the server,
// so that it may be sent again.
type unreached struct{ err error }

func (e *unreached) Error() string { return e.err.Error() }
func (e *unreached) Unwrap() error { return e.err }

func neverReached(err error) bool {
	_, ok := errors.AsType[*unreached](err)
	return ok
}

// An httpStatus is an answer that is no JSON-RPC.
type httpStatus struct {
	code int
	body string
}

// Unwrap makes the answer to a request without a login, or with one that does not
// do, an ErrLogin.
func (e *httpStatus) Unwrap() error {
	if e.code == http.StatusUnauthorized {
		return ErrLogin
	}
	return nil
}

func (e *httpStatus) Error() string {
	hint := ""
	switch e.code {
	case 401, 403:
		hint = "; the server wants other credentials: check Headers, or set OAuth"
	case 404:
		hint = "; check the URL"
	}
	if e.body != "" {
		hint += ": " + e.body
	}
	return fmt.Sprintf("HTTP status %d%s", e.code, hint)
}
