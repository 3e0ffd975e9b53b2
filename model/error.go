package model

import (
	"fmt"
	"time"
)

// ErrorKind classifies the failure of a model call.
type ErrorKind string

// The kinds.
const (
	ErrAuthentication ErrorKind = "authentication"   // no key, or a wrong one
	ErrPermission     ErrorKind = "permission"       // the key may not do this
	ErrRateLimit      ErrorKind = "rate_limit"       // too many requests, or no quota left
	ErrInvalidRequest ErrorKind = "invalid_request"  // the server rejects the request
	ErrContextTooLong ErrorKind = "context_too_long" // the conversation does not fit the window
	ErrBadImage       ErrorKind = "bad_image"        // the server rejects an image of the request
	ErrUpstream       ErrorKind = "upstream"         // the server failed, or its answer was invalid
	ErrConnection     ErrorKind = "connection"       // the server was not reached, or the stream broke off
	ErrUnknown        ErrorKind = "unknown"
)

// An Error is a failed model call.
type Error struct {
	Kind       ErrorKind
	Status     int           // HTTP status, 0 if there was none
	RetryAfter time.Duration // the server's Retry-After, 0 if it sent none
	Message    string        // the server's message, or a description
	Err        error         // the cause, may be nil
}

func (e *Error) Error() string {
	s := "model call: " + string(e.Kind)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case ErrRateLimit, ErrUpstream, ErrConnection:
		return true
	}
	return false
}
