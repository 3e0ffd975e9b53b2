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

// A flight is a running call of a tool or of the model. It has one goroutine, which uses only its own copies of data
// and sends reports to the run's inbox. The fields belong to the run's goroutine unless stated otherwise.
type flight struct {
	task       task
	stage      stage
	held       []report // received in stage launched; commit handles them
	ended      bool     // its last report has arrived
	background bool     // committed but not waited for: a background call
	cancel     context.CancelFunc

	cause atomic.Pointer[error] // why it was cancelled; nil if it was not

	// Written by its goroutine before the last report:
	panicked any
	returned bool // the function returned, instead of ending the goroutine
}

// A stage is the progress of a flight.
type stage int

const (
	launched  stage = iota // it runs; nothing of it is emitted yet, since its call might be dropped
	committed              // its call is part of the conversation
	finished               // it has ended, or its reports are dropped
)

// A task handles the reports of a flight: a [toolCall] or a [modelCall].
type task interface {
	onReport(r *run, rep report) error // any report but the last
	onEnd(r *run) error
}

// A report is sent by a flight. In the last report of a flight, only the field from is set.
type report struct {
	from  *flight     // nil if the call is unknown
	chunk *tool.Chunk // of a tool
	piece model.Chunk // of the model

	do     func() error // called on the run's goroutine, which owns the State; an error ends the run
	answer chan error   // gets what do returned
}

func (rep *report) isLast() bool {
	return rep.chunk == nil && rep.piece == nil && rep.do == nil
}

// inboxSize is the number of reports that may wait, so that a model is not blocked by each event.
const inboxSize = 16

// An inbox is the queue of reports for the run.
type inbox struct {
	reports chan report
	closed  chan struct{} // closed when reports are no longer read
	timer   *flight       // reports that [Limits].Time has passed, and is in stage finished from then on
}

// put adds a report. It returns false if the inbox is closed.
func (in *inbox) put(rep report) bool {
	select {
	case in.reports <- rep:
		return true
	case <-in.closed:
		return false
	}
}

// ask calls do on the run's goroutine, and returns its result. The run may end in the middle of do: an event may make
// the consumer panic, or end its goroutine as t.Fatal does.
func (in *inbox) ask(from *flight, do func() error) error {
	return in.askUntil(context.Background(), from, do)
}

// askUntil is ask for a caller that stops waiting when ctx ends.
func (in *inbox) askUntil(ctx context.Context, from *flight, do func() error) error {
	rep := report{from: from, do: do, answer: make(chan error, 1)}
	if !in.put(rep) {
		return ErrInterrupted
	}
	select {
	case err := <-rep.answer:
		return err
	case <-in.closed:
		return ErrInterrupted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wake makes the run's goroutine check what to do next.
func (in *inbox) wake() { _ = in.ask(&flight{stage: committed}, func() error { return nil }) }

// launch starts a flight; every call starts this way. work runs on the flight's goroutine.
func (r *run) launch(f *flight, work func()) {
	r.flights = append(r.flights, f)
	r.startGoroutine(f, work)
}

// startGoroutine calls work on a new goroutine, and reports when it ends.
func (r *run) startGoroutine(f *flight, work func()) {
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

func (r *run) receive() { r.fail(r.handle(<-r.inbox.reports)) }

// handle handles a report. Reports of a flight that is not committed are held. Reports of
// a finished one, such as from a goroutine that a tool left running, are dropped.
func (r *run) handle(rep report) error {
	f := rep.from
	if f == nil && r.early.mayDrop() {
		f = &r.early.calls[0].flight // the report may be of an early call, and those are committed or dropped together
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

// forget removes a flight that needs no more handling.
func (r *run) forget(f *flight) {
	r.flights = slices.DeleteFunc(r.flights, func(other *flight) bool { return other == f })
}

// commit makes the call of f part of the conversation, and handles what it has reported so far.
func (r *run) commit(f *flight) error {
	f.stage = committed
	held := f.held
	f.held = nil
	var err error
	for _, rep := range held { // after an error too: the last one may end the flight
		err = join(err, r.handle(rep))
	}
	return err
}

// drop cancels flights that are not committed, and waits for them. Their
// reports with a do are answered with ErrInterrupted.
func (r *run) drop(flights []*flight) {
	for _, f := range flights {
		f.stage = finished
		f.cancelWith(context.Canceled)
		for _, rep := range f.held {
			_ = r.handle(rep) // answers a do with ErrInterrupted; drops other reports
		}
		f.held = nil
	}
	for _, f := range flights {
		r.await(f)
		r.forget(f)
	}
}

func (r *run) await(f *flight) {
	for !f.ended {
		r.receive()
	}
}

// cancelWith cancels a flight, unless it is already cancelled. Any goroutine may call it.
func (f *flight) cancelWith(cause error) {
	if f.cause.CompareAndSwap(nil, &cause) {
		f.cancel()
	}
}

// cancelCause returns the cause with which the flight was cancelled, nil if it was not.
func (f *flight) cancelCause() error {
	if cause := f.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// cancelStepCalls is called after a step has panicked. It cancels the flights of the step, except
// background calls, and waits until they have ended.
func (r *run) cancelStepCalls() {
	r.dropEarly()
	for _, f := range slices.Clone(r.flights) {
		if f.background {
			continue
		}
		f.cancelWith(context.Canceled)
		if f.stage == launched {
			r.fail(r.commit(f))
		}
		r.await(f)
	}
}

// fail records an error that ends the run. Calls are cancelled; background calls are
// stopped last. An error that only says that the run was cancelled is ignored.
func (r *run) fail(err error) {
	if cause := r.ctx.Err(); err == nil || r.failed == nil && cause != nil && errors.Is(err, cause) {
		return
	}
	r.failed = join(r.failed, err)
	for _, f := range r.flights {
		if !f.background {
			f.cancelWith(context.Canceled)
		}
	}
}

// repanic panics on the run's goroutine, or ends it, if the flight's function did so on the flight's goroutine.
func (f *flight) repanic() {
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
	run    *run // only for its inbox
	call   *openCall
	id     string    // the call's id; in a sub-agent after the ids of the outer calls: call_1/call_2
	parent *toolCall // the outer call that the sub-agent works for; nil if there is none

	tool    tool.Tool
	req     tool.Call
	timeout time.Duration
	link    *subLink // to the sub-agent; nil for other tools

	// If it started before the model's answer was complete:
	raw      string               // the arguments, as the model sent them
	begun    time.Time            // when it started
	decision *permission.Decision // nil after it was used

	// If it may run in the background:
	backgroundAfter time.Duration  // after this time it continues in the background; negative for never
	timer           *time.Timer    // fires after backgroundAfter
	unbind          func() bool    // detaches it from the step's context
	done            chan struct{}  // closed when the call is finished
	tail            string         // the end of its output
	redactor        *redact.Stream // of tail

	// The result, written before the last report:
	res *message.ToolResult
	err error // wraps tool.ErrAbort
}

type callKey struct{}

// callIn returns the call that ctx was created for; nil if ctx is not that of one call.
func callIn(ctx context.Context) *toolCall {
	tc, _ := ctx.Value(callKey{}).(*toolCall)
	return tc
}
