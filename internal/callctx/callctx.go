// Package callctx has what the context of a tool call carries, for the packages
// that put it there and those that look for it. The keys are types of their own
// here, so that one context can answer for several of them.
package callctx

import (
	"context"
	"sync/atomic"
)

// Keys of a context.
type (
	Host  struct{} // a host.Host, of package tool/host
	Turns struct{} // a *Waiting
)

// Waiting is for a goroutine that waits for a tool, and owns what others need
// meanwhile.
type Waiting struct {
	Turns chan func() // to be called by that goroutine; they come until the call ends
	taken atomic.Bool
}

// TakeTurns returns the functions to call while waiting for a tool, the first time
// that it is called, and nil from then on: what the tool waits for with the same
// context it does on a goroutine of its own.
func TakeTurns(ctx context.Context) <-chan func() {
	w, ok := ctx.Value(Turns{}).(*Waiting)
	if !ok || w.taken.Swap(true) {
		return nil
	}
	return w.Turns
}

// A Waiter is a tool that may say that whoever ranges over its call waits there for
// all of it, on one goroutine, and is handed the chunks after that.
type Waiter interface {
	Waits() bool
}
