// Package agentlog logs what agents do with log/slog, one line for each thing
// that was done:
//
//	mw := agentlog.New(agentlog.Config{Agent: "helpdesk", Logger: logger})
//	a, err := agent.New(agent.Config{Middleware: []agent.Middleware{mw}, …})
//
// A line is written when its operation has ended, so that it says how:
//
//	invoke_agent   a run: why it ended, tokens                 info
//	step           a model call and its tool calls             debug
//	chat           a model call: model, tokens, why it ended   info
//	permission     a decision about a tool call                info
//	execute_tool   a tool call                                 info
//	compaction     the conversation was made shorter           info
//
// What failed, and what was denied, is a warning; a failed run is an error.
// Each line has the conversation's id and, where it has one, a duration. Names
// of attributes are those of OpenTelemetry's GenAI semantic conventions 1.41,
// and begin with "kitbag." where those have none. A call that did not run, because its
// tool is unknown or its arguments are wrong, has no line: the model is told, and
// an [agent.ToolResult] tells the program.
//
// What was said, arguments, results, reasons and the text of errors are logged
// only if [Config.Content] is set: they may hold secrets. [Config.Redact] takes
// those out that can be told.
//
// The logger gets the operation's context, so that a handler that knows traces
// can join the lines with those of package agentotel. Put that middleware first.
package agentlog

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/genai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
)

// The names that the conventions do not have.
const (
	keyDuration = "kitbag.duration_seconds"
	keySteps    = "kitbag.steps"
	keyBehavior = "kitbag.permission.behavior"
	keySafety   = "kitbag.permission.safety"
	keyReason   = "kitbag.permission.reason"
	keyBefore   = "kitbag.compaction.tokens_before"
	keyAfter    = "kitbag.compaction.tokens_after"
	keyDropped  = "kitbag.compaction.messages_dropped"
	keySummary  = "kitbag.compaction.summary"
	keyError    = "error.message"
)

// A Config says what is logged and where. The zero Config logs to the default
// logger.
type Config struct {
	Agent   string           // the agent's name; empty for none
	Logger  *slog.Logger     // nil is slog.Default, as it is when a line is written
	Content bool             // log arguments, results, reasons and the text of errors
	Redact  *redact.Redactor // for contents; nil leaves them as they are
}

// New returns the middleware.
func New(cfg Config) agent.Middleware {
	l := &log{cfg}
	mw := genai.Begin(l.begin).Watch(cfg.Agent)
	watch := mw.Run
	mw.Run = func(next agent.RunFunc) agent.RunFunc { return watch(l.compactions(next)) }
	mw.Step, mw.Judge = l.step, l.judge
	return mw
}

type log struct{ cfg Config }

// write writes a line. attrs without a value are left out.
func (l *log) write(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	logger := l.cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	var all []slog.Attr
	if run := genai.RunOf(ctx); run != nil && run.Session != "" {
		all = append(all, slog.String(genai.Conversation, run.Session))
	}
	for _, a := range attrs {
		if !a.Equal(slog.Attr{}) && a.Value.String() != "" {
			all = append(all, a)
		}
	}
	logger.LogAttrs(ctx, level, msg, all...)
}

// content returns the attribute for something that may hold secrets.
func (l *log) content(key, text string) slog.Attr {
	if !l.cfg.Content {
		return slog.Attr{}
	}
	return slog.String(key, l.cfg.Redact.Text(text))
}

func since(start time.Time) slog.Attr {
	return slog.Float64(keyDuration, time.Since(start).Seconds())
}

// failure returns the attributes of an error, none for nil.
func (l *log) failure(err error) []slog.Attr {
	if err == nil {
		return nil
	}
	return []slog.Attr{slog.String(genai.ErrorType, genai.ErrorClass(err)), l.content(keyError, err.Error())}
}

