// Package agent runs a model in a loop with tools.
//
// An [Agent] is made once, from a model, a toolkit and a policy, and serves any number of conversations. A
// conversation is a [State]; the zero State is a new one. [Agent.Reply] sends a message and waits for the answer:
//
//	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add), Instructions: "Be brief."})
//	var st agent.State
//	reply, err := a.Reply(ctx, &st, agent.Say("What is 2+3?"))
//	fmt.Println(reply.Text())
//
// [Agent.StreamText] yields the text while the model writes it, [ReplyAs] and [StreamAs] return an answer of a Go
// type, and [Agent.Run] yields all events of package event: text, calls, results, and finally one [*event.End].
//
// # The loop
//
// A run takes steps until the model answers without calling a tool. A step is a model call, then all tool calls of
// its answer. Calls of tools marked Parallel run together, others alone, in the order of the answer; calls that
// change which tools are visible come last. A call that fails becomes a result that the model reads.
// [Config.Background] lets long calls continue while the model works.
//
// # Questions
//
// The permission engine may ask for the user's decision. The run then emits an [*event.Approval] for each such call
// and ends, waiting. It continues, in this process or in another one that loads the State, when it gets the answers:
//
//	for _, ev := range st.Pending() {
//		if q, ok := ev.(*event.Approval); ok {
//			answers = append(answers, q.Allow()) // or q.Deny("Not on a Sunday.")
//		}
//	}
//	reply, err = a.Reply(ctx, &st, answers...)
//
// Calls of tools that the host runs itself wait in the same way, with an [*event.External], for an [event.Result].
// Questions that a running tool asks the user, as MCP servers do, are answered by [Config.Elicit] within the run.
//
// # Several agents
//
// [AsTool] gives a task to another agent, which has its own conversation and returns an answer.
// [Handoff] lets another agent continue this conversation.
//
// # Guarantees
//
// However a run ends, by an answer, a question, a limit, an error, a cancelled context or a consumer that stops
// ranging, the State is consistent: every tool call has exactly one result, in call order, before the next model
// call ([CheckHistory]); everything that was emitted was saved first; every goroutine has ended. Only one run at a
// time may use a State; a second one gets [ErrBusy].
//
// The start of a call is saved before the call starts, on disk with [Config.Save]. If a program is stopped in the
// middle of a call, the next run does not repeat the call: its result says that it is unknown whether the call had an
// effect. Only a call that its tool declares idempotent ([tool.IdempotentChecker]) is repeated, once, with the same
// idempotency key ([tool.Call]).
//
// # Trust
//
// The model's output, tool results and loaded States are not trusted: arguments are validated, every call is
// judged by package permission, and a call that the user approved is judged again when it runs. A tool that runs
// is not confined here. Messages, files and results may contain secrets: [Config.Redact] keeps those that it
// recognizes out of what is saved and emitted, but does not hide them from the model.
package agent

