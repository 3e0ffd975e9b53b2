// Package agent runs a model in a loop with tools.
//
// An [Agent] is made once, from a model, a toolkit and a policy, and serves any
// number of conversations. A conversation is a [State]; the zero State is a new
// one. [Agent.Reply] says something and waits for the answer:
//
//	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add), Instructions: "Be brief."})
//	var st agent.State
//	msg, err := a.Reply(ctx, &st, agent.Say("What is 2+3?"))
//
// [Agent.Run] does the same as a stream of events, for those who want to show
// what happens: text as it comes, tool calls, results, and one [*End]. [ReplyAs] and
// [StreamAs] get an answer of a Go type.
//
// # The loop
//
// A run alternates between two things until the model answers without calling
// a tool: one model call, then all the tool calls of its answer. Calls of tools
// marked Parallel run together, others alone, in the order of the answer; calls
// that change which tools are visible come last. With [Config.Eager] those that
// only read start before the answer is complete. A call that goes wrong becomes a
// result that the model reads.
//
// # People
//
// The permission engine may want a person to decide. The run then emits an
// [*Approval] for each such call and ends, waiting. It goes on, in this process
// or in another one that loads the State, when Run is given a [Confirm]. Tools
// that the host runs itself wait in the same way for a [Result]. [State.Pending]
// lists what waits.
//
// A tool may ask the person something while it runs, as MCP servers do, or want
// the model to answer: the run is the [host.Host] of its calls. [Config.Elicit]
// answers such questions, within the run only.
//
// # Calls in the background
//
// With [Config.Background] a call that takes long does not hold up the others. Its
// result then says that it goes on, by the id of the call; what it returns is told
// to the model before a later model call, in a message of the program's. A tool
// named background lets the model look at such a call, wait for it, or stop it.
//
// A run does not end before these calls have. When the model answers while some
// still run, the run waits for the next to end and asks the model again, who then
// knows; when a person is needed, it asks, waits for all, and ends. So each holds
// up the end for [Config.ToolTimeout] at most. They are stopped when the run is
// cancelled or fails, and at [Limits.Time]. Those that a crash cut off are not made
// again: the model is told that their outcome is unknown.
//
// Sub-agents and calls that change which tools are visible never go there.
//
// # What always holds
//
// However a run ends, by an answer, a question, a limit, an error, a cancelled
// context or a consumer that breaks off, the State is whole: every tool call
// has exactly one result, in call order, before the next model call
// ([CheckHistory] tests it); what was emitted was stored before; every
// goroutine has ended. One run at a time may use a State; a second gets
// [ErrBusy].
//
// # What it costs
//
// A step, which is a model call and a call of a function tool, makes some 47
// allocations and 4 KiB beside the model's, with events, validation, permission and
// the State whole at every moment; the 500th costs what the first does. A streamed
// token makes 0.1. The floor is what stays: messages, calls, results and events
// that somebody may keep are 22 of the 47; the call with its context and its
// goroutine is 14, the decision 2. A single call is waited for by the run itself,
// which through a Middleware.Tool takes a second goroutine and 7 more; those that run
// beside others have workers, which is 20 more for each. An agent with 20 tools of its
// own keeps 5 KiB, of which the tools are 2. The tests named TestCost… hold these
// figures, and bench shows them beside other frameworks.
//
// # Effects
//
// That a call begins is stored before it does, with [Config.Save] on disk. When a
// program is stopped in the middle of one, the next run does not make it again:
// nobody knows whether it had its effect, and its result says so to the model. Only
// a tool that declares its calls idempotent ([tool.IdempotentChecker]) has such a
// call made once more, with the same idempotency key.
//
// # Trust
//
// The model's words, tool results and loaded States are not trusted: arguments
// are validated, every call is judged by package permission, and a call that a
// person approved is judged again when it runs. What a tool does once it may
// run is not confined here.
//
// What is said, read and returned may hold secrets. [Config.Redact] keeps those that
// can be told from what is stored and emitted, not from the model.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The errors that callers branch on. Others wrap a [*model.Error], or what a
// tool returned with [tool.ErrAbort].
var (
	ErrWaiting     = errors.New("a person is needed")           // see [State.Pending]
	ErrInterrupted = errors.New("interrupted")                  // the context ended, whose cause it then wraps, or an [Interrupt]
	ErrLimit       = errors.New("a limit was reached")          // see [Limits]
	ErrBusy        = errors.New("the state is in use by a run") // one run at a time
	ErrExpired     = errors.New("the question has expired")     // see [Config.AnswerWithin]
)

