// Package agentlog logs what agents do with log/slog, one line for each operation:
//
//	mw := agentlog.New(agentlog.Config{Agent: "helpdesk", Logger: logger})
//	a, err := agent.New(agent.Config{Middleware: []agent.Middleware{mw}, …})
//
// A line is written when its operation has ended, with its result:
//
//	invoke_agent   a run: why it ended, tokens                 info
//	step           a model call and its tool calls             debug
//	chat           a model call: model, tokens, why it ended   info
//	permission     the decision about a tool call              info
//	execute_tool   a tool call                                 info
//	compaction     the conversation was made shorter           info
//
// Failed operations and denied calls are warnings; a failed run is an error. Each line has the conversation's id;
// all but permission and compaction have a duration. Attributes have the names of OpenTelemetry's GenAI semantic
// conventions 1.41, or names of our own that start with "kitbag.". Each call has one permission line: when it
// starts, is denied, or still waits for approval at the end of the run. A call that did not run, because its tool
// is unknown or its arguments are wrong, has no permission line, but a line execute_tool with error.type=not_run.
//
// Messages, arguments, results, reasons and the text of errors are logged only if [Config.Content] is set: they
// may contain secrets. [Config.Redact] removes the secrets that it recognizes.
//
// The logger gets the operation's context, so that a handler that supports traces can join the lines with the spans
// of package agentotel, if agentotel's middleware comes first.
package agentlog

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/genai"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
)

// The attributes that the GenAI conventions do not have.
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

// A Config says what is logged, and to which logger. The zero Config logs to the default logger.
type Config struct {
	Agent   string           // the agent's name; empty for none
	Logger  *slog.Logger     // nil is slog.Default at the time a line is written
	Content bool             // log arguments, results, reasons and the text of errors
	Redact  *redact.Redactor // removes secrets from what Content adds; nil removes nothing
}

// New returns the middleware.
func New(cfg Config) agent.Middleware {
	l := &log{cfg}
	mw := genai.Begin(l.begin).Watch(cfg.Agent, false) // false: no line needs the model's answer
	logRun := mw.Run
	mw.Run = func(next agent.RunFunc) agent.RunFunc { return logRun(l.logEvents(next)) }
	mw.Step = l.logStep
	return mw
}

type log struct{ cfg Config }

// write writes a line. Attributes without a value are omitted.
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

// content returns the attribute for a text that may contain secrets; without Config.Content an empty one, which write
// omits.
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

// begin is a [genai.Begin]: the function that it returns logs the operation.
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
	if op.End == nil { // the consumer stopped
		return append(attrs, slog.String(genai.Finish, string(event.EndInterrupted)))
	}
	return append(attrs, slog.String(genai.Finish, string(op.End.Reason)), slog.Int(keySteps, op.End.Steps),
		slog.Int(genai.Input, op.End.Usage.Input), slog.Int(genai.Output, op.End.Usage.Output))
}

func chatAttrs(op *genai.Op) []slog.Attr {
	attrs := []slog.Attr{slog.String(genai.Model, op.Target)}
	f := op.Finish
	if f == nil { // the answer was not completed
		return attrs
	}
	return append(attrs, slog.String(genai.ResponseModel, f.Model), slog.String(genai.ResponseID, f.ID),
		slog.String(genai.Finish, string(f.Reason)), slog.Int(genai.Input, f.Usage.Input),
		slog.Int(genai.Output, f.Usage.Output), slog.Int(genai.Cached, f.Usage.Cached))
}

func (l *log) logStep(next agent.StepFunc) agent.StepFunc {
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

// logEvents logs the decisions and compactions among the events of a run.
func (l *log) logEvents(next agent.RunFunc) agent.RunFunc {
	return func(ctx context.Context, st *agent.State, inputs ...agent.Input) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			d := decisions{log: l, ctx: ctx, calls: map[string]*decision{}}
			defer d.writeAsked() // if the consumer stops before the End
			for ev, err := range next(ctx, st, inputs...) {
				if c, ok := ev.(*event.Compaction); ok {
					l.writeCompaction(ctx, c)
				}
				d.observe(ev)
				if !yield(ev, err) {
					return
				}
			}
		}
	}
}

