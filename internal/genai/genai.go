// Package genai is shared by tracing and logging of agents: the names of OpenTelemetry's semantic conventions for
// generative AI, and a middleware that observes runs, model calls and tool calls.
package genai

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// The names of the GenAI semantic conventions, release 1.41.
const (
	OpAgent = "invoke_agent"
	OpChat  = "chat"
	OpTool  = "execute_tool"

	Operation     = "gen_ai.operation.name"
	Provider      = "gen_ai.provider.name"
	Agent         = "gen_ai.agent.name"
	Conversation  = "gen_ai.conversation.id"
	Model         = "gen_ai.request.model"
	ResponseModel = "gen_ai.response.model"
	ResponseID    = "gen_ai.response.id"
	Finish        = "gen_ai.response.finish_reasons"
	Input         = "gen_ai.usage.input_tokens"
	Output        = "gen_ai.usage.output_tokens"
	Cached        = "gen_ai.usage.cache_read.input_tokens"
	TokenType     = "gen_ai.token.type"
	Tool          = "gen_ai.tool.name"
	ToolType      = "gen_ai.tool.type"
	Call          = "gen_ai.tool.call.id"
	Arguments     = "gen_ai.tool.call.arguments"
	Result        = "gen_ai.tool.call.result"
	ErrorType     = "error.type"
	Address       = "server.address"
	Port          = "server.port"
	Instructions  = "gen_ai.system_instructions"
	Inputs        = "gen_ai.input.messages"
	Outputs       = "gen_ai.output.messages"

	MetricTokens     = "gen_ai.client.token.usage"
	MetricDuration   = "gen_ai.client.operation.duration"
	MetricFirstChunk = "gen_ai.client.operation.time_to_first_chunk"
)

// An Op is an observed operation. Name, Target and Call are set when it begins, and the other fields by its end.
type Op struct {
	Name   string // OpAgent, OpChat or OpTool
	Target string // the agent, model or tool; may be empty
	Err    error  // why it failed

	Session string     // of the operation's run; empty until the run has begun
	End     *event.End // of a run, nil if the consumer stopped early

	Request *model.Request   // of a model call
	Finish  *model.Finish    // nil if there was none
	Answer  *message.Message // the received part, if answers are collected; see [Begin.Watch]
	First   time.Duration    // until the first chunk; 0 if there was none
	Host    string           // of the model's server; empty if unknown
	Port    int

	Call   tool.Call           // of a tool call
	Result *message.ToolResult // nil if it did not end
}

var (
	errFailed = errors.New("the tool failed")      // in place of the text for the model, which is content
	errNotRun = errors.New("the call did not run") // its tool is unknown, its arguments are wrong, or a limit was reached
)

// A Begin is called when an operation begins. It returns the context of everything within
// the operation, and a function that is called at its end.
type Begin func(context.Context, *Op) (context.Context, func())

// Watch returns the middleware that calls begin for each operation. With answers it
// collects the model's answers in Op.Answer, which costs a second copy of each.
func (begin Begin) Watch(agentName string, answers bool) agent.Middleware {
	return agent.Middleware{
		Run: func(next agent.RunFunc) agent.RunFunc { return begin.run(agentName, next) },
		Model: func(next model.Model) model.Model {
			return &observedModel{next, begin, answers}
		},
		Tool: begin.tool,
	}
}

type runKey struct{}

// RunOf returns the run of the context, or nil.
func RunOf(ctx context.Context) *Op {
	op, _ := ctx.Value(runKey{}).(*Op)
	return op
}

// run observes a run to its end. If the consumer stops early there is no End, but the
// function that begin returned is called.
func (begin Begin) run(name string, next agent.RunFunc) agent.RunFunc {
	return func(ctx context.Context, st *agent.State, inputs ...agent.Input) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			op := &Op{Name: OpAgent, Target: name}
			calls := map[string]*event.ToolCall{} // the calls that have not started, by id
			ctx, end := begin(context.WithValue(ctx, runKey{}, op), op)
			defer end()
			for ev, err := range next(ctx, st, inputs...) {
				switch ev := ev.(type) {
				case *event.RunStart:
					op.Session = ev.Session
				case *event.ToolCall:
					calls[ev.Call] = ev
				case *event.ToolStart:
					delete(calls, ev.Call)
				case *event.External:
					delete(calls, ev.Call)
				case *event.ToolResult:
					if c := calls[ev.Call]; c != nil && ev.Outcome == message.OutcomeError {
						begin.notRun(ctx, c, ev)
					}
				case *event.End:
					op.End = ev
				}
				op.Err = errors.Join(op.Err, err)
				if !yield(ev, err) {
					return
				}
			}
		}
	}
}

// notRun observes a call that ended before it was run.
func (begin Begin) notRun(ctx context.Context, c *event.ToolCall, res *event.ToolResult) {
	op := &Op{Name: OpTool, Target: res.Name, Session: session(ctx), Call: tool.Call{ID: c.Call, Name: res.Name, Input: c.Input}}
	_, end := begin(ctx, op)
	op.Err, op.Result = errNotRun, res.Result
	end()
}

// An observedModel observes each attempt of a call, since retries wrap the models that middleware returns.
type observedModel struct {
	model.Model
	begin   Begin
	answers bool
}

func (m *observedModel) Unwrap() model.Model { return m.Model }

func (m *observedModel) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		op := &Op{Name: OpChat, Request: req, Session: session(ctx)}
		if n, ok := model.As[model.Named](m.Model); ok {
			op.Target = n.Name()
		}
		if s, ok := model.As[model.Served](m.Model); ok {
			op.Host, op.Port = s.Server()
		}
		start := time.Now()
		ctx, end := m.begin(ctx, op)
		defer end()
		chunks := func(yield func(model.Chunk, error) bool) {
			for ch, err := range m.Model.Generate(ctx, req) {
				if op.First == 0 && err == nil {
					op.First = max(1, time.Since(start)) // not 0 if the clock is coarse
				}
				if f, ok := ch.(*model.Finish); ok {
					op.Finish = f
				}
				op.Err = err
				if !yield(ch, err) {
					return
				}
			}
		}
		if !m.answers {
			chunks(yield)
			return
		}
		op.Answer, _, _ = model.Collect(func(collect func(model.Chunk, error) bool) {
			collecting := true // the collector stops at the finish, but the consumer gets all chunks
			chunks(func(ch model.Chunk, err error) bool {
				collecting = collecting && collect(ch, err)
				return yield(ch, err)
			})
		})
	}
}

// session returns the session of the context's run.
func session(ctx context.Context) string {
	if run := RunOf(ctx); run != nil {
		return run.Session
	}
	return ""
}

// tool observes a call. A failure that the tool reports as a result counts as an error.
func (begin Begin) tool(next tool.Handler) tool.Handler {
	return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			op := &Op{Name: OpTool, Target: call.Name, Call: call, Session: session(ctx)}
			ctx, end := begin(ctx, op)
			defer end()
			col := tool.NewCollector(call)
			for ch, err := range next(ctx, t, call) {
				switch {
				case err != nil:
					op.Err = err
				case ch.Failed:
					op.Err = errFailed
					fallthrough
				default:
					col.Add(ch)
				}
				if !yield(ch, err) {
					return
				}
			}
			op.Result = col.Result()
		}
	}
}

// ErrorClass returns the low-cardinality name of an error: the kind of a failed model call, and so on.
func ErrorClass(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return string(e.Kind)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, errNotRun):
		return "not_run"
	}
	return "_OTHER"
}
