package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

const (
	callWorkflowName = "kitbag.call"
	callActivityName = "kitbag.tool"
	abortType        = "Abort" // of the application error for a tool.ErrAbort

	maxPayload = 1536 << 10 // bytes; Temporal accepts 2 MB, including the fields around the payload
)

// On returns t with its calls made through another task queue, by a process that calls [Serve] with t, for example
// on a machine with a GPU or in another network. Approvals, limits, middleware and events are the same as for t. The
// returned tool works only in agents that [Engine.Work] runs.
//
// Each call is a workflow whose id contains the idempotency key. A worker that continues a session finds the call
// that is in progress, or its result, instead of making it again, whether or not t is idempotent. If the process
// that makes the call dies, the call is made again if t is idempotent ([tool.IdempotentChecker]); otherwise its outcome
// is unknown.
//
// The arguments and the result, of at most 1.5 MiB each, are in the history of the call's workflow; use a DataConverter
// that encrypts to hide them from those who can read the history. The result is not streamed. A sub-agent can be
// placed like any tool; a placed sub-agent has separate limits, and cannot ask for approval.
func On(queue string, t tool.Tool) tool.Tool { return &placedTool{t, queue} }

type placedTool struct {
	tool.Tool
	queue string
}

func (p *placedTool) Unwrap() tool.Tool { return p.Tool }

// CheckIdempotent returns true because a repeated call finds the workflow of the first one.
func (p *placedTool) CheckIdempotent(json.RawMessage) bool { return true }

// A remoteCall is the argument of the workflow and the activity of a call.
type remoteCall struct {
	Queue      string          `json:"queue"`
	Tool       string          `json:"tool"`
	ID         string          `json:"id"`
	Key        string          `json:"key"` // the idempotency key
	Input      json.RawMessage `json:"input"`
	Idempotent bool            `json:"idempotent,omitempty"`
	Heartbeat  time.Duration   `json:"heartbeat"`
}

// runKey is the key of the *engineRun in the context of a run.
type runKey struct{}

// An engineRun is a run of a session by an engine.
type engineRun struct {
	engine *Engine
	store  *runStore
}

// Call makes the call on the other queue.
func (p *placedTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		res, err := p.call(ctx, call)
		if err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		for i, blocks := range []message.Blocks{res.Blocks, res.ForUser} {
			for _, b := range blocks {
				if !yield(tool.Chunk{Block: b, ForUser: i == 1}, nil) {
					return
				}
			}
		}
		yield(tool.Chunk{Failed: res.Outcome == message.OutcomeError, Pinned: res.Pinned, Structured: res.Structured, Meta: res.Meta}, nil)
	}
}

