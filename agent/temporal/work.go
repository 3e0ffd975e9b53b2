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
// is [session.Save] or s.Save. It may be a different one each time.
type AgentFunc func(ctx context.Context, s *session.Session) (*agent.Agent, error)

// Work advances sessions until ctx ends. Then it accepts no more, gives back those that it has (see
// [Config.Drain]), and returns nil. It fails if the namespace does not exist.
func (e *Engine) Work(ctx context.Context, agents AgentFunc) error {
	w := worker.New(e.cfg.Client, e.cfg.Queue, worker.Options{
		WorkerStopTimeout:                  e.cfg.Drain,
		MaxConcurrentActivityExecutionSize: e.cfg.Sessions,
		StickyScheduleToStartTimeout:       min(e.cfg.Heartbeat/4, 5*time.Second), // a dead worker delays its workflows by as much
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
	running.Wait()
	return nil
}

// interrupt sends an interrupt to a session.
func (e *Engine) interrupt(ctx context.Context, i interruption) error {
	if i.Seq != 0 {
		in, _, err := e.store.Read(ctx, i.Session, 0)
		if err != nil || in.Seq != i.Seq {
			return err // it has changed
		}
	}
	_, err := session.Send(ctx, e.store, i.Session, i.ID, agent.Interrupt{})
	return err
}

// advance runs a session until it ends, waits or is to be given back.
func (e *Engine) advance(ctx context.Context, id string, agents AgentFunc) (progress, error) {
	// A run whose context ends would be stored as one that the user has interrupted. So only the runStore cancels it, which
	// then stores nothing more.
	runCtx, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	p := newRunStore(e.store, cut)
	var watching sync.WaitGroup
	defer watching.Wait()
	done := make(chan struct{})
	defer close(done)
	watching.Go(func() { p.beat(ctx, e.cfg.Heartbeat, done) })
	watching.Go(func() { p.watch(ctx, e.cfg, done) })
	at, err := p.run(context.WithValue(runCtx, runKey{}, &engineRun{e, p}), id, agents)
	if errors.Is(err, agent.ErrNewerState) {
		return at, temporal.NewApplicationErrorWithOptions(err.Error(), "NewerState", temporal.ApplicationErrorOptions{NextRetryDelay: e.cfg.Heartbeat / 2})
	}
	return at, err
}

// run opens the session and runs it.
func (p *runStore) run(ctx context.Context, id string, agents AgentFunc) (at progress, err error) {
	s, err := session.Open(ctx, p, id)
	if err != nil {
		return progress{}, err // the engine tries again, perhaps on another worker
	}
	defer func() { err = errors.Join(err, s.Close()) }() // also after a panic
	a, err := agents(ctx, s)
	if err != nil {
		return progress{}, fmt.Errorf("session %q: the agent cannot be built: %w", id, err)
	}
	for _, err = range s.Run(ctx, a) {
		if err != nil {
			break
		}
	}
	at, stopped := p.end()
	switch {
	case errors.Is(stopped, errGivenBack):
		at.More = true
		return at, nil
	case stopped != nil:
		return at, stopped
	case at.Status == session.StatusFailed: // the error is stored, and the next input continues
		return at, nil
	}
	return at, err
}