import (
	"cmp"
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

// The errors that callers branch on. Other errors wrap a [*model.Error], or an error that a
// tool returned with [tool.ErrAbort].
var (
	ErrWaiting     = errors.New("waiting")                      // for approval or a result; see [State.Pending]
	ErrNoCall      = decide.ErrNoCall                           // an answer names a call that is not open
	ErrNotWaiting  = decide.ErrNotWaiting                       // an answer names a call that does not wait for it
	ErrInterrupted = errors.New("interrupted")                  // by an [Interrupt], or by the end of the context, whose cause it wraps
	ErrLimit       = errors.New("a limit was reached")          // see [Limits]
	ErrBusy        = errors.New("the state is in use by a run") // only one run at a time
	ErrExpired     = errors.New("the question has expired")     // see [Config.AnswerWithin]
)

// A Config configures an agent. Model and Toolkit are required; the zero value of every other field works.
type Config struct {
	Model   model.Model
	Toolkit *toolkit.Toolkit

	// Instructions are the system prompt. The prompt of the toolkit is added to them.
	Instructions string

	Temperature *float64 // of the model's answers; nil means the model's own default
	MaxTokens   int      // output of one answer, including reasoning; 0 means the model's own limit

	// Policy decides what may run. The zero Policy asks about every call. New rejects a rule whose tool is unknown but
	// similar in name to a known tool, and a rule with a pattern that its tool does not support. Other unknown names
	// may belong to tools that a source will list.
	Policy permission.Policy

	// Middleware wraps runs, steps, model calls, tool calls and decisions.
	Middleware []Middleware

	// Approve, if not nil, answers approval questions within the run, so that the run does not end waiting. It is
	// called for one question at a time. Running calls continue meanwhile, and their events are emitted
	// after Approve has returned. The Call of the returned Confirm may be empty.
	Approve func(context.Context, event.Approval) (event.Confirm, error)

	// Elicit, if not nil, answers questions that tools, and the MCP servers behind them, ask the user while a call
	// runs: forms and pages; see [host.Elicitation]. If its Server is empty the agent itself asks, whether to run a
	// server's request to the model (see [Limits].Samples). An MCP server waits for the answer on a live connection, so a
	// run cannot end waiting for the answer: if Elicit is nil or fails, the question is cancelled. Elicit is called on
	// the goroutine of the call, never while another question or Approve is open; its context ends with the call.
	// The answer is validated against the form, sent only to the server, and neither saved nor emitted.
	Elicit func(context.Context, host.Elicitation) (host.Answer, error)

	// AnswerWithin is the time within which an [*event.Approval] may be answered; 0 means no limit. A later answer
	// fails with [ErrExpired], and a run without inputs asks again. The context of Approve ends after
	// AnswerWithin; an answer that Approve returns later is ignored, and the run ends waiting.
	AnswerWithin time.Duration

	// Save, if not nil, saves the State. It is called after each change, before an event reports the change or a call
	// relies on it. An error ends the run: open calls are closed, and what could not be saved is not emitted, except
	// the [*event.End]. The State in memory is consistent anyway. [State.Saving] returns the events to save with it.
	Save func(context.Context, *State) error

	// Key, if not empty, seals the State, so that a client that stores it cannot change the questions, the
	// approvals, or anything else in it: a run rejects a State with a wrong seal with [ErrTampered]. The seal also
	// covers the Policy and the schemas of the tools with open calls. It is as strong as the Key: use 32 random bytes
	// (16 are the minimum), the same for all processes. The seal does not protect against replay of another State
	// with a valid seal, such as an older one: a host that lets clients store States must remember the latest seal
	// of each conversation, or a client can have an approved call run twice.
	//
	// Without a Key the messages and approvals in a loaded State are trusted: anyone who can write it can answer
	// questions, add allow rules and invent history. Deny rules, the mode and the schemas of the arguments apply even
	// then. A call is asked about again if it would leave the sandbox, or if a safety check finds a danger that is not
	// the one that the State says the user approved.
	Key []byte

	// Redact, if not nil, removes secrets from everything that leaves the run: every event, every State that is
	// encoded, by Save or otherwise, and what [Window.Results] stores. Secrets stay in what the model, tools and
	// Approve read, in the result of Reply, and in the State in memory. After a State was loaded the model reads
	// placeholders, and an open call with a placeholder in its arguments is not run. This Redactor replaces those of
	// sub-agents, which apply only if it is nil.
	//
	// Text is emitted a little later if it may be the beginning of a secret, and the arguments of
	// a call when they are complete. The errors of Run are not redacted.
	Redact *redact.Redactor

	Limits      Limits        // of the work for one input; the zero value means 50 steps
	MaxParallel int           // tool calls at a time; 0 means 8
	ToolTimeout time.Duration // for one tool call; 0 means 10 minutes, negative no limit

	// Background is how long a tool call may keep the model waiting; 0 means until the call ends. A call that takes
	// longer continues in the background, if its tool is marked Parallel or agrees ([tool.Backgrounder]), at most
	// MaxParallel calls at a time. Its result then says that it continues; the model gets the real result before
	// a later model call, in a message from the program. With the tool named background the model can look at such a
	// call, wait for it, or stop it. Sub-agents and calls that change which tools are visible are never moved.
	//
	// A run ends only after its background calls, so each delays the end by ToolTimeout at most. If the model answers
	// while some still run, the run waits for the next one to end and calls the model again, with its result.
	// Background calls are stopped when the run is cancelled or fails, and at Limits.Time, and are not repeated after
	// a crash.
	Background time.Duration

	Window Window // how the conversation is kept within the window

	// Retry configures retries of failed model calls; the zero value retries with back-off. A model that
	// was made by [middleware.Retry] keeps its own configuration. In both cases each retry is a [*event.Retry]
	// event, and OnRetry is called.
	Retry middleware.RetryConfig

	Seams
}

// Seams replace time, ids and goroutines, for tests and workflow engines. The zero value is for normal
// programs. If several runs use an agent at a time the functions must be safe for concurrent use.
type Seams struct {
	Now   func() time.Time           // nil means time.Now
	NewID func(prefix string) string // nil means [message.NewID]
	Go    func(func())               // starts a goroutine without waiting for it; nil means the go statement
}

// An Agent runs conversations. It is immutable and safe for concurrent use.
type Agent struct {
	cfg        Config
	background tool.Tool // the tool named background; nil without Config.Background
	parent     *subLink  // to the run that this agent works for as a sub-agent, or nil

	// The functions that a run calls, wrapped in Config.Middleware:
	model          model.Model
	reveals        bool // the model can be told of new tools in mid-conversation; see [model.Revealer]
	toolMiddleware []tool.Middleware
	judge          JudgeFunc
	instructions   InstructionsFunc
}

// minKey is the minimum size of [Config].Key in bytes; 128 bits cannot be guessed.
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
	case cfg.Limits.ToolCalls < 0 || cfg.Limits.Tokens < 0 || cfg.Limits.Time < 0 || !(cfg.Limits.Cost >= 0): // negative or NaN
		return nil, fmt.Errorf("agent.New: Limits has ToolCalls %d, Tokens %d, Cost %g and Time %v; none may be negative, 0 means no limit",
			cfg.Limits.ToolCalls, cfg.Limits.Tokens, cfg.Limits.Cost, cfg.Limits.Time)
	case cfg.AnswerWithin < 0:
		return nil, fmt.Errorf("agent.New: Config.AnswerWithin is %v; it must not be negative; 0 means no limit", cfg.AnswerWithin)
	case cfg.MaxTokens < 0:
		return nil, fmt.Errorf("agent.New: Config.MaxTokens is %d; it must not be negative; 0 means the model's own limit", cfg.MaxTokens)
	case cfg.Temperature != nil && !(*cfg.Temperature >= 0): // negative or NaN
		return nil, fmt.Errorf("agent.New: Config.Temperature is %g; it must be 0 or more; nil means the model's own default", *cfg.Temperature)
	case len(cfg.Key) > 0 && len(cfg.Key) < minKey:
		return nil, fmt.Errorf("agent.New: Config.Key has %d bytes; use at least %d, from crypto/rand, so that it cannot be guessed", len(cfg.Key), minKey)
	case cfg.Background < 0:
		return nil, fmt.Errorf("agent.New: Config.Background is %v; it must not be negative; 0 means never", cfg.Background)
	}
	if err := cfg.Limits.setPrice(cfg.Model); err != nil {
		return nil, fmt.Errorf("agent.New: %w", err)
	}
	var background tool.Tool
	if cfg.Background > 0 {
		var err error
		background, err = tool.New(backgroundName, backgroundDescription, manageBackground, tool.Options{Parallel: true, Control: true})
		if err != nil {
			return nil, err
		}
	}
	if err := cfg.checkPolicy(background); err != nil {
		return nil, fmt.Errorf("agent.New: Config.Policy: %w", err)
	}
	if err := cfg.Window.setDefaults(cfg.Model); err != nil {
		return nil, fmt.Errorf("agent.New: %w", err)
	}
	cfg.Limits.Steps = cmp.Or(cfg.Limits.Steps, 50)
	cfg.Limits.Samples = cmp.Or(cfg.Limits.Samples, 10)
	cfg.Limits.SampleTokens = cmp.Or(cfg.Limits.SampleTokens, 50_000)
	cfg.MaxParallel = cmp.Or(cfg.MaxParallel, 8)
	cfg.ToolTimeout = cmp.Or(cfg.ToolTimeout, 10*time.Minute)
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
	a.applyMiddleware()
	return a, nil
}

