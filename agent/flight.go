package agent

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
)

// A flight is a call, of a tool or of the model, that has started and not ended. It has one
// goroutine, which holds its own copies of what it needs and sends reports to the run's inbox.
// The fields are the run's own, unless they say otherwise.
type flight struct {
	task       task
	stage      stage
	held       []report // what came while it was launched
	ended      bool     // its last report has come
	background bool     // it is committed, and not waited for: a call in the background
	cancel     context.CancelFunc

	cause atomic.Pointer[error] // why it was cancelled; nil if it was not

	// Written by its goroutine before the last report:
	panicked any
	returned bool // the function did, instead of ending the goroutine
}

// A stage is how far a flight is.
type stage int

const (
	launched  stage = iota // it runs; nothing of it is emitted, since its call may not become part of the conversation
	committed              // its call is part of the conversation
	finished               // it has ended, or its reports are dropped from now on
)

// A task is what a flight does: a [toolCall] or a [modelCall].
type task interface {
	onReport(r *run, rep report) error // something came that is not the last
	onEnd(r *run) error
}

// A report is what a flight sends. The last one of a flight has none of the other fields.
type report struct {
	from  *flight     // nil if it cannot be known for which call
	chunk *tool.Chunk // of a tool
	piece model.Chunk // of the model

	do     func() error // is called by the run, which owns the State; an error ends the run
	answer chan error   // gets what do returned
}

func (rep *report) isLast() bool {
	return rep.chunk == nil && rep.piece == nil && rep.do == nil
}

// inboxSize is how many reports may wait, so that a model is not held up by each event.
const inboxSize = 16

// An inbox is where reports wait for the run.
type inbox struct {
	reports chan report
	closed  chan struct{} // closed when no one reads the reports any more
	timer   *flight       // reports when [Limits].Time has passed, and is finished then
}

// put adds a report. It returns false when no one will read it.
func (in *inbox) put(rep report) bool {
	select {
	case in.reports <- rep:
		return true
	case <-in.closed:
		return false
	}
}

// ask has the run's goroutine call do, and returns what do returns. The run may end in the
// middle of do: an event may make the consumer panic, or end its goroutine as
// t.Fatal does.
func (in *inbox) ask(from *flight, do func() error) error {
	rep := report{from: from, do: do, answer: make(chan error, 1)}
	if !in.put(rep) {
		return ErrInterrupted
	}
	select {
	case err := <-rep.answer:
		return err
	case <-in.closed:
		return ErrInterrupted
	}
}

// wake has the run's goroutine look at what is to be done next.
func (in *inbox) wake() { _ = in.ask(&flight{stage: committed}, func() error { return nil }) }

// launch starts a flight: there is no other way in which a call starts. work is called on the
// flight's goroutine.
func (r *run) launch(f *flight, work func()) {
	r.flights = append(r.flights, f)
	r.fly(f, work)
}

// fly calls work on the goroutine of a flight.
func (r *run) fly(f *flight, work func()) {
	in, cancel := &r.inbox, f.cancel
	r.cfg.Go(func() {
		defer func() {
			f.panicked = recover()
			cancel()
			in.put(report{from: f})
		}()
		work()
		f.returned = true
	})
}

// receive waits for a report and deals with it.
func (r *run) receive() { r.fail(r.handle(<-r.inbox.reports)) }

// handle deals with a report. Those of a flight that is not committed wait for that; those of
// a finished one come from what a call has left behind.
func (r *run) handle(rep report) error {
	f := rep.from
	if f == nil && r.early.isOpen() {
		f = &r.early.calls[0].flight // the early calls are committed or dropped together
	}
	switch {
	case f != nil && f.stage == launched:
		f.held, f.ended = append(f.held, rep), f.ended || rep.isLast()
		return nil
	case rep.do != nil && f != nil && f.stage == finished:
		rep.answer <- ErrInterrupted
		return nil
	case rep.do != nil:
		err := rep.do()
		rep.answer <- err
		return err
	case f.stage == finished:
		f.ended = f.ended || rep.isLast()
		return nil
	case !rep.isLast():
		return f.task.onReport(r, rep)
	}
	f.stage, f.ended = finished, true
	if !f.background {
		r.forget(f)
	}
	return f.task.onEnd(r)
}

