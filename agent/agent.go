// Package agent runs a model in a loop with tools.
//
// An [Agent] is made once, from a model, a toolkit and a policy, and serves any number of
// conversations. A conversation is a [State]; the zero State is a new one. [Agent.Reply] says
// something and waits for the answer:
//
//	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add), Instructions: "Be brief."})
//	var st agent.State
//	reply, err := a.Reply(ctx, &st, agent.Say("What is 2+3?"))
//	fmt.Println(reply.Text())
//
// [Agent.StreamText] yields the text while the model writes it, and [Agent.Run] all that happens, as
// events of package event: text, tool calls, results, and one [*event.End]. [ReplyAs] and [StreamAs]
// get an answer of a Go type.
//
// # The loop
//
// A run alternates between two things until the model answers without calling a tool: one model
// call, then all the tool calls of its answer. Calls of tools marked Parallel run together, others
// alone, in the order of the answer; calls that change which tools are visible come last. With
// [Config.Eager] those that only read start before the answer is complete. A call that goes wrong
// becomes a result that the model reads.
//
// # People
//
// The permission engine may want a person to decide. The run then emits an [*event.Approval] for each
// such call and ends, waiting. [State.Pending] lists what waits. The run continues, in this process or
// in another one that loads the State, when it is given the answers:
//
//	for _, ev := range st.Pending() {
//		if q, ok := ev.(*event.Approval); ok {
//			answers = append(answers, q.Allow()) // or q.Deny("Not on a Sunday.")
//		}
//	}
//	reply, err = a.Reply(ctx, &st, answers...)
//
// Tools that the host runs itself wait in the same way, with an [*event.External], for an [event.Result].
//
// A tool may ask the person something while it runs, as MCP servers do, or want the model to answer:
// the run is the [host.Host] of its calls. [Config.Elicit] answers such questions, within the run only.
//
// # Several agents
//
// [AsTool] gives a task to another agent, which has a conversation of its own and returns an answer.
// [Handoff] has another agent continue this conversation.
//
// # Calls in the background
//
// With [Config.Background] a call that takes long does not hold up the others. Its result then says
// that it continues, by the id of the call; the model gets what it returns before a later model
// call, in a message of the program's. A tool named background lets the model look at such a call,
// wait for it, or stop it.
//
// A run does not end before these calls have. When the model answers while some still run, the run
// waits for the next to end and asks the model again, with its result; when a person is needed, it
// asks, waits for all, and ends. So each holds up the end for [Config.ToolTimeout] at most. They are
// stopped when the run is cancelled or fails, and at [Limits.Time]. Those that a crash cut off are
// not made again: the model reads that their outcome is unknown. Sub-agents and calls that change
// which tools are visible never run in the background.
//
// # What always holds
//
// However a run ends, by an answer, a question, a limit, an error, a cancelled context or a consumer
// that breaks off, the State is whole: every tool call has exactly one result, in call order, before
// the next model call ([CheckHistory] tests it); what was emitted was stored before; every goroutine
// has ended. One run at a time may use a State; a second gets [ErrBusy].
//
// That a call begins is stored before it does, with [Config.Save] on disk. When a program is stopped
// in the middle of one, the next run does not make it again: its result says that no one knows
// whether it had its effect. Only a tool that declares its calls idempotent
// ([tool.IdempotentChecker]) has such a call made once more, with the same idempotency key.
//
// # Trust
//
// The model's words, tool results and loaded States are not trusted: arguments are validated, every
// call is judged by package permission, and a call that a person approved is judged again when it
// runs. What a tool does once it may run is not confined here. What is said, read and returned may
// hold secrets: [Config.Redact] keeps those that it recognizes from what is stored and emitted, not
// from the model.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/catalog"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The errors that callers branch on. Others wrap a [*model.Error], or what a
// tool returned with [tool.ErrAbort].
var (
	ErrWaiting     = errors.New("waiting")                      // for a person or the host; see [State.Pending]
	ErrNoCall      = decide.ErrNoCall                           // an answer names a call that is not open
	ErrNotWaiting  = decide.ErrNotWaiting                       // an answer names a call that does not wait for it
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

	Temperature *float64 // of the model's answers; nil means the model's own default
	MaxTokens   int      // of output in an answer, reasoning included; 0 means the model's own limit

	// Policy decides what may run. The zero Policy asks about everything. New refuses a rule whose tool
	// does not exist and is spelled nearly as one that does, and a rule with a pattern that its tool
	// does not take. A name that is like no other may be of a tool that a source will list.
	Policy permission.Policy

	// Middleware wraps runs, steps, model calls, tool calls and decisions.
	Middleware []Middleware

	// Approve, if not nil, answers questions within the run, so that it does not end waiting. It is
	// asked one question at a time. Calls that are under way continue meanwhile, and their events come
	// when it has returned. Its answer is for the call it was asked about; Call may be empty.
	Approve func(context.Context, event.Approval) (event.Confirm, error)

	// Elicit, if not nil, answers what tools, and the MCP servers behind them, ask the person while a
	// call runs: forms and pages; see [host.Elicitation]. A question without a Server is the agent's
	// own, whether a server may use the model ([Limits]); to accept it is to allow that. The caller
	// waits on a live connection, so a run cannot end waiting for the answer: if Elicit is nil, or
	// fails, the question is cancelled. It is called on goroutines of the calls, never while another
	// question or Approve is open; its context ends with the call. What it returns is checked against
	// the form, goes to the server only, and is neither stored nor emitted.
	Elicit func(context.Context, host.Elicitation) (host.Answer, error)

	// AnswerWithin is how long a question may be answered; 0 means for ever. A later answer is refused
	// with [ErrExpired], and a run without inputs asks again. Approve is given a context that ends
	// then; an answer that it still gives does not count, and the run ends waiting.
	AnswerWithin time.Duration

	// Save, if not nil, stores the State. It is called before anything that depends on it is emitted
	// or run. An error ends the run: what is open is closed, and what could not be stored by then is
	// not emitted, but for the [*event.End]. The State in memory is whole all the same.
	// [State.Saving] returns what else a store may keep with it: the events.
	Save func(context.Context, *State) error

	// Key, if not empty, seals the State, so that a client that keeps it cannot change what a person
	// was asked, what was allowed, or anything else in it: a run refuses a State whose seal does not
	// fit with [ErrTampered]. The seal covers the Policy and the schemas of the tools that are asked
	// about too. It is as good as the Key: take 32 random bytes (16 are the least), the same for all
	// processes. It does not distinguish an older State of this conversation, or one of another
	// conversation, from the current one: a host that lets clients keep States must remember which
	// seal came last, or a client can have an approved call run twice.
	//
	// Without a Key a State that was loaded is believed in what was said and in what people allowed:
	// who can write it can answer questions, add allow rules and invent history. Deny rules, the mode,
	// safety checks that no person was asked about, and the schemas of the arguments hold even then.
	Key []byte

	// Redact, if not nil, takes secrets out of what leaves the run: every event, every State that is
	// encoded, be it by Save, and what [Window.Results] keeps. Tools get their arguments, and the
	// model the conversation, as they are; so do Approve and the result of Reply, and the State in
	// memory is not changed. The model reads placeholders in a State that was loaded, and an open call
	// whose arguments hold one is not run. It holds for sub-agents too; one that has its own uses that
	// only where this is nil.
	//
	// Text is emitted a little later where it could be the beginning of a secret, and the arguments of
	// a call when they are whole. The errors of Run hold what they hold.
	Redact *redact.Redactor

	Limits      Limits        // what one input may cost; the zero value is 50 steps
	MaxParallel int           // tool calls at a time; 0 means 8
	ToolTimeout time.Duration // for one tool call; 0 means 10 minutes, negative none

	// Eager has calls start while the model is still writing the rest of its answer: the first ones of
	// an answer, as long as each is of a tool marked Parallel, is read-only and is allowed without a
	// question, at most MaxParallel at a time. What they say, ask and return is emitted when the answer
	// is there: nothing but the time differs. ToolTimeout runs from their start.
	//
	// The calls of an answer that breaks off are stopped and forgotten. They may then have been judged,
	// and have run, for nothing, which is of no harm where a tool that says it only reads does no more,
	// and costs neither money nor a quota. Hence it is not the default. No call starts early in a
	// sub-agent that shares a limit of tool calls, or while others run in the background.
	Eager bool

	// Background is how long a tool call may keep the model waiting; 0 means until it ends. One that
	// takes longer continues in the background, if its tool is marked Parallel or says so itself
	// ([tool.Backgrounder]), at most MaxParallel of them at a time. The package doc has more.
	Background time.Duration

	Window Window // how the conversation is kept within the window

	// Retry is how failed model calls are repeated; the zero value does it with back-off. A model that
	// retries by itself ([middleware.Retry]) does so in its own way. Either way each retry is a [*event.Retry]
	// event, and OnRetry is called.
	Retry middleware.RetryConfig

	Seams
}

