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
	ended      bool // the last report has arrived; further reports are dropped
	background bool // a background call, which the next steps do not wait for
	cancel     context.CancelFunc

	cause atomic.Pointer[error] // why the flight was cancelled; nil if it was not

	// Written by the flight's goroutine before the last report:
	panicked any
	returned bool // the function returned, instead of ending the goroutine
}

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
	limitTimer *flight       // sends the report that [Limits].Time has passed; ended from then on
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

// wake makes a waiting receive return. It has no effect if the run has ended.
func (in *inbox) wake() { _ = in.ask(new(flight), func() error { return nil }) }

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

// handle handles a report. Reports of a flight that has ended, such as from a goroutine that a tool left running, are
// dropped.
func (r *run) handle(rep report) error {
	f := rep.from
	switch {
	case rep.do != nil && f != nil && f.ended:
		rep.answer <- ErrInterrupted
		return nil
	case rep.do != nil:
		err := rep.do()
		rep.answer <- err
		return err
	case f.ended:
		return nil
	case !rep.isLast():
		return f.task.onReport(r, rep)
	}
	f.ended = true
	if !f.background { // stopBackground and keepBackgroundResults still need a background call
		r.removeFlight(f)
	}
	return f.task.onEnd(r)
}

func (r *run) removeFlight(f *flight) {
	r.flights = slices.DeleteFunc(r.flights, func(other *flight) bool { return other == f })
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
	for _, f := range slices.Clone(r.flights) {
		if f.background {
			continue
		}
		f.cancelWith(context.Canceled)
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
