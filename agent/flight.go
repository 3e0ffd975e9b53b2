package agent

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// A flight is a running call of a tool, of the model or of Config.Approve. It has one goroutine, which uses only its own
// copies of data and sends reports to the run's inbox. The fields belong to the run's goroutine unless stated otherwise.
// A flight without a task has no goroutine: it is only the sender of the reports of a timer or callback.
type flight struct {
	task       task
	stage      stage
	held       []report // received in stage launched; commit handles them
	ended      bool     // the last report has arrived
	background bool     // a background call: committed but not waited for
	cancel     context.CancelFunc

	cause atomic.Pointer[error] // why the flight was cancelled; nil if it was not

	// Written by the flight's goroutine before the last report:
	panicked any
	returned bool // the function returned, instead of ending the goroutine
}

// A stage is the progress of a flight.
type stage int

const (
	launched  stage = iota // runs; its reports are held, since the call might be dropped
	committed              // the call is part of the conversation
	finished               // has ended, or its reports are dropped
)

// A task handles the reports of a flight: a [toolCall], a [modelCall] or a [userQuestion].
type task interface {
	onReport(r *run, rep report) error // any report but the last
	onEnd(r *run) error
}

// A report is sent by a flight. In the last report of a flight, only the field from is set.
type report struct {
	from  *flight     // nil if the call is unknown: then only do is set
	chunk *tool.Chunk // of a tool
	piece model.Chunk // of the model

	do     func() error // called on the run's goroutine, which owns the State; an error ends the run
	answer chan error   // gets the result of do
}

func (rep *report) isLast() bool {
	return rep.chunk == nil && rep.piece == nil && rep.do == nil
}

// inboxSize is the number of reports that may wait, so that a flight need not wait for the consumer at each report.
const inboxSize = 16

// An inbox is the queue of reports for the run.
type inbox struct {
	reports    chan report
	closed     chan struct{} // closed when reports are no longer read
	limitTimer *flight       // sends the report that [Limits].Time has passed; in stage finished from then on
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

// ask has do called on the run's goroutine, and returns the result of do, or ErrInterrupted if the run ends first. The run
// may end in the middle of do: an event may make the consumer panic, or end the goroutine as t.Fatal does.
func (in *inbox) ask(from *flight, do func() error) error {
	return in.askUntil(context.Background(), from, do)
}

// askUntil is like ask, but stops waiting when ctx ends.
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

// wake makes a waiting receive return. It has no effect if the run has ended.
func (in *inbox) wake() { _ = in.ask(&flight{stage: committed}, func() error { return nil }) }

// launch adds a flight to the flights of the run and calls work on the flight's goroutine.
func (r *run) launch(f *flight, work func()) {
	r.flights = append(r.flights, f)
	r.startGoroutine(f, work)
}

// startGoroutine calls work on a new goroutine, and sends the last report of f when work ends.
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

// receive waits for a report and handles it.
func (r *run) receive() { r.fail(r.handle(<-r.inbox.reports)) }

// handle handles a report. Reports of a flight in stage launched are held. Reports of a finished flight, such as
// from a goroutine that a tool left running, are dropped.
func (r *run) handle(rep report) error {
	f := rep.from
	if f == nil && r.early.mayDrop() { // the report may be of an early call; all early calls are committed or dropped together
		f = &r.early.calls[0].flight
	}
	if rep.isLast() {
		f.ended = true
	}
	switch {
	case f != nil && f.stage == launched:
		f.held = append(f.held, rep)
		return nil
	case rep.do != nil && f != nil && f.stage == finished:
		rep.answer <- ErrInterrupted
		return nil
	case rep.do != nil:
		err := rep.do()
		rep.answer <- err
		return err
	case f.stage == finished:
		return nil
	case !rep.isLast():
		return f.task.onReport(r, rep)
	}
	f.stage = finished
	if !f.background { // stopBackground and keepBackgroundResults still need a background call
		r.removeFlight(f)
	}
	return f.task.onEnd(r)
}

func (r *run) removeFlight(f *flight) {
	r.flights = slices.DeleteFunc(r.flights, func(other *flight) bool { return other == f })
}

// commit makes the call of f part of the conversation, and handles what it has reported so far.
func (r *run) commit(f *flight) error {
	f.stage = committed
	held := f.held
	f.held = nil
	var err error
	for _, rep := range held { // after an error too: the flight ends only when its last report is handled
		err = join(err, r.handle(rep))
	}
	return err
}

// drop cancels flights in stage launched, and waits for them.
func (r *run) drop(flights []*flight) {
	for _, f := range flights {
		f.stage = finished
		f.cancelWith(context.Canceled)
		for _, rep := range f.held {
			_ = r.handle(rep) // answers a report with do with ErrInterrupted, and drops other reports
		}
		f.held = nil
	}
	for _, f := range flights {
		r.await(f)
		r.removeFlight(f)
	}
}

// await receives reports, of all flights, until f has ended.
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

// fail records an error that ends the run, and cancels all calls except background calls, which the method end stops. If the
// run has not failed before, an error that only says that the run was cancelled is ignored.
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
