// Package again tells those who want to know, through a context, that a request to a model is sent again.
package again

import (
	"context"
	"time"
)

// A Func is told of a request that is sent again: after which try, counted from 1, how long is waited
// before, and why.
type Func func(try int, wait time.Duration, err error)

type key struct{}

// From returns the Func in ctx, nil if there is none.
func From(ctx context.Context) Func {
	f, _ := ctx.Value(key{}).(Func)
	return f
}

// With returns a context in which f is told, in place of the Func that ctx has.
func With(ctx context.Context, f Func) context.Context { return context.WithValue(ctx, key{}, f) }

// Notify tells the Func in ctx.
func Notify(ctx context.Context, try int, wait time.Duration, err error) {
	if f := From(ctx); f != nil {
		f(try, wait, err)
	}
}
