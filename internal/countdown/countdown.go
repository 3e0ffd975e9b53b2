// Package countdown is for tests of work that asks its context again and again: at whichever
// question that ends, the work must end too.
package countdown

import "context"

// A Context is cancelled once Err has been called Left times. Its Done says nothing of that.
// It is for one goroutine.
type Context struct {
	context.Context
	Left int // below zero afterwards
}

// Err is for [context.Context].
func (c *Context) Err() error {
	if c.Left--; c.Left < 0 {
		return context.Canceled
	}
	return nil
}
