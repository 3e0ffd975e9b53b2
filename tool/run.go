package tool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
)

// A Handler runs one call of a tool. Its result follows the rules of [Tool.Call].
type Handler func(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error]

// A Middleware wraps a Handler. It sees every call of every tool it is installed for, streaming or not, after
// validation and permission. A call whose arguments it changes is judged again before it runs ([Call.Judge]). It
// must range over the next handler's sequence on the goroutine that ranges over its own.
type Middleware func(next Handler) Handler

// With returns t with middleware of its own, such as a timeout or a limit shared with other tools. The capabilities of t
// stay. Middleware passed to [Run] wraps this middleware.
func With(t Tool, middleware ...Middleware) Tool {
	return &withMiddleware{Tool: t, middleware: middleware}
}

type withMiddleware struct {
	Tool
	middleware []Middleware
}

func (w *withMiddleware) Unwrap() Tool { return w.Tool }

func (w *withMiddleware) Call(ctx context.Context, call Call) iter.Seq2[Chunk, error] {
	return chain(withJudgement(call, callIsolated), w.middleware)(ctx, w.Tool, call)
}

// chain puts middleware around a handler, the first outermost.
func chain(h Handler, middleware []Middleware) Handler {
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	return h
}

// Run runs an allowed call with valid arguments through the middleware, the first being the outermost. If the tool fails
// or panics, the last chunk is Failed and tells the model why. The sequence yields an error only if the tool's error
// wraps [ErrAbort], or if the context ended; then the error wraps the context's cause.
//
// The tool runs on its own goroutine. After the context has ended or the consumer has stopped, the tool has 200 ms to
// end. Chunks that it yields in these 200 ms are passed on unless the consumer has stopped. A tool that takes longer
// is abandoned: its goroutine continues until the function returns, and its chunks are dropped.
func Run(ctx context.Context, t Tool, call Call, middleware ...Middleware) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		d := delivery{ctx: ctx, call: call, yield: yield}
		handle := Handler(callIsolated)
		if len(middleware) > 0 { // callIsolated alone recovers the panics of the tool
			defer d.recoverMiddleware()
			handle = chain(withJudgement(call, callIsolated), middleware)
		}
		// A range loop over the sequence would allocate three times.
		handle(ctx, t, call)(d.pass)
	}
}

// A delivery passes chunks from the middleware to the consumer.
type delivery struct {
	ctx    context.Context
	call   Call
	yield  func(Chunk, error) bool
	ended  bool // an error was passed on, or the consumer has stopped
	inBody bool // the consumer's loop body is running
}

// pass is the yield function of the outermost middleware.
func (d *delivery) pass(c Chunk, err error) bool {
	if d.ended { // panic as a range loop does
		panic("middleware continued after yield returned false")
	}
	p := newPiece(c, err) // checks the block, which middleware may have made
	if c, err = p.chunk, p.err; err != nil {
		d.ended = true
		c, err = Failure(err.Error()), runEndingError(d.ctx, d.call, err)
		if err != nil { // the consumer gets the error alone
			c = Chunk{}
		}
	}
	d.inBody = true
	if !d.yield(c, err) {
		d.ended = true
	}
	d.inBody = false
	return !d.ended
}

// recoverMiddleware turns a panic of middleware into a failure. It does not recover a panic of the consumer's loop body.
func (d *delivery) recoverMiddleware() {
	if d.inBody {
		return
	}
	if v := recover(); v != nil {
		failure := Failure(logPanic(d.ctx, d.call, v).Error())
		if !d.ended {
			d.yield(failure, nil)
		}
	}
}

// runEndingError returns the error that ends the run, or nil if err is for the model. Once the
// context has ended every error ends the run, and wraps the context's cause.
func runEndingError(ctx context.Context, call Call, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(err, ErrAbort):
		return err
	case cause == nil:
		return nil
	case errors.Is(err, cause):
		return fmt.Errorf("tool %s: %w", call.Name, err)
	default:
		return fmt.Errorf("tool %s: %w (%w)", call.Name, err, cause)
	}
}

// logPanic logs the value v of a panic with the stack, and returns the error for the model.
func logPanic(ctx context.Context, call Call, v any) error {
	slog.ErrorContext(ctx, "tool panicked", "tool", call.Name, "call", call.ID, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("tool %s failed unexpectedly (panic: %s); this is a bug in the tool: try other arguments or another tool", call.Name, visible.Cut(fmt.Sprint(v), 300, "…"))
}

// Failure returns a chunk that makes the result an error, with a text for the model. An empty text is replaced by one that
// says that no reason was given.
func Failure(text string) Chunk {
	if text == "" {
		text = "the tool failed without saying why"
	}
	return Chunk{Block: &message.Text{Text: text}, Failed: true}
}
