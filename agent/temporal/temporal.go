// Package temporal runs sessions on Temporal: any process can send inputs to a conversation, any worker can
// advance it, and when a worker dies another continues.
//
//	eng, err := temporal.New(temporal.Config{Client: c, Queue: "agents", Store: store})
//	_, err = eng.Send(ctx, "customer-7", requestID, agent.Say("Book it."))        // a server
//	for ev, err := range session.Watch(ctx, store, "customer-7", lastEventID) {…} // a server
//	err = eng.Work(ctx, func(ctx context.Context, s *session.Session) (*agent.Agent, error) {…}) // a worker
//
// All processes share the store; package postgres/pgsession has one. Temporal decides when a session is
// advanced, and on which worker. A session with inputs or an unfinished run is a workflow with one activity: open the
// session, run it until it ends, waits or has used up its slice, and close it. The workflow ends when the
// session has nothing more to do, and the next input starts it again.
//
// Messages, answers and results are only in the store. The history of a workflow contains the ids of sessions and
// inputs, timers, and the errors of workers that could not advance a session. So payloads have no limit, the
// agent's instructions, tools and code may change while conversations are in progress, and those who can read the
// history cannot read the conversations.
//
// Workers publish deltas if the store is a [session.Notifier]; package agui shows them.
//
// # Inputs
//
// [Engine.Send] stores an input in the session's inbox, which accepts each id once, and then wakes the workflow
// with a signal. A signal is stored by Temporal even while no worker is running. If a sender dies between the two,
// the input waits until the sender sends it again with the same id, or until [Engine.Wake] is called.
//
// The id of the workflow is QUEUE/SESSION. Cancelling the workflow, for example in Temporal's user interface, interrupts
// the session, as an [agent.Interrupt] does. The workflow's query "pending" returns the number of the last record and
// the status; [Engine.Pending] returns the questions.
//
// A waiting session uses no worker. With [Config.WaitFor] its workflow stays open, and the SDK may keep it in a
// cache of bounded size (worker.SetStickyWorkflowCacheSize).
//
// # When a worker dies
//
// At most one step is lost, as package session describes: an unfinished model call is made again, a call of an
// idempotent tool is made again once with the same key, and any other call gets the result that its outcome is
// unknown. The engine notices after [Config.Heartbeat], and another worker continues from the last save once the
// store's claim has expired; so a claim should expire within that time.
//
// When the context of [Engine.Work] ends, for example on SIGTERM, the worker accepts no more sessions, and gives
// back each session after its next save at which no tool call is running.
//
// A worker that reads a session of a newer version ([agent.ErrNewerState]) also gives it back, until a newer worker gets
// it. Old and new workers can run at the same time.
package temporal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

var (
	// ErrNoWorkers is wrapped by the error for an input that is stored, but for which no worker polls the
	// task queue. A worker that starts later processes it.
	ErrNoWorkers = errors.New("no worker polls the task queue")

	// ErrRefused is wrapped by the error of [Engine.Answer] for an input that had no effect.
	ErrRefused = errors.New("the input had no effect")
)

// A Config configures an Engine. Client, Queue and Store are required. Processes that share a Queue should have
// equal Configs.
type Config struct {
	Client client.Client
	Queue  string // the task queue; a session belongs to one queue

	// Store is shared by all processes that send to, watch or advance a session. It must be a [session.Inbox],
	// a [session.Watcher] and a [session.Reader].
	Store session.Store

	// Heartbeat is how long a worker may be silent before its session is given to another one; 0 means 30 s.
	// Less than 100 ms is an error.
	Heartbeat time.Duration

	// Slice is how long a worker advances a session before it gives the session back, so that other sessions have their turn;
	// 0 means 5 minutes. The worker gives it back after the next save at which no tool call is running.
	Slice time.Duration

	// Drain is how long [Engine.Work] waits for running steps after its context has ended; 0 means 5 minutes. Steps
	// that take longer are cut off, as by a crash.
	Drain time.Duration

	// WaitFor is how long a session waits for answers. After that it is interrupted, and the waiting calls get
	// results that say so. 0 means no limit. agent.Limits.Time does not include this time.
	WaitFor time.Duration

	// Sessions is how many sessions a worker advances at a time; 0 means 100.
	Sessions int
}

// An Engine sends inputs to sessions and advances them. It is safe for concurrent use.
type Engine struct {
	cfg        Config
	store      store
	workerSeen atomic.Int64 // when checkWorkers last found a worker, in Unix nanoseconds
}

// store has the methods that a Config.Store must have.
type store interface {
	session.Store
	session.Inbox
	session.Watcher
	session.Reader
}

// check checks the fields except Store, which Serve does not need, and sets their defaults.
func (cfg *Config) check() error {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 30*time.Second)
	switch {
	case cfg.Client == nil:
		return errors.New("temporal: Config.Client is nil; set it to the result of client.Dial")
	case cfg.Queue == "":
		return errors.New("temporal: Config.Queue is empty; name a task queue")
	case cfg.Heartbeat < 100*time.Millisecond:
		return fmt.Errorf("temporal: Config.Heartbeat is %v; it must be 100ms or more, or 0 for the default", cfg.Heartbeat)
	case cfg.Slice < 0 || cfg.Drain < 0 || cfg.WaitFor < 0 || cfg.Sessions < 0:
		return errors.New("temporal: Config.Slice, Drain, WaitFor and Sessions must not be negative; 0 is the default")
	}
	cfg.Slice = cmp.Or(cfg.Slice, 5*time.Minute)
	cfg.Drain = cmp.Or(cfg.Drain, 5*time.Minute)
	cfg.Sessions = cmp.Or(cfg.Sessions, 100)
	return nil
}

