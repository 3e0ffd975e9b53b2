package temporal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

// An AgentFunc returns the agent that runs a session. The agent must save to the session: its [agent.Config.Save]
// is [session.Save] or s.Save. It may return a different agent for each call.
type AgentFunc func(ctx context.Context, s *session.Session) (*agent.Agent, error)

// Work advances sessions until ctx ends. Then it accepts no more sessions, gives back its sessions (see
// [Config.Drain]), and returns nil. It fails if the namespace does not exist.
func (e *Engine) Work(ctx context.Context, agents AgentFunc) error {
	w := worker.New(e.cfg.Client, e.cfg.Queue, worker.Options{
		MaxConcurrentWorkflowTaskPollers:   pollers,
		WorkerStopTimeout:                  e.cfg.Drain,
		MaxConcurrentActivityExecutionSize: e.cfg.Sessions,
		StickyScheduleToStartTimeout:       min(e.cfg.Heartbeat/4, 5*time.Second), // the delay of workflows whose worker has died
		MaxHeartbeatThrottleInterval:       e.cfg.Heartbeat / 3,
	})
	var running sync.WaitGroup
	w.RegisterWorkflowWithOptions(converse, workflow.RegisterOptions{Name: workflowName})
	w.RegisterWorkflowWithOptions(makeCall, workflow.RegisterOptions{Name: callWorkflowName})
	w.RegisterActivityWithOptions(e.interrupt, activity.RegisterOptions{Name: interruptName})
	w.RegisterActivityWithOptions(func(ctx context.Context, id string) (progress, error) {
		running.Add(1)
		defer running.Done()
		return e.advance(ctx, id, agents)
	}, activity.RegisterOptions{Name: advanceName})
	if err := w.Start(); err != nil {
		return fmt.Errorf("temporal: start a worker: %w", withRemedy(err))
	}
	<-ctx.Done()
	w.Stop()
	running.Wait() // w.Stop waits at most for Drain
	return nil
}

// pollers is the number of concurrent polls for workflow tasks. The default, 2, is less than the number of partitions of
// a task queue, so tasks could wait although workers are idle. Activities keep the default: most are started by
// the worker that schedules them, and when a worker dies, each of its polls can delay a task by a heartbeat.
const pollers = 8

// interrupt is the activity that sends an interrupt to a session.
func (e *Engine) interrupt(ctx context.Context, arg interruption) error {
	if arg.Seq != 0 {
		info, _, err := e.store.Read(ctx, arg.Session, 0)
		if err != nil || info.Seq != arg.Seq {
			return err // nil if the session has changed
		}
	}
	_, err := session.Send(ctx, e.store, arg.Session, arg.ID, agent.Interrupt{})
	return err
}

// advance runs a session until it ends, waits or must be given back.
func (e *Engine) advance(ctx context.Context, id string, agents AgentFunc) (progress, error) {
	// A run whose context ends would be stored as interrupted by the user. So only the runStore cancels the run, after it
	// has stopped storing records.
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	rs := &runStore{store: e.store, cancel: cancel, running: map[string]bool{}}
	var watching sync.WaitGroup
	defer watching.Wait()
	done := make(chan struct{})
	defer close(done)
	watching.Go(func() { sendHeartbeats(ctx, e.cfg.Heartbeat, done) })
	watching.Go(func() { rs.watch(ctx, e.cfg, done) })
	at, err := rs.run(context.WithValue(runCtx, runKey{}, &engineRun{e, rs}), id, agents)
	if errors.Is(err, agent.ErrNewerState) {
		return at, temporal.NewApplicationErrorWithOptions(err.Error(), "NewerState", temporal.ApplicationErrorOptions{NextRetryDelay: e.cfg.Heartbeat / 2})
	}
	return at, err
}

// run opens a session, and runs it until it ends, waits or is given back.
func (rs *runStore) run(ctx context.Context, id string, agents AgentFunc) (at progress, err error) {
	s, err := session.Open(ctx, rs.withNotifier(), id)
	if err != nil {
		return progress{}, err // Temporal retries, perhaps on another worker
	}
	defer func() { err = errors.Join(err, s.Close()) }() // also after a panic
	a, err := agents(ctx, s)
	if err != nil {
		return progress{}, fmt.Errorf("session %q: the agent cannot be built: %w", id, err)
	}
	for ev, runErr := range s.Run(ctx, a) {
		if err = runErr; err != nil {
			break
		}
		rs.publish(id, ev)
	}
	at, stopErr := rs.current()
	switch {
	case errors.Is(stopErr, errGivenBack):
		at.More = true
		return at, nil
	case stopErr != nil:
		return at, stopErr
	case at.Status == session.StatusFailed: // the error is stored, and the next input continues
		return at, nil
	}
	return at, err
}
