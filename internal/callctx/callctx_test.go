package callctx_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/internal/callctx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const grace = time.Second

// call makes a call of a tool with a context of ours, as tool.Run and an agent do
// together, and reports whether the tool ended.
func call(parent context.Context, clock **callctx.Clock, limit time.Duration, tool func(context.Context)) (ended bool) {
	ctx := &callctx.Context{Context: parent}
	ctx.Limit(*clock, limit)
	defer func() {
		ctx.End(context.Canceled)
		*clock = ctx.Clock()
	}()
	return wait(ctx, tool)
}

// callStandard is call with a context of the standard library.
func callStandard(parent context.Context, _ **callctx.Clock, limit time.Duration, tool func(context.Context)) (ended bool) {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	return wait(ctx, tool)
}

// wait waits for a tool as package tool does.
func wait(ctx context.Context, tool func(context.Context)) (ended bool) {
	w := callctx.NewWatch(ctx, grace)
	defer w.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tool(ctx)
	}()
	for {
		select {
		case <-done:
			return true
		case turn := <-w.Turns:
			turn()
		case <-w.Ended:
			w.Tell()
		case <-w.Late:
			if w.IsOver() {
				return false
			}
		}
	}
}

var errStop = errors.New("somebody stopped it")

// tools do what a tool may do with its context, and log what they see of it.
var tools = map[string]func(context.Context, func(string, ...any)){
	"quick": func(ctx context.Context, log func(string, ...any)) { log("%v", ctx.Err()) },
	"deadline": func(ctx context.Context, log func(string, ...any)) {
		d, ok := ctx.Deadline()
		log("%v %v", time.Until(d), ok)
	},
	"obeys": func(ctx context.Context, log func(string, ...any)) {
		<-ctx.Done()
		log("%v, %v", ctx.Err(), context.Cause(ctx))
	},
	"polls": func(ctx context.Context, log func(string, ...any)) {
		for ctx.Err() == nil {
			time.Sleep(700 * time.Microsecond)
		}
		log("%v", ctx.Err())
	},
	"stays": func(ctx context.Context, log func(string, ...any)) {
		time.Sleep(time.Hour)
		log("%v", ctx.Err())
	},
	"has children": func(ctx context.Context, log func(string, ...any)) {
		longer, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		shorter, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		defer cancel()
		<-shorter.Done()
		log("%v", shorter.Err())
		<-longer.Done()
		log("%v, %v", longer.Err(), context.Cause(longer))
	},
	"hangs on": func(ctx context.Context, log func(string, ...any)) {
		context.AfterFunc(ctx, func() { log("after %v", ctx.Err()) })
	},
	"waits itself": func(ctx context.Context, log func(string, ...any)) {
		log("%v", wait(ctx, func(ctx context.Context) { <-ctx.Done() }))
	},
}

// parents are what the context of a call may be below.
var parents = map[string]func() (context.Context, func()){
	"nothing above": func() (context.Context, func()) { return context.Background(), func() {} },
	"cancelled at 1.5 s": func() (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(1500*time.Millisecond, func() { cancel(errStop) })
		return ctx, func() { cancel(nil) }
	},
	"ends at 2.5 s": func() (context.Context, func()) {
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		return ctx, cancel
	},
}

// TestAsTheStandardOne holds that a tool can tell no difference to a context of
// [context.WithTimeout], in calls one after the other that share a clock.
func TestAsTheStandardOne(t *testing.T) {
	for toolName, tool := range tools {
		for parentName, parent := range parents {
			for _, limits := range [][]time.Duration{{1, 1}, {3, 1, 2}, {1, 5, 1}} {
				var said [2]strings.Builder
				for i, call := range []func(context.Context, **callctx.Clock, time.Duration, func(context.Context)) bool{call, callStandard} {
					synctest.Test(t, func(t *testing.T) {
						began := time.Now()
						var mu sync.Mutex
						log := func(format string, args ...any) {
							mu.Lock()
							defer mu.Unlock()
							fmt.Fprintf(&said[i], "%v ", time.Since(began))
							fmt.Fprintf(&said[i], format+"\n", args...)
						}
						ctx, cancel := parent()
						clock := new(callctx.Clock)
						for _, limit := range limits {
							ended := call(ctx, &clock, limit*time.Second, func(ctx context.Context) { tool(ctx, log) })
							synctest.Wait()
							log("ended: %v", ended)
						}
						clock.Stop()
						time.Sleep(2 * time.Hour)
						cancel()
					})
				}
				if said[0].String() != said[1].String() {
					t.Errorf("%s, %s, limits %v:\nours:\n%s\nthe standard one:\n%s", toolName, parentName, limits, &said[0], &said[1])
				}
			}
		}
	}
}
