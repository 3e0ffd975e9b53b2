package temporal

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Names that workers and senders of all versions share.
const (
	workflowName  = "kitbag.conversation"
	advanceName   = "kitbag.advance"
	interruptName = "kitbag.interrupt"
	wakeName      = "wake"
	pendingName   = "pending"
)

// maxHistory is the number of events after which a workflow is continued as new. Without signals, an iteration of the
// loop adds fewer than 100.
const maxHistory = 1500

// A conversation is the argument of the workflow of a session.
type conversation struct {
	Session   string        `json:"session"`
	Heartbeat time.Duration `json:"heartbeat"`
	WaitFor   time.Duration `json:"wait_for,omitempty"`

	// Set when the workflow is continued as new.
	Seq       int64     `json:"seq,omitempty"`    // the record after which the session waits for answers
	Expiry    time.Time `json:"expiry,omitzero"`  // when the wait ends
	Cancelled bool      `json:"cancel,omitempty"` // the workflow was cancelled, and the session interrupted
}

// progress is the result of advancing a session.
type progress struct {
	Seq    int64          `json:"seq"` // the number of the last record
	Status session.Status `json:"status"`
	More   bool           `json:"more,omitempty"` // the worker stopped before the session was done; any worker can continue it
}

// An interruption is the argument of the activity that sends an [agent.Interrupt] to a session.
type interruption struct {
	Session string `json:"session"`
	ID      string `json:"id"`            // the id of the input
	Seq     int64  `json:"seq,omitempty"` // the number that the last record must have; 0 for any
}

// converse is the workflow that advances a session until there is nothing more to do; the next input starts it again. So
// a waiting session has no open workflow, unless a timer limits the wait.
func converse(ctx workflow.Context, c conversation) error {
	w := &workflowState{conversation: c, wakes: workflow.GetSignalChannel(ctx, wakeName)}
	if err := workflow.SetQueryHandler(ctx, pendingName, func() (progress, error) { return w.at, nil }); err != nil {
		return err
	}
	for {
		for w.wakes.ReceiveAsync(nil) { // all signals that have arrived, since one activity reads all inputs
		}
		if err := w.advance(ctx); err != nil {
			return err
		}
		unfinished := w.at.More || w.wakes.Len() > 0
		waits := w.WaitFor > 0 && w.at.Status == session.StatusWaiting
		if !unfinished && !waits {
			return nil
		}
		if !unfinished && !workflow.Now(ctx).Before(w.Expiry) { // no answer has arrived in time
			err := w.interrupt(ctx, interruption{Session: w.Session, ID: fmt.Sprintf("expired-%d", w.Seq), Seq: w.Seq})
			if err != nil {
				return err
			}
			unfinished = true // the interrupt has to be stored
		}
		if workflow.GetInfo(ctx).GetCurrentHistoryLength() > maxHistory {
			return workflow.NewContinueAsNewError(ctx, workflowName, w.conversation)
		}
		if !unfinished {
			if err := w.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// workflowState is the state of the workflow converse.
type workflowState struct {
	conversation
	at    progress // after the last activity
	wakes workflow.ReceiveChannel
}

// advance runs the activity. If the workflow is cancelled in the meantime, advance interrupts the session.
func (w *workflowState) advance(ctx workflow.Context) error {
	// The activity continues after a cancellation, because it stores the result of the interrupt.
	disconnected, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	run := workflow.ExecuteActivity(workflow.WithActivityOptions(disconnected, workflow.ActivityOptions{
		StartToCloseTimeout: 24 * time.Hour, // a slice is shorter, but a single step may be long
		HeartbeatTimeout:    w.Heartbeat,
		RetryPolicy:         retries(w.Heartbeat),
	}), advanceName, w.Session)
	var err error
	sel := workflow.NewSelector(disconnected).AddFuture(run, func(workflow.Future) {})
	w.onCancel(ctx, sel, &err)
	sel.Select(disconnected)
	if err != nil {
		return err
	}
	var at progress // not w.at, since decoding does not reset omitted members
	if err := run.Get(disconnected, &at); err != nil {
		return err
	}
	w.at = at
	if w.WaitFor > 0 && (w.at.Seq != w.Seq || w.Expiry.IsZero()) {
		w.Seq, w.Expiry = w.at.Seq, workflow.Now(ctx).Add(w.WaitFor)
	}
	return nil
}

// wait returns when the session was woken or interrupted, or at w.Expiry.
func (w *workflowState) wait(ctx workflow.Context) error {
	disconnected, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel() // ends the timer
	var err error
	sel := workflow.NewSelector(disconnected)
	sel.AddReceive(w.wakes, func(c workflow.ReceiveChannel, _ bool) { c.Receive(disconnected, nil) })
	sel.AddFuture(workflow.NewTimer(disconnected, w.Expiry.Sub(workflow.Now(ctx))), func(workflow.Future) {})
	w.onCancel(ctx, sel, &err)
	sel.Select(disconnected)
	return err
}

// onCancel makes sel interrupt the session when the workflow is cancelled. If that fails, it sets *err.
func (w *workflowState) onCancel(ctx workflow.Context, sel workflow.Selector, err *error) {
	if w.Cancelled { // the session was interrupted before
		return
	}
	sel.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {
		w.Cancelled = true
		*err = w.interrupt(ctx, interruption{Session: w.Session, ID: "cancel-" + workflow.GetInfo(ctx).WorkflowExecution.RunID})
	})
}

func (w *workflowState) interrupt(ctx workflow.Context, arg interruption) error {
	disconnected, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	disconnected = workflow.WithActivityOptions(disconnected, workflow.ActivityOptions{StartToCloseTimeout: 5 * time.Minute, RetryPolicy: retries(w.Heartbeat)})
	return workflow.ExecuteActivity(disconnected, interruptName, arg).Get(disconnected, nil)
}

// retries returns a policy without a maximum number of attempts: another worker may succeed later.
func retries(heartbeat time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: heartbeat / 8, BackoffCoefficient: 1.2, MaximumInterval: heartbeat / 4}
}