func (l *log) begin(ctx context.Context, op *genai.Op) (context.Context, func()) {
	start := time.Now()
	return ctx, func() {
		level, attrs := slog.LevelInfo, []slog.Attr{slog.String(genai.Operation, op.Name)}
		if op.Err != nil {
			level = slog.LevelWarn
		}
		switch op.Name {
		case genai.OpAgent:
			if op.Err != nil {
				level = slog.LevelError
			}
			attrs = append(attrs, runAttrs(op)...)
		case genai.OpChat:
			attrs = append(attrs, chatAttrs(op)...)
		case genai.OpTool:
			attrs = append(attrs, slog.String(genai.Tool, op.Target), slog.String(genai.Call, op.Call.ID))
			if l.cfg.Content {
				attrs = append(attrs, slog.String(genai.Arguments, string(l.cfg.Redact.JSON(op.Call.Input))))
			}
			if op.Result != nil {
				attrs = append(attrs, l.content(genai.Result, op.Result.Text()))
			}
		}
		l.write(ctx, level, op.Name, append(append(attrs, since(start)), l.failure(op.Err)...)...)
	}
}

func runAttrs(op *genai.Op) []slog.Attr {
	attrs := []slog.Attr{slog.String(genai.Agent, op.Target)}
	if op.End == nil { // the consumer broke off
		return append(attrs, slog.String(genai.Finish, string(agent.EndInterrupted)))
	}
	return append(attrs, slog.String(genai.Finish, string(op.End.Reason)), slog.Int(keySteps, op.End.Steps),
		slog.Int(genai.Input, op.End.Usage.Input), slog.Int(genai.Output, op.End.Usage.Output))
}

func chatAttrs(op *genai.Op) []slog.Attr {
	attrs := []slog.Attr{slog.String(genai.Model, op.Target)}
	f := op.Finish
	if f == nil {
		return attrs
	}
	return append(attrs, slog.String(genai.ResponseModel, f.Model), slog.String(genai.ResponseID, f.ID),
		slog.String(genai.Finish, string(f.Reason)), slog.Int(genai.Input, f.Usage.Input),
		slog.Int(genai.Output, f.Usage.Output), slog.Int(genai.Cached, f.Usage.Cached))
}

func (l *log) step(next agent.StepFunc) agent.StepFunc {
	return func(ctx context.Context) error {
		start := time.Now()
		err := next(ctx)
		level := slog.LevelDebug
		if err != nil {
			level = slog.LevelWarn
		}
		l.write(ctx, level, "step", append([]slog.Attr{since(start)}, l.failure(err)...)...)
		return err
	}
}

func (l *log) judge(next agent.JudgeFunc) agent.JudgeFunc {
	return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
		d := next(ctx, p, c)
		level := slog.LevelInfo
		if d.Behavior == permission.Deny {
			level = slog.LevelWarn
		}
		attrs := []slog.Attr{slog.String(genai.Tool, c.Tool), slog.String(keyBehavior, string(d.Behavior)),
			slog.Bool(keySafety, d.Safety), l.content(keyReason, d.Reason)}
		if l.cfg.Content {
			attrs = append(attrs, slog.String(genai.Arguments, string(l.cfg.Redact.JSON(c.Input))))
		}
		l.write(ctx, level, "permission", attrs...)
		return d
	}
}

// compactions logs those that a run tells of.
func (l *log) compactions(next agent.RunFunc) agent.RunFunc {
	return func(ctx context.Context, st *agent.State, inputs ...agent.Input) iter.Seq2[agent.Event, error] {
		return func(yield func(agent.Event, error) bool) {
			for ev, err := range next(ctx, st, inputs...) {
				if c, ok := ev.(*agent.Compaction); ok {
					l.compaction(ctx, c)
				}
				if !yield(ev, err) {
					return
				}
			}
		}
	}
}

func (l *log) compaction(ctx context.Context, c *agent.Compaction) {
	level, failed := slog.LevelInfo, slog.Attr{}
	if c.Failed != "" {
		level, failed = slog.LevelWarn, slog.String(genai.ErrorType, "no_summary")
	}
	l.write(ctx, level, "compaction", slog.Int(keyBefore, c.Before), slog.Int(keyAfter, c.After), slog.Int(keyDropped, c.Dropped),
		slog.Int(genai.Input, c.Usage.Input), slog.Int(genai.Output, c.Usage.Output),
		failed, l.content(keyError, c.Failed), l.content(keySummary, c.Summary))
}