// decisions are the permission decisions of one run. The policy may decide more than once about a call, for example
// when another call has run in the meantime; only the final decision is logged.
type decisions struct {
	log   *log
	ctx   context.Context
	calls map[string]*decision // by id, of the calls without a result
	asked []*decision          // calls whose question has no answer yet
}

// A decision is what is known about the decision on a call.
type decision struct {
	tool   string
	input  json.RawMessage
	reason string
	safety bool // the user was asked, and no rule can answer the question
	logged bool
}

// observe logs the decision that an event shows, or remembers what the event says about a call.
func (d *decisions) observe(ev event.Event) {
	switch ev := ev.(type) {
	case *event.ToolCall:
		d.calls[ev.Call] = &decision{tool: ev.Name, input: ev.Input}
	case *event.Approval:
		c := d.calls[ev.Call]
		if c == nil && strings.Contains(ev.Call, "/") { // a sub-agent's call, which the sub-agent may log itself
			return
		}
		if c == nil { // the call was announced in an earlier run
			c = new(decision)
			d.calls[ev.Call] = c
		}
		*c = decision{tool: ev.Name, input: ev.Input, reason: ev.Reason, safety: ev.Safety}
		if !slices.Contains(d.asked, c) {
			d.asked = append(d.asked, c)
		}
	case *event.ToolStart:
		d.writeOnce(ev.Call, ev.Name, permission.Allow, ev.Reason)
	case *event.External:
		if d.calls[ev.Call] != nil { // else the run that announced the call has logged its decision
			d.writeOnce(ev.Call, ev.Name, permission.Allow, "")
		}
	case *event.ToolResult:
		c := d.calls[ev.Call]
		switch {
		case ev.Outcome == message.OutcomeDenied:
			d.writeOnce(ev.Call, ev.Name, permission.Deny, ev.Text)
		case slices.Contains(d.asked, c): // the call was interrupted before the user answered
			d.writeOnce(ev.Call, ev.Name, permission.Ask, c.reason)
		}
		delete(d.calls, ev.Call)
	case *event.End:
		d.writeAsked()
	}
}

// writeAsked logs the calls whose question has no answer.
func (d *decisions) writeAsked() {
	for _, c := range d.asked {
		d.log.writeDecision(d.ctx, c, permission.Ask)
	}
	d.asked = nil
}

// writeOnce logs the decision about a call, which is final, unless it has been logged.
func (d *decisions) writeOnce(call, tool string, behavior permission.Behavior, reason string) {
	c := d.calls[call]
	if c == nil {
		c = new(decision)
		d.calls[call] = c
	}
	d.asked = slices.DeleteFunc(d.asked, func(asked *decision) bool { return asked == c })
	if c.logged {
		return
	}
	c.tool, c.reason, c.logged = tool, reason, true
	d.log.writeDecision(d.ctx, c, behavior)
}

func (l *log) writeDecision(ctx context.Context, c *decision, behavior permission.Behavior) {
	level := slog.LevelInfo
	if behavior == permission.Deny {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String(genai.Tool, c.tool), slog.String(keyBehavior, string(behavior)),
		slog.Bool(keySafety, c.safety), l.content(keyReason, c.reason)}
	if l.cfg.Content {
		attrs = append(attrs, slog.String(genai.Arguments, string(l.cfg.Redact.JSON(c.input))))
	}
	l.write(ctx, level, "permission", attrs...)
}

func (l *log) writeCompaction(ctx context.Context, c *event.Compaction) {
	level, failed := slog.LevelInfo, slog.Attr{}
	if c.Failed != "" {
		level, failed = slog.LevelWarn, slog.String(genai.ErrorType, "no_summary")
	}
	l.write(ctx, level, "compaction", slog.Int(keyBefore, c.Before), slog.Int(keyAfter, c.After), slog.Int(keyDropped, c.Dropped),
		slog.Int(genai.Input, c.Usage.Input), slog.Int(genai.Output, c.Usage.Output),
		failed, l.content(keyError, c.Failed), l.content(keySummary, c.Summary))
}