// Seams are what a run takes from outside: time, ids and goroutines. The zero value is the plain
// program. An agent that is used by several runs at a time needs functions that are safe for that.
type Seams struct {
	Now   func() time.Time           // nil is time.Now
	NewID func(prefix string) string // nil is [message.NewID]
	Go    func(func())               // starts a goroutine, and does not wait for it; nil is the go statement
}

// An Agent runs conversations. It is immutable and safe for concurrent use.
type Agent struct {
	cfg Config
	levels
	background tool.Tool // see Config.Background; nil without
	parent     *nest     // the run that this agent works for; nil for none
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
	case cfg.MaxTokens < 0:
		return nil, fmt.Errorf("agent.New: Config.MaxTokens is %d; it is the most that an answer may have, and 0 means the model's own limit", cfg.MaxTokens)
	case cfg.Temperature != nil && !(*cfg.Temperature >= 0): // or not a number
		return nil, fmt.Errorf("agent.New: Config.Temperature is %g; it is 0 or more, and nil means the model's own default", *cfg.Temperature)
	case len(cfg.Key) > 0 && len(cfg.Key) < minKey:
		return nil, fmt.Errorf("agent.New: Config.Key has %d bytes; a key that can be guessed seals nothing: use at least %d, from crypto/rand", len(cfg.Key), minKey)
	case cfg.Background < 0:
		return nil, fmt.Errorf("agent.New: Config.Background is %v; it is a time, and 0 means never", cfg.Background)
	}
	if err := cfg.Limits.setPrice(cfg.Model); err != nil {
		return nil, fmt.Errorf("agent.New: %w", err)
	}
	var background tool.Tool
	if cfg.Background > 0 {
		var err error
		if background, err = newBackground(); err != nil {
			return nil, err
		}
	}
	if err := cfg.checkPolicy(background); err != nil {
		return nil, fmt.Errorf("agent.New: Config.Policy: %w", err)
	}
	if err := cfg.Window.setDefaults(cfg.Model); err != nil {
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
	a := &Agent{cfg: cfg, background: background}
	a.levels = compose(&a.cfg)
	return a, nil
}

