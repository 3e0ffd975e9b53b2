// Package tracecontext carries the W3C trace context of an MCP request, which is in the members traceparent,
// tracestate and baggage of its _meta, through a context.Context: from a server to the client that forwards the call, and
// to the modules for OpenTelemetry.
package tracecontext

import (
	"context"
	"encoding/json"
	"regexp"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// A Context is a trace context; the zero value means that there is none. Embedded in a struct, it encodes to members of a
// _meta.
type Context struct {
	Parent  string `json:"traceparent,omitempty"`
	State   string `json:"tracestate,omitempty"`
	Baggage string `json:"baggage,omitempty"`
}

type key struct{}

// With returns a context with c.
func With(ctx context.Context, c Context) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the trace context of ctx.
func From(ctx context.Context) Context {
	c, _ := ctx.Value(key{}).(Context)
	return c
}

var (
	parent    = lazy.Regexp(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	reserved  = lazy.Regexp(`^ff|-0+-`) // parts that the W3C's text calls invalid in a parent
	printable = lazy.Regexp(`^[ -~]+$`)
)

// UnmarshalJSON reads a _meta. Values that are not valid are left out: they must not make a call fail.
func (c *Context) UnmarshalJSON(data []byte) error {
	var m struct {
		Parent  any `json:"traceparent"`
		State   any `json:"tracestate"`
		Baggage any `json:"baggage"`
	}
	if json.Unmarshal(data, &m) != nil {
		return nil
	}
	c.Baggage = valid(printable, 8192, m.Baggage)
	if c.Parent = valid(parent, 55, m.Parent); reserved().MatchString(c.Parent) {
		c.Parent = ""
	}
	if c.Parent != "" { // a tracestate without a traceparent is not valid
		c.State = valid(printable, 512, m.State)
	}
	return nil
}

// valid returns v if it is a string of at most limit bytes that matches, otherwise "". The limits are those of the W3C's
// texts: longer values could be used to flood the servers behind a gateway.
func valid(re func() *regexp.Regexp, limit int, v any) string {
	if s, ok := v.(string); ok && len(s) <= limit && re().MatchString(s) {
		return s
	}
	return ""
}