// Limits bound the work for one input. A run that reaches a limit asks the model for a final answer, without tools,
// and ends with [event.EndLimit]. Limits are checked before each model call; ToolCalls and Time also prevent the
// remaining tool calls of an answer, and Time stops running calls. Unless a field says otherwise, 0 means no limit.
// The work of sub-agents ([AsTool]) counts too, while they run; only their steps do not.
type Limits struct {
	Steps     int     // model calls with tools; 0 means 50
	ToolCalls int     // tool calls that the model may make
	Tokens    int     // input and output together, as the server reports them
	Cost      float64 // in US dollars, or in the currency of Price if that is not nil

	// Time counts from the input, including waiting for approval. When it is up, model calls and tool calls are
	// cancelled. Unless a model call was cancelled, the model may still give a final answer, within another quarter
	// of Time, but at least 1 second and at most 30.
	Time time.Duration

	// Samples and SampleTokens limit the requests of tools, and of the MCP servers behind them, to the model
	// (sampling): their number (0 means 10), and the input and output tokens of all of them (0 means 50,000). A
	// negative value forbids sampling. Tokens, Cost and Time include sampling. The policy judges each request like a
	// call of a tool named mcp__SERVER__sampling; if the policy asks, [Config.Elicit] must allow the request.
	Samples, SampleTokens int

	// Price returns the cost of the tokens of an answer. If it is nil and Cost is set, the prices are from package
	// model/catalog, and New fails for a model ([model.Named]) that is not in its table.
	Price func(modelName string, u message.Usage) float64
}

// setPrice sets Price if Cost needs it.
func (l *Limits) setPrice(m model.Model) error {
	if l.Cost <= 0 || l.Price != nil {
		return nil
	}
	price, err := catalog.Default().Price(modelName(m))
	if err != nil {
		return fmt.Errorf("Limits.Cost needs the prices of the model: %w; set Limits.Price", err)
	}
	l.Price = price
	return nil
}

