// Package callctx has the context of a tool call whose caller waits for it on the
// goroutine that owns what the call may need, as a run of an agent does.
//
// A [context.WithTimeout] for each call would be registered with the run's context
// and set a timer, which wakes up a thread. Most tools never look whether they are to
// end. For those the goroutine that waits watches over both: it has nothing else to
// do.
package callctx

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Host is the key of a host.Host, of package tool/host. It is here so that a context of
// another package can answer for it.
type Host struct{}

// A Context is that of a call. Its caller fills it in and must call End
// when the call is over. It does what one of the standard library does; it only costs that,
// too, once somebody has asked for Done. Until then Err finds out by itself what time it
// is. The methods of context.Context, and End, are safe for concurrent use.
type Context struct {
	context.Context             // of the caller
	Turns           chan func() // to be called by the goroutine that waits; nil if it takes none

	clock    *Clock // nil if the call may take as long as it likes
	deadline time.Time
	watch    atomic.Int32

	mu    sync.Mutex
	err   error
	done  chan struct{} // made when somebody asks for it, and with it:
	above func() bool   // stops following the caller
	timer *time.Timer
}

// States of Context.watch.
const (
	unwatched  int32 = iota
	watched          // by the first Watch
	wasWatched       // and never is again
)

// self tells a Context, or what embeds it, from what is made of it: only who was given
// the very context of the call is the one that waits for it.
func (c *Context) self() *Context { return c }

// Limit sets the time that the call may take from now on. It is called once at most, by the
// caller, before the call begins, and lends the clock to it.
func (c *Context) Limit(clock *Clock, d time.Duration) {
	c.clock, c.deadline = clock, time.Now().Add(d)
	clock.set(c.deadline, d)
}

// Deadline is for [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	above, limited := c.Context.Deadline()
	if c.clock == nil || limited && above.Before(c.deadline) {
		return above, limited
	}
	return c.deadline, true
}

// Done is for [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	if c.err != nil {
		close(c.done)
		return c.done
	}
	// From here on it is an ordinary context, with a timer of its own.
	c.above = context.AfterFunc(c.Context, func() { c.End(c.Context.Err()) })
	if c.clock != nil {
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.End(context.DeadlineExceeded) })
	}
	return c.done
}

// Err is for [context.Context].
func (c *Context) Err() error {
	if above := c.Context.Err(); above != nil {
		c.End(above)
	} else if c.clock != nil && !time.Now().Before(c.deadline) {
		c.End(context.DeadlineExceeded)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// End ends the context, unless it has ended, and stops what Done has set. The first error
// stays: it is what the standard library would say, Canceled or DeadlineExceeded.
func (c *Context) End(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done == nil {
		return
	}
	close(c.done)
	c.above()
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Clock returns the clock for the next call, after this one was limited and has ended: the same,
// unless something that the call left behind still waits with it, and is told now.
func (c *Context) Clock() *Clock {
	if c.watch.Swap(wasWatched) == watched {
		c.clock.timer.Reset(0)
		return new(Clock)
	}
	return c.clock
}

// A Watch is for a goroutine that waits for a tool: until the tool has ended, it
// receives from all channels and does what stands beside them. Then it calls Close.
type Watch struct {
	Turns <-chan func()    // call what comes
	Ended <-chan struct{}  // call Tell
	Late  <-chan time.Time // call IsOver

	c     *Context // nil if the context looks after itself
	grace time.Duration
	told  bool
}

// NewWatch begins to wait for a tool that is called with ctx, and that gets the
// grace to end once it was told to. Of those that wait with one [Context] only the first
// takes turns, ever: that is its caller. What the tool waits for itself, it does on
// a goroutine of its own, and one that it leaves behind must not come to be the first.
func NewWatch(ctx context.Context, grace time.Duration) Watch {
	own, ok := ctx.(interface{ self() *Context })
	if !ok {
		return Watch{Ended: ctx.Done(), grace: grace}
	}
	c := own.self()
	if c.Turns == nil && c.clock == nil || !c.watch.CompareAndSwap(unwatched, watched) {
		return Watch{Ended: ctx.Done(), grace: grace}
	}
	w := Watch{Turns: c.Turns, c: c, Ended: c.Context.Done(), grace: grace}
	if c.clock != nil {
		w.Late = c.clock.timer.C
	}
	return w
}

// Close gives back what the caller has lent.
func (w *Watch) Close() {
	if w.c != nil {
		w.c.watch.Store(wasWatched)
	}
}

// Tell tells the tool to end, because the caller is to.
func (w *Watch) Tell() {
	if w.c != nil {
		w.c.End(w.c.Context.Err())
	}
	w.Ended, w.Late, w.told = nil, time.After(w.grace), true
}

// IsOver reports whether the tool has had its grace and is not waited for any more.
// Otherwise its time may be up, and it is told.
func (w *Watch) IsOver() bool {
	if w.told {
		return true
	}
	// The clock first, which must know in any case that it has fired. The call may have been over
	// when it left the tool behind, or be so by now: whoever ends it does that before Clock.
	if w.c.clock.isEarly(w.c.deadline) && w.c.Err() == nil {
		return false
	}
	w.c.End(context.DeadlineExceeded)
	w.Tell()
	return false
}

// A Clock is a timer for calls that are made one after the other. It belongs to the one
// it was lent to, and in between to who makes them. The zero Clock is ready. It is not set
// anew for each call: one that fires too early is set to what is left.
type Clock struct {
	timer *time.Timer
	fires time.Time // zero once it has
}

// set has the timer fire at due, which is d from now, unless it fires before.
func (c *Clock) set(due time.Time, d time.Duration) {
	switch {
	case c.timer == nil:
		c.timer = time.NewTimer(d)
	case c.fires.IsZero() || due.Before(c.fires):
		c.timer.Reset(d)
	default:
		return
	}
	c.fires = due
}

// isEarly reports whether the timer has fired before due, for which it is set then.
func (c *Clock) isEarly(due time.Time) bool {
	c.fires = time.Time{}
	left := time.Until(due)
	if left <= 0 {
		return false
	}
	c.set(due, left)
	return true
}

// Stop stops the timer, when there are no more calls. A nil Clock has none.
func (c *Clock) Stop() {
	if c != nil && c.timer != nil {
		c.timer.Stop()
	}
}
