// Package again reports the retries of a request to a model. The function that receives the reports is in the context
// of the request.
package again

import (
	"context"
	"time"
)

// A Func is called before a request is sent again, with the number of the failed try, counted from 1, the wait until the
// next try, and the failure. It is also called before a request waits for a rate limit, with the try 0.
type Func func(try int, wait time.Duration, err error)

type key struct{}

// With returns a context in which f replaces the Func of ctx.
func With(ctx context.Context, f Func) context.Context { return context.WithValue(ctx, key{}, f) }

// Notify calls the Func in ctx, if there is one.
func Notify(ctx context.Context, try int, wait time.Duration, err error) {
	if f, _ := ctx.Value(key{}).(Func); f != nil {
		f(try, wait, err)
	}
}
