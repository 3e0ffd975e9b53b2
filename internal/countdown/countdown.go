// Package countdown tests that work which polls its context ends at whichever poll the context is cancelled.
package countdown

import "context"

// A Context is cancelled once Err has been called Left times; Done is not affected. It is for one goroutine.
type Context struct {
	context.Context
	Left int // negative once it is cancelled
}

// Err implements [context.Context].
func (c *Context) Err() error {
	if c.Left--; c.Left < 0 {
		return context.Canceled
	}
	return nil
}