// forget removes a flight about which nothing is to be done any more.
func (r *run) forget(f *flight) {
	r.flights = slices.DeleteFunc(r.flights, func(other *flight) bool { return other == f })
}

// commit makes the call of f part of the conversation, and handles what it has reported so far.
func (r *run) commit(f *flight) error {
	f.stage = committed
	held := f.held
	f.held = nil
	var err error
	for _, rep := range held { // all of them, as the last one is its end
		err = join(err, r.handle(rep))
	}
	return err
}

// drop gives up flights that are not committed: they are cancelled and waited for. Requests of
// their calls are refused.
func (r *run) drop(flights []*flight) {
	for _, f := range flights {
		f.stage = finished
		f.end(context.Canceled)
		for _, rep := range f.held {
			_ = r.handle(rep) // refuses its requests; other reports are dropped
		}
		f.held = nil
	}
	for _, f := range flights {
		r.await(f)
		r.forget(f)
	}
}

// await waits until f has ended.
func (r *run) await(f *flight) {
	for !f.ended {
		r.receive()
	}
}

// end cancels a flight, unless it was cancelled. Any goroutine may do that.
func (f *flight) end(cause error) {
	if f.cause.CompareAndSwap(nil, &cause) {
		f.cancel()
	}
}

// why returns the cause for which the flight was cancelled, nil if it was not.
func (f *flight) why() error {
	if cause := f.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// endFlights cancels all flights.
func (r *run) endFlights(cause error) {
	for _, f := range r.flights {
		f.end(cause)
	}
}

// endCalls cancels every flight that the step waits for, and waits for it: those of a step that
// panicked.
func (r *run) endCalls() {
	r.dropEarly()
	for _, f := range slices.Clone(r.flights) {
		if f.background {
			continue
		}
		f.end(context.Canceled)
		if f.stage == launched {
			r.fail(r.commit(f))
		}
		r.await(f)
	}
}

// fail keeps an error that ends the run. Its calls are cancelled; those in the background are
// stopped last. An error that is there because the run was cancelled does not count.
func (r *run) fail(err error) {
	if cause := r.ctx.Err(); err == nil || r.failed == nil && cause != nil && errors.Is(err, cause) {
		return
	}
	r.failed = join(r.failed, err)
	for _, f := range r.flights {
		if !f.background {
			f.end(context.Canceled)
		}
	}
}

// repeat ends the run's goroutine as that of a flight has ended, if its function did not return.
func (f *flight) repeat() {
	switch {
	case f.panicked != nil:
		panic(f.panicked)
	case !f.returned:
		runtime.Goexit()
	}
}

// A toolCall is the flight of a call of a tool.
type toolCall struct {
	flight
	run   *run // for its inbox; a flight may use nothing else of it
	call  *openCall
	id    string    // of the call, behind those of the calls that the run works for
	above *toolCall // the last of those

	tool    tool.Tool
	work    tool.Call
	timeout time.Duration
	nest    *nest // of a sub-agent

	// If it started before its answer was there:
	raw      string               // the arguments, as the model sent them
	decision *permission.Decision // nil when it was taken

	// If it may run in the background:
	patience time.Duration // how long it keeps the others waiting; negative if it may not
	timer    *time.Timer   // until then
	unbind   func() bool   // from the step
	done     chan struct{} // closed when the call is finished
	tail     string        // the end of what it says
	clean    *redact.Stream

	// What came of it, written before the last report:
	res *message.ToolResult
	err error // wraps tool.ErrAbort
}

type callKey struct{}

// callIn returns the call in whose context something comes up, nil where it could be several.
func callIn(ctx context.Context) *toolCall {
	tc, _ := ctx.Value(callKey{}).(*toolCall)
	return tc
}
