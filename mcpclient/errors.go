package mcpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// Reasons why a request fails, for errors.Is.
var (
	ErrClosed  = errors.New("the client is closed")
	ErrLost    = errors.New("the connection to the server was lost")
	ErrTimeout = errors.New("timeout")
	ErrLogin   = errors.New("login required") // the client cannot log in, or has failed to; see [OAuth]

	errRestarting = errors.New("the server is restarting")
	errTooLarge   = errors.New("the server's message is too large")
	errMalformed  = errors.New("the server's message cannot be read")
)

// A ServerError says that a server could not be reached or started, or failed.
type ServerError struct {
	Server string
	Err    error
	Stderr string // the last lines of a server that the client started

	// MayHaveRun is set if the server may have run the failed call. Otherwise the server has certainly not run it.
	MayHaveRun bool
}

func (e *ServerError) Error() string {
	s := fmt.Sprintf("MCP server %q: %v", e.Server, e.Err)
	if e.Stderr != "" {
		s += "\nits stderr ended with:\n" + e.Stderr
	}
	return visible.Text(s) // the error may quote the server
}

func (e *ServerError) Unwrap() error { return e.Err }

// A CallError is an error that the server returned. Code is the JSON-RPC error code.
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
		msg = "no reason given; try other arguments, or do without it"
	}
	return fmt.Sprintf("MCP server %q refused %s: %s (code %d)", e.Server, e.Method, msg, e.Code)
}

// The JSON-RPC and MCP error codes that the client uses.
const (
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeURLRequired        = -32042 // the user must visit a page first
	codeRefused            = -1     // the user, or a limit of the client, refused
	codeUnsupportedVersion = -32022
)

func hasCode(err error, code int) bool {
	ce, ok := errors.AsType[*CallError](err)
	return ok && ce.Code == code
}

// An unreachedError means that the request cannot have reached the server, so that it may be sent again.
type unreachedError struct{ err error }

func (e *unreachedError) Error() string { return e.err.Error() }
func (e *unreachedError) Unwrap() error { return e.err }

func neverReached(err error) bool {
	_, ok := errors.AsType[*unreachedError](err)
	return ok
}

// An httpStatusError is an HTTP error whose body is not JSON-RPC.
type httpStatusError struct {
	code int
	body string
}

// Unwrap returns ErrLogin if the server requires credentials.
func (e *httpStatusError) Unwrap() error {
	if e.code == http.StatusUnauthorized {
		return ErrLogin
	}
	return nil
}

func (e *httpStatusError) Error() string {
	msg := fmt.Sprintf("HTTP status %d", e.code)
	switch e.code {
	case 401, 403:
		msg += "; the server requires other credentials: check Headers, or set OAuth"
	case 404:
		msg += "; check the URL"
	}
	if e.body != "" {
		msg += ": " + e.body
	}
	return msg
}

func clip(s string, limit int) string { return visible.Cut(s, limit, "…") }

func isStatus(err error, codes ...int) bool {
	s, ok := errors.AsType[*httpStatusError](err)
	return ok && slices.Contains(codes, s.code)
}