func setDefault[T int | float64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Limits bound what one input may cost. A run that reaches one asks the model for a last answer,
// without tools, and ends with [event.EndLimit]. They are looked at before each model call; only
// ToolCalls and Time also stop the rest of a batch, and Time the calls that run. The zero value of a field
// other than Steps sets no limit. What sub-agents ([AsTool]) do counts as it happens, but for their
// steps.
type Limits struct {
	Steps     int     // model calls with tools; 0 means 50
	ToolCalls int     // calls that the model may make
	Tokens    int     // input and output together, as the server reports them
	Cost      float64 // in the currency of Price, which is US dollars if that is nil

	// Time is counted from the input, waiting for people included. When it is up model calls and
	// tool calls are cancelled. After a tool call, or between two, the model may still give a
	// last answer, for a quarter of Time more, but at least for a second and at most for 30.
	Time time.Duration

	// What tools, and the MCP servers behind them, may have the model answer (sampling): how often,
	// 0 means 10, and how many tokens for all of it, input and output together, 0 means 50,000;
	// negative is not at all. The other limits count it too. The policy decides about each as about
	// a call of a tool named mcp__SERVER__sampling; what it asks about [Config.Elicit] must allow.
	Samples, SampleTokens int

	// Price returns what the tokens of an answer cost. If it is nil and there is a limit of Cost, the prices
	// are those of package model/catalog, and New fails for a model ([model.Named]) that is not in its table.
	Price func(modelName string, u message.Usage) float64
}

// setPrice sets Price where Cost needs one.
func (l *Limits) setPrice(m model.Model) error {
	if l.Cost <= 0 || l.Price != nil {
		return nil
	}
	name := ""
	if named, ok := model.As[model.Named](m); ok {
		name = named.Name()
	}
	price, err := catalog.Default().Price(name)
	if err != nil {
		return fmt.Errorf("Limits.Cost needs what tokens cost: %w; set Limits.Price, to a function or to that of a catalog.Table with the model", err)
	}
	l.Price = price
	return nil
}

// Window says how a conversation is kept within the model's window. The zero value works.
type Window struct {
	// Tokens is how much fits into the model's window; 0 means what the model says ([model.Windowed]), else what
	// package model/catalog knows of its name ([model.Named]), else 128,000.
	Tokens int

	// Compact is the share of the window at which the conversation is made shorter; 0 means 0.8,
	// negative never: first long old results are cut, and if that is not enough the model is asked for
	// a summary of all but the newest, in fixed fields (goal, decisions, files, facts, open tasks, …)
	// or else in plain text. If there is none whole turns are dropped, and the model reads that they were. Keep is the
	// share that is kept word for word with the current turn; 0 means 0.1. What is open, groups,
	// skills and tasks, is repeated. The same is done when a server refuses a request for its
	// length, until nothing can go.
	Compact, Keep float64

	// MaxResult is how much text of a tool result the model reads, in bytes; 0 means 100,000, or as
	// many as the window has tokens if that is less, negative all of it. Of a longer one it reads the
	// beginning and the end. Results, if not nil, keeps the whole; see [ReadResult]. What is pinned
	// ([tool.Chunk]), as the instructions of skills are, is never cut.
	MaxResult int
	Results   Results

	// MaxData is how many pictures and files are kept in the conversation; 0 means 20, negative all.
	// When there are more the oldest give way to a note, down to half as many, so that the provider's
	// cache is not lost for each.
	MaxData int
}

// defaultWindow is what most models have at least. A server that has less refuses the
// request, and the conversation is compacted then.
const defaultWindow = 128_000

func (w *Window) setDefaults(m model.Model) error {
	if w.Compact > 1 || w.Keep < 0 || w.Compact > 0 && w.Keep >= w.Compact {
		return fmt.Errorf("Window.Compact is %g and Keep %g; Compact is at most 1 and Keep less than that", w.Compact, w.Keep)
	}
	if known, ok := model.As[model.Windowed](m); ok && w.Tokens == 0 {
		w.Tokens = known.ContextWindow()
	}
	if named, ok := model.As[model.Named](m); ok && w.Tokens == 0 {
		found, _ := catalog.Default().Find(named.Name())
		w.Tokens = found.Prompt()
	}
	setDefault(&w.Tokens, defaultWindow)
	setDefault(&w.Compact, 0.8)
	setDefault(&w.Keep, 0.1)
	setDefault(&w.MaxResult, min(100_000, w.Tokens))
	setDefault(&w.MaxData, 20)
	return nil
}

var errNoEnd = errors.New("agent: the run ended without an End; a Run middleware must pass it on")

// levels is what a run calls, composed once when the agent is made.
type levels struct {
	model        model.Model
	reveals      bool // the model is told of tools late; see reveal.go
	tools        []tool.Middleware
	judge        JudgeFunc
	instructions InstructionsFunc
}

// aboutTheCall returns a JudgeFunc whose decisions are about the call, also where a middleware has made one of its own:
// then it allows what the tool finds the call to be.
func aboutTheCall(next JudgeFunc) JudgeFunc {
	return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
		d := next(ctx, p, c)
		if d.Behavior != permission.Deny && !d.Judgement.Covers(c.Tool, c.Input) {
			d.Judgement = permission.Judge(p, c)
		}
		return d
	}
}

func compose(cfg *Config) levels {
	mws := cfg.Middleware
	l := levels{
		model: wrap(mws, cfg.Model, func(m Middleware) func(model.Model) model.Model { return m.Model }),
		judge: aboutTheCall(wrap[JudgeFunc](mws, decidePolicy, func(m Middleware) func(JudgeFunc) JudgeFunc { return m.Judge })),
		instructions: wrap[InstructionsFunc](mws, func(context.Context) string { return cfg.Instructions },
			func(m Middleware) func(InstructionsFunc) InstructionsFunc { return m.Instructions }),
	}
	for _, m := range mws {
		if m.Tool != nil {
			l.tools = append(l.tools, m.Tool)
		}
	}
	late, ok := model.As[model.Revealer](l.model)
	l.reveals = ok && late.Reveals()
	return l
}