func (p *placedTool) call(ctx context.Context, call tool.Call) (*message.ToolResult, error) {
	r, _ := ctx.Value(runKey{}).(*engineRun)
	switch {
	case r == nil || call.Key == "":
		return nil, fmt.Errorf("the tool %s is placed on the task queue %q; call it in a run of Engine.Work", call.Name, p.queue)
	case len(call.Input) > maxPayload:
		return nil, fmt.Errorf("the arguments have %d bytes; a placed tool accepts at most %d", len(call.Input), maxPayload)
	}
	e := r.engine
	in := remoteCall{Queue: p.queue, Tool: p.Info().Name, ID: call.ID, Key: call.Key, Input: call.Input, Heartbeat: e.cfg.Heartbeat}
	if c, ok := tool.As[tool.IdempotentChecker](p.Tool); ok {
		in.Idempotent = c.CheckIdempotent(call.Input)
	}
	id := e.cfg.Queue + "/call/" + call.Key
	run, err := e.cfg.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: e.cfg.Queue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE}, callWorkflowName, in)
	if err != nil {
		return nil, withRemedy(err)
	}
	res := &message.ToolResult{}
	if err = run.Get(ctx, res); err == nil {
		return res, nil
	}
	if ctx.Err() != nil {
		return nil, p.cancelCall(context.WithoutCancel(ctx), r, id)
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && app.Type() == abortType {
		return nil, fmt.Errorf("%w: %s", tool.ErrAbort, app.Message())
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_HEARTBEAT {
		return nil, fmt.Errorf("outcome unknown: the process that made the call on the task queue %q has died", p.queue)
	}
	return nil, err
}

// cancelCall cancels a call whose run was cancelled, and returns what has become of the call. A call whose session will
// continue on another worker is not cancelled.
func (p *placedTool) cancelCall(ctx context.Context, r *engineRun, id string) error {
	if _, stopErr := r.store.current(); stopErr != nil {
		return stopErr
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := r.engine.cfg.Client
	err := c.CancelWorkflow(ctx, id, "")
	if q, queueErr := c.DescribeTaskQueue(ctx, p.queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY); queueErr == nil && len(q.GetPollers()) == 0 {
		return fmt.Errorf("no worker polls the task queue %q; call temporal.Serve in a process", p.queue)
	}
	if err != nil {
		return fmt.Errorf("the call on the task queue %q continues: %w", p.queue, err)
	}
	return fmt.Errorf("the call on the task queue %q was cancelled", p.queue)
}

// makeCall is the workflow of a call, which may take up to a day.
func makeCall(ctx workflow.Context, in remoteCall) (json.RawMessage, error) {
	retry := retries(in.Heartbeat)
	if !in.Idempotent {
		retry.MaximumAttempts = 1
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: in.Queue, StartToCloseTimeout: 24 * time.Hour,
		HeartbeatTimeout: in.Heartbeat, RetryPolicy: retry, WaitForCancellation: true})
	var res json.RawMessage
	err := workflow.ExecuteActivity(ctx, callActivityName, in).Get(ctx, &res)
	return res, err
}

// Serve makes calls of tools that agents have placed on the task queue cfg.Queue ([On]), until ctx ends; then it
// waits for the calls in progress, at most for cfg.Drain. It uses Client, Queue and Drain of cfg, and Sessions as the
// maximum number of calls at a time. The agent's policy has judged the calls, and Serve does not judge them again: anyone
// who can write to the namespace can call the tools.
func Serve(ctx context.Context, cfg Config, tools ...tool.Tool) error {
	byName := map[string]tool.Tool{}
	for _, t := range tools {
		if err := tool.CheckCapabilities(t); err != nil {
			return fmt.Errorf("temporal: %w", err)
		}
		if p, ok := t.(*placedTool); ok { // agents and Serve may share a list of tools
			t = p.Tool
		}
		byName[t.Info().Name] = t
	}
	if err := cfg.check(); err != nil {
		return err
	}
	w := worker.New(cfg.Client, cfg.Queue, worker.Options{DisableWorkflowWorker: true, WorkerStopTimeout: cfg.Drain, MaxConcurrentActivityExecutionSize: cfg.Sessions})
	w.RegisterActivityWithOptions(func(ctx context.Context, in remoteCall) (*message.ToolResult, error) {
		return serveCall(ctx, byName[in.Tool], in)
	}, activity.RegisterOptions{Name: callActivityName})
	if err := w.Start(); err != nil {
		return fmt.Errorf("temporal: start a worker: %w", withRemedy(err))
	}
	<-ctx.Done()
	w.Stop()
	return nil
}

// serveCall makes a call of t, which is nil if this process does not serve the tool.
func serveCall(ctx context.Context, t tool.Tool, in remoteCall) (*message.ToolResult, error) {
	call := tool.Call{ID: in.ID, Name: in.Tool, Input: in.Input, Key: in.Key}
	res := tool.NewCollector(call)
	if t == nil {
		res.Add(tool.Failure(fmt.Sprintf("The task queue %q does not serve the tool %s.", in.Queue, in.Tool)))
		return res.Result(), nil
	}
	args, err := tool.Arguments(t, in.Input) // another version of the tool may have other arguments
	if err != nil {
		res.Add(tool.Failure(err.Error()))
		return res.Result(), nil
	}
	call.Input = args.JSON
	done := make(chan struct{})
	defer close(done)
	go sendHeartbeats(ctx, in.Heartbeat, done)
	for ch, err := range tool.Run(ctx, t, call) {
		switch {
		case errors.Is(err, tool.ErrAbort):
			return nil, temporal.NewNonRetryableApplicationError(err.Error(), abortType, nil)
		case err != nil:
			return nil, err
		}
		res.Add(ch)
	}
	data, err := json.Marshal(res.Result())
	if err != nil {
		return nil, err
	}
	if len(data) > maxPayload {
		res = tool.NewCollector(call)
		res.Add(tool.Failure(fmt.Sprintf("The call was made, but its result has %d bytes; a placed tool returns at most %d.", len(data), maxPayload)))
	}
	return res.Result(), nil
}