// New returns an engine. It fails if cfg is invalid.
func New(cfg Config) (*Engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s, ok := cfg.Store.(store)
	if !ok {
		return nil, fmt.Errorf("temporal: Config.Store, a %T, is not a session.Store, Inbox, Watcher and Reader; use package pgsession", cfg.Store)
	}
	return &Engine{cfg: cfg, store: s}, nil
}

// Send sends an input to a session, creates the session if it does not exist, and wakes it. When it returns no error,
// the input and the wake-up are stored. accepted is false if the session received an input with the same id before. So a
// sender that does not know whether an input was accepted can send it again. If the error wraps [ErrNoWorkers], the input is stored.
//
// A message to a session that waits for answers is processed after the answers. An [agent.Interrupt] ends the
// current run within a second.
func (e *Engine) Send(ctx context.Context, id, input string, in agent.Input) (accepted bool, err error) {
	accepted, err = session.Send(ctx, e.store, id, input, in)
	if err != nil {
		return false, err
	}
	return accepted, e.Wake(ctx, id, input)
}

// Wake makes a worker check whether a session has inputs or an unfinished run. [Engine.Send] calls it. Call it for
// sessions to which other programs have sent inputs, and for sessions whose sender died during Send, which [session.Store].List
// finds with Query.Inputs. A run that has failed is continued. reason is for people who read the workflow's history; it
// must have the form of an id.
func (e *Engine) Wake(ctx context.Context, id, reason string) error {
	if err := errors.Join(session.CheckID(id), session.CheckID(reason)); err != nil {
		return fmt.Errorf("temporal: wake session %.140q: %w", id, err)
	}
	// Temporal repeats the workflow task of a dead worker after the WorkflowTaskTimeout.
	opts := client.StartWorkflowOptions{TaskQueue: e.cfg.Queue, WorkflowTaskTimeout: min(10*time.Second, max(time.Second, e.cfg.Heartbeat))}
	workflowID := e.cfg.Queue + "/" + id // the queue is a part, as other queues may have other stores
	_, err := e.cfg.Client.SignalWithStartWorkflow(ctx, workflowID, wakeName, reason, opts, workflowName, conversation{Session: id, Heartbeat: e.cfg.Heartbeat, WaitFor: e.cfg.WaitFor})
	if err != nil {
		return fmt.Errorf("temporal: wake session %q: %w", id, withRemedy(err))
	}
	return e.checkWorkers(ctx)
}

// checkEvery is the interval of checks for workers.
const checkEvery = time.Minute

// checkWorkers returns an error if no worker polls the task queue.
func (e *Engine) checkWorkers(ctx context.Context) error {
	if time.Since(time.Unix(0, e.workerSeen.Load())).Abs() < checkEvery { // negative if the clock was set back
		return nil
	}
	q, err := e.cfg.Client.DescribeTaskQueue(ctx, e.cfg.Queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	switch {
	case err != nil:
		return nil // the input is stored, and whether there are workers is unknown
	case len(q.GetPollers()) == 0:
		return fmt.Errorf("temporal: %w %q: the input is stored for a worker that starts later; call Engine.Work in a process, or check Config.Queue",
			ErrNoWorkers, e.cfg.Queue)
	}
	e.workerSeen.Store(time.Now().UnixNano())
	return nil
}

// Answer sends an input like [Engine.Send], and returns when the session has consumed it or ctx has ended. If the input
// had no effect, the error wraps [ErrRefused] and has the reason: for example, another process answered the question
// first, or the run with the question has ended.
func (e *Engine) Answer(ctx context.Context, id, input string, in agent.Input) error {
	if _, err := e.Send(ctx, id, input, in); err != nil {
		return err
	}
	entry, err := session.Await(ctx, e.store, id, input)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("temporal: session %q: input %q waits: %w; check that a worker polls the task queue %q, and that the agents of the workers can be built",
			id, input, context.Cause(ctx), e.cfg.Queue)
	case err == nil && entry.Refused != "":
		return fmt.Errorf("temporal: session %q: input %q: %w: %s; Engine.Pending returns what the session waits for now", id, input, ErrRefused, entry.Refused)
	}
	return err
}

// Pending returns what a session waits for, like [agent.State.Pending]. It reads the store, so it needs no worker.
func (e *Engine) Pending(ctx context.Context, id string) ([]event.Event, error) {
	st, info, err := session.Read(ctx, e.store, id, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("temporal: %w; send an input to create it", err)
	case err != nil:
		return nil, err
	case info.Status != session.StatusWaiting:
		return nil, nil
	}
	return st.Pending(), nil
}

// withRemedy adds the remedy to an error of Temporal.
func withRemedy(err error) error {
	if _, ok := errors.AsType[*serviceerror.NamespaceNotFound](err); ok {
		return fmt.Errorf("%w; create the namespace, or name another in client.Options.Namespace", err)
	}
	if _, ok := errors.AsType[*serviceerror.Unavailable](err); ok {
		return fmt.Errorf("%w; check that the Temporal server runs at client.Options.HostPort", err)
	}
	return err
}