// modelName returns the name of a model, "" if it has none.
func modelName(m model.Model) string {
	if named, ok := model.As[model.Named](m); ok {
		return named.Name()
	}
	return ""
}

// A Window configures how a conversation is kept within the model's window. The zero value works.
type Window struct {
	// Tokens is the size of the model's window; 0 means what the model says ([model.Windowed]), else what package
	// model/catalog has for its name ([model.Named]), else 128,000.
	Tokens int

	// Compact is the share of the window at which the conversation is shortened; 0 means 0.8, negative never.
	// First long old results are cut. If that is not enough, the model is asked for a summary of all but the newest
	// messages, in fixed fields (goal, decisions, files, facts, open tasks, …) or else in plain text. If the model gives
	// no summary, whole turns (a message of the user and what follows it) are dropped, and a note tells the model.
	// A conversation is also shortened when a server rejects a request for its length. Keep is the share of the window
	// for the newest messages, which stay verbatim, at most half of Compact; 0 means 0.1, or half of Compact if that is
	// less. Open groups, skills and tasks are repeated after the summary.
	Compact, Keep float64

	// MaxResult is how many bytes of text of a tool result the model reads; 0 means 100,000, or the number
	// of tokens in the window if that is less, negative no limit. Of a longer text the model reads the
	// beginning and the end. Results, if not nil, stores the whole text; see [ReadResult]. Pinned results
	// ([tool.Chunk]), such as the instructions of skills, are never cut.
	MaxResult int
	Results   Results

	// MaxData is how many images and files are kept in the conversation; 0 means 20, negative all. If there are more,
	// the oldest are replaced with notes until MaxData/2 are left: each replacement loses the provider's cache.
	MaxData int
}

// defaultWindow is a window that most models have. A server with a smaller one rejects a long request, and the
// conversation is then compacted.
const defaultWindow = 128_000

func (w *Window) setDefaults(m model.Model) error {
	w.Compact = cmp.Or(w.Compact, 0.8)
	// With a larger Keep the newest messages and a summary do not fit next to the system prompt and the tools: all
	// messages would be summarised. NaN is rejected, too.
	if !(w.Compact <= 1 && w.Keep >= 0) || w.Compact > 0 && w.Keep > w.Compact/2 {
		return fmt.Errorf("Window.Compact is %g and Keep %g; Compact must be at most 1, and Keep from 0 to half of Compact", w.Compact, w.Keep)
	}
	w.Keep = cmp.Or(w.Keep, max(0, min(0.1, w.Compact/2)))
	if w.Tokens < 0 {
		return fmt.Errorf("Window.Tokens is %d; it must not be negative; 0 means the model's window", w.Tokens)
	}
	if windowed, ok := model.As[model.Windowed](m); ok && w.Tokens == 0 {
		w.Tokens = windowed.ContextWindow()
	}
	if w.Tokens == 0 {
		entry, _ := catalog.Default().Find(modelName(m))
		w.Tokens = entry.Prompt() // 0 for an unknown model
	}
	w.Tokens = cmp.Or(w.Tokens, defaultWindow)
	w.MaxResult = cmp.Or(w.MaxResult, min(100_000, w.Tokens))
	w.MaxData = cmp.Or(w.MaxData, 20)
	return nil
}

// withJudgement returns a JudgeFunc whose decisions have the [permission.Judgement] without which a call does not run:
// it adds one if a middleware returned none, or one for another call. A denied call needs none.
func withJudgement(next JudgeFunc) JudgeFunc {
	return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
		d := next(ctx, p, c)
		if d.Behavior != permission.Deny && !d.Judgement.Covers(c.Tool, c.Input) {
			d.Judgement = permission.Judge(p, c)
		}
		return d
	}
}

// applyMiddleware sets the functions that Config.Middleware wraps. Run and Step are wrapped in each run.
func (a *Agent) applyMiddleware() {
	mws := a.cfg.Middleware
	a.model = wrap(mws, a.cfg.Model, func(m Middleware) func(model.Model) model.Model { return m.Model })
	a.judge = withJudgement(wrap[JudgeFunc](mws, decidePolicy, func(m Middleware) func(JudgeFunc) JudgeFunc { return m.Judge }))
	a.instructions = wrap[InstructionsFunc](mws, func(context.Context) string { return a.cfg.Instructions },
		func(m Middleware) func(InstructionsFunc) InstructionsFunc { return m.Instructions })
	for _, m := range mws {
		if m.Tool != nil {
			a.toolMiddleware = append(a.toolMiddleware, m.Tool)
		}
	}
	revealer, ok := model.As[model.Revealer](a.model)
	a.reveals = ok && revealer.Reveals()
}