// A Config is what an agent is made of. Model and Toolkit are needed; for every
// other field the zero value works.
type Config struct {
	Model   model.Model
	Toolkit *toolkit.Toolkit

	// Instructions are the system prompt. What the toolkit has to say is added.
	Instructions string

	// Policy decides what may run. The zero Policy asks about everything.
	Policy permission.Policy

	// Middleware wraps runs, steps, model calls, tool calls and decisions.
	Middleware []Middleware

	// Approve, if not nil, answers questions within the run, so that it does
	// not end waiting. It is called on the run's goroutine, one question at a
	// time. Its answer is for the call it was asked about; Call may be empty.
	Approve func(context.Context, Approval) (Confirm, error)

	// Elicit, if not nil, answers what tools, and the MCP servers behind them, ask
	// the person while a call runs: forms and pages; see [host.Elicitation]. A
	// question without a Server is the agent's own, whether a server may use the
	// model ([Limits]); to accept it is to allow that. Whoever asks waits on a live
	// connection, so a run cannot end waiting for the answer and go on elsewhere: if
	// Elicit is nil, or fails, the question is cancelled. It is called on goroutines
	// of the calls, never while another question or Approve is open; its context
	// ends with the call. What it returns is checked against the form, goes to the
	// server only, and is neither stored nor told.
	Elicit func(context.Context, host.Elicitation) (host.Answer, error)

	// AnswerWithin is how long a question stands; 0 means for ever. A later
	// answer is refused with [ErrExpired], and a run without inputs asks again.
	// Approve is given a context that ends then; an answer that it still comes to
	// does not count, and the run ends waiting.
	AnswerWithin time.Duration

	// Save, if not nil, stores the State. It is called before anything that
	// depends on it is emitted or run. An error ends the run: what is open is
	// closed, and what could not be stored by then is not told of, but for the
	// [*End]. The State in memory is whole all the same.
	Save func(context.Context, *State) error

	// Key, if not empty, seals the State, so that a client that keeps it cannot
	// change what a person was asked, what was allowed, or anything else in it:
	// a run refuses a State whose seal does not fit with [ErrTampered]. The seal
	// covers the Policy and the schemas of the tools that are asked about too. It
	// is as good as the Key: take 32 random bytes (16 are the least), the same for all
	// processes. It does not tell an older State of this conversation, or one of
	// another conversation, from the current one: who lets clients keep States must
	// remember which seal came last, or an approved call may be had twice.
	//
	// Without a Key a State that was loaded is believed in what was said and in
	// what people allowed: who can write it can answer questions, add allow
	// rules and invent history. Deny rules, the mode, safety checks that no
	// person was asked about, and the schemas of the arguments hold even then.
	Key []byte

	// Redact, if not nil, takes secrets out of what leaves the run: every event,
	// every State that is encoded, be it by Save, and what [Context.Results]
	// keeps. Tools get their arguments, and the model the conversation, as they
	// are; so do Approve and the result of Reply, and the State in memory is not
	// changed. Who loads a State gets placeholders: the model reads them from
	// then on, and an open call whose arguments hold one is not run. Sub-agents are
	// under it too; one that has its own is so only where this is nil.
	//
	// Text is told of a little later where it could be the beginning of a
	// secret, and the arguments of a call when they are whole. What [Seams.Step]
	// records and the errors of Run hold what they hold.
	Redact *redact.Redactor

	Limits      Limits        // what one input may cost; the zero value is 50 steps
	MaxParallel int           // tool calls at a time; 0 means 8
	ToolTimeout time.Duration // for one tool call; 0 means 10 minutes, negative none

	// Eager has calls start while the model is still writing the rest of its answer:
	// the first ones of an answer, as long as each is of a tool marked Parallel, is
	// read-only and is allowed without a question, at most MaxParallel at a time. What
	// they say, ask and return is told when the answer is there: nothing but the time
	// differs. ToolTimeout runs from their start.
	//
	// The calls of an answer that breaks off are stopped and forgotten. They may then
	// have been judged, and have run, for nothing, which is of no harm where a tool
	// that says it only reads does no more, and costs neither money nor a quota. Hence
	// it is not the default. No call starts early with [Seams.Step], in a sub-agent
	// that shares a limit of tool calls, or while others go on in the background.
	Eager bool

	// Background is how long a tool call may keep the model waiting; 0 means until
	// it ends. One that takes longer goes on in the background, if its tool is
	// marked Parallel or says so itself ([tool.Backgrounder]), at most MaxParallel
	// of them at a time. The package doc has more.
	Background time.Duration

	Context Context // how the conversation is kept within the window

	// Retry is how failed model calls are repeated; the zero value does it with
	// back-off. A model that retries by itself ([model.Retry]) does so in its own way.
	// Either way each retry is a [*Retry] event, and OnRetry is told.
	Retry model.RetryConfig

	Seams
}

