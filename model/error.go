package model

import (
	"fmt"
	"time"
)

// ErrorKind classifies the failure of a model call.
type ErrorKind string

// The kinds.
const (
	KindAuthentication ErrorKind = "authentication"   // no key, or a wrong one
	KindPermission     ErrorKind = "permission"       // the key may not do this
	KindRateLimit      ErrorKind = "rate_limit"       // too many requests, or quota exhausted
	KindInvalidRequest ErrorKind = "invalid_request"  // the server rejects the request
	KindContextTooLong ErrorKind = "context_too_long" // the conversation does not fit the window
	KindBadImage       ErrorKind = "bad_image"        // the server rejects an image of the request
	KindUpstream       ErrorKind = "upstream"         // the server failed, or its answer was invalid
	KindConnection     ErrorKind = "connection"       // the server was not reached, or the stream broke off
	KindUnknown        ErrorKind = "unknown"          // the status is not an error, such as a redirect
)

// An Error is a failed model call.
type Error struct {
	Kind       ErrorKind
	Status     int           // HTTP status, 0 if there was none
	RetryAfter time.Duration // the server's Retry-After, 0 if it sent none
	Message    string        // the server's message, or a description
	Err        error         // the cause, may be nil; the text includes it if Message is empty
}

func (e *Error) Error() string {
	s := "model call: " + string(e.Kind)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	switch {
	case e.Message != "":
		s += ": " + e.Message
	case e.Err != nil:
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case KindRateLimit, KindUpstream, KindConnection:
		return true
	}
	return false
}
