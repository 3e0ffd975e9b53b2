// Package wire sends the messages of a server to its client. Each transport has a [Responder]: [Lines] for
// stdio, [Events] for HTTP without sessions and for HTTP+SSE, and [Stream] for HTTP with sessions, whose client
// can reconnect. It knows neither the content of messages nor who the clients are.
package wire

import (
	"context"
	"errors"
	"sync/atomic"
)

// A Responder sends the messages of a request, or messages that belong to no request.
type Responder interface {
	// Send writes a message. It blocks while the client does not read, and fails if that takes too long.
	Send(message []byte) error
	// Streams reports whether more than one message can be sent.
	Streams() bool
}

// ErrEnded is the error of a message that is sent after the answer.
var ErrEnded = errors.New("the request has ended")

// A Budget limits what several clients use together.
type Budget struct {
	used atomic.Int64
	Max  atomic.Int64
	More func(context.Context) // tries to get a larger Max; nil if Max does not change
}

// Take adds n and returns true, unless the budget is used up.
func (b *Budget) Take(n int64) bool {
	if b.used.Add(n) > b.Max.Load() {
		b.used.Add(-n)
		return false
	}
	return true
}

// Add adds n, which may be negative, whether or not the budget is used up.
func (b *Budget) Add(n int64) { b.used.Add(n) }

// Used returns how much is used.
func (b *Budget) Used() int64 { return b.used.Load() }

// Full reports whether nothing is left.
func (b *Budget) Full() bool { return b.used.Load() >= b.Max.Load() }

// over reports whether more than Max is used.
func (b *Budget) over() bool { return b.used.Load() > b.Max.Load() }