// Seams are where a durable engine takes hold of a run in order to record and
// replay it. The zero value is the plain program. An agent that is used by
// several runs at a time needs functions that are safe for that.
type Seams struct {
	Now   func() time.Time           // nil is time.Now
	NewID func(prefix string) string // nil is [message.NewID]
	Go    func(func())               // starts a goroutine, and does not wait for it; nil is the go statement

	// Step runs fn, which makes one model call or one tool call, or finds out
	// which calls go on in the background or have ended there, and returns what
	// came of it as JSON. An engine records that under id, which is
	// unique in the State, and on replay returns the record without calling
	// fn. An error has no record: it ends the run. What the run makes good itself,
	// such as an answer that broke off, is no error here. nil calls fn directly,
	// without the JSON.
	Step func(ctx context.Context, id string, fn func(context.Context) (json.RawMessage, error)) (json.RawMessage, error)
}

// An Agent runs conversations. It is immutable and safe for concurrent use.
type Agent struct {
	cfg Config
	levels
	background tool.Tool // see Config.Background; nil without
	over       *nest     // the run that this agent works for; nil for none
}

// minKey is the least size of [Config].Key, in bytes: 128 bits cannot be tried out.
const minKey = 16

// New checks cfg and returns the agent.
func New(cfg Config) (*Agent, error) {
	switch {
	case cfg.Model == nil:
		return nil, errors.New("agent.New: Config.Model is nil; set it to a model, such as openai.FromEnv() or scripted.New(...)")
	case cfg.Toolkit == nil:
		return nil, errors.New("agent.New: Config.Toolkit is nil; use toolkit.Of() for an agent without tools")
	case cfg.Limits.Steps < 0 || cfg.MaxParallel < 0:
		return nil, fmt.Errorf("agent.New: Limits.Steps is %d and MaxParallel %d; neither may be negative, 0 means the default",
			cfg.Limits.Steps, cfg.MaxParallel)
	case len(cfg.Key) > 0 && len(cfg.Key) < minKey:
		return nil, fmt.Errorf("agent.New: Config.Key has %d bytes; a key that can be guessed seals nothing: use at least %d, from crypto/rand", len(cfg.Key), minKey)
	case cfg.Background < 0:
		return nil, fmt.Errorf("agent.New: Config.Background is %v; it is a time, and 0 means never", cfg.Background)
	case cfg.Limits.Cost > 0 && cfg.Limits.Price == nil:
		return nil, errors.New("agent.New: Limits.Cost needs Limits.Price, which says what tokens cost")
	}
	if err := cfg.Policy.Check(); err != nil {
		return nil, fmt.Errorf("agent.New: Config.Policy: %w", err)
	}
	if err := cfg.Context.setDefaults(cfg.Model); err != nil {
		return nil, fmt.Errorf("agent.New: %w", err)
	}
	setDefault(&cfg.Limits.Steps, 50)
	setDefault(&cfg.Limits.Samples, 10)
	setDefault(&cfg.Limits.SampleTokens, 50_000)
	setDefault(&cfg.MaxParallel, 8)
	setDefault(&cfg.ToolTimeout, 10*time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = message.NewID
	}
	if cfg.Go == nil {
		cfg.Go = func(fn func()) { go fn() }
	}
	a := &Agent{cfg: cfg}
	a.levels = compose(&a.cfg)
	if cfg.Background > 0 {
		var err error
		if a.background, err = newBackground(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func setDefault[T int | float64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Run takes the conversation in st further with what is said, answered or
// delivered in inputs, and yields what happens. Without inputs it goes on where
// an earlier run, in this or another process, was cut off.
//
// The sequence may be ranged once. It ends with exactly one [*End], followed by
// an error if the run failed; an error before any event means that the inputs
// were refused and st is as it was. Breaking off cancels the run.
func (a *Agent) Run(ctx context.Context, st *State, inputs ...Input) iter.Seq2[Event, error] {
	return a.start(ctx, st, nil, inputs)
}

// start is Run, for an answer of a given type if f is not nil.
func (a *Agent) start(ctx context.Context, st *State, f *final, inputs []Input) iter.Seq2[Event, error] {
	inner := RunFunc(func(ctx context.Context, st *State, inputs ...Input) iter.Seq2[Event, error] {
		return a.runOnce(ctx, st, f, inputs)
	})
	return wrap(a.cfg.Middleware, inner, func(m Middleware) func(RunFunc) RunFunc { return m.Run })(ctx, st, inputs...)
}

func (a *Agent) runOnce(ctx context.Context, st *State, f *final, inputs []Input) iter.Seq2[Event, error] {
	used := false
	return func(yield func(Event, error) bool) {
		if used {
			yield(nil, errors.New("agent: the sequence that Run returned may be ranged once; call Run again"))
			return
		}
		used = true
		if st == nil {
			yield(nil, errors.New("agent: the State is nil; &agent.State{} is a new conversation"))
			return
		}
		if !st.busy.CompareAndSwap(false, true) {
			yield(nil, ErrBusy)
			return
		}
		defer st.busy.Store(false)

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The state of an agent above holds this one, with secrets: it goes on from
		// there. What is stored of both has none, if the one above sees to that.
		if n := a.over; n == nil || n.outer == nil || n.outer.Redact == nil {
			st.cleaner.use(a.cfg.Redact)
		}
		r := &run{a: a, cfg: &a.cfg, st: st, ctx: ctx, whole: ctx, cancel: cancel, yield: yield, final: f,
			asking: make(chan struct{}, 1), sampling: make(chan struct{}, 1), curtain: curtain{r: a.cfg.Redact}}
		defer r.dropEarly() // if the consumer panics
		if a.background != nil {
			r.jobs = newJobs()
		}
		if a.background != nil || a.cfg.Eager {
			r.reports, r.done = make(chan report), make(chan struct{})
			defer close(r.done)
		}
		defer r.stopWaiting()
		r.run(inputs)
	}
}

// Reply runs until the run ends and returns the model's last message. If the
// run ended otherwise than with an answer, the error is, or wraps, [ErrWaiting],
// [ErrInterrupted], [ErrLimit] or the failure.
func (a *Agent) Reply(ctx context.Context, st *State, inputs ...Input) (*message.Message, error) {
	end, err := drain(a.Run(ctx, st, inputs...))
	if err == nil {
		err = end.failure(ctx)
	}
	if err != nil {
		return nil, err
	}
	return st.Messages[len(st.Messages)-1], nil
}

var errNoEnd = errors.New("agent: the run ended without an End; a Run middleware must pass it on")

// drain returns the end of a run.
func drain(events iter.Seq2[Event, error]) (end *End, err error) {
	for ev, err := range events {
		if err != nil {
			return nil, err
		}
		if e, ok := ev.(*End); ok {
			end = e
		}
	}
	if end == nil {
		return nil, errNoEnd
	}
	return end, nil
}
