// Package agentotel traces and measures agents with OpenTelemetry, by the
// GenAI semantic conventions.
//
//	mw, err := agentotel.New(agentotel.Config{Agent: "helpdesk"})
//	a, err := agent.New(agent.Config{Middleware: []agent.Middleware{mw}, …})
//
// A run is a span "invoke_agent helpdesk"; below it each model call is a span
// "chat MODEL" and each tool call a span "execute_tool NAME". Tokens and
// durations are histograms. What is said, arguments and results are recorded
// only if [Config.Content] is set: they may hold secrets. [Config.Redact] takes
// those out that can be told.
//
// The conventions are still in development. The names are those of semantic
// conventions 1.41, the last release of OpenTelemetry's Go module that had
// them; they stand in names.go.
//
// It is a module of its own, so that nobody else pays for OpenTelemetry.
package agentotel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
)

const scope = "github.com/kitbag-go/kitbag/agent/agentotel"

// A Config says what is recorded and where. The zero Config uses the global
// providers.
type Config struct {
	Agent    string // the agent's name; empty for none
	Provider string // who serves the model, such as "openai"; empty for "openai"
	Content  bool   // record arguments and results of tools

	// Redact, if not nil, takes secrets out of contents and errors. The agent's
	// own does not reach them: tools get their arguments as they are.
	Redact *redact.Redactor

	Tracer trace.TracerProvider // nil is the global one
	Meter  metric.MeterProvider // nil is the global one
}

type recorder struct {
	cfg      Config
	tracer   trace.Tracer
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
	first    metric.Float64Histogram
}

// New returns the middleware. It fails if the meter refuses an instrument.
func New(cfg Config) (agent.Middleware, error) {
	if cfg.Provider == "" {
		cfg.Provider = "openai"
	}
	if cfg.Tracer == nil {
		cfg.Tracer = otel.GetTracerProvider()
	}
	if cfg.Meter == nil {
		cfg.Meter = otel.GetMeterProvider()
	}
	meter := cfg.Meter.Meter(scope)
	tokens, err1 := meter.Int64Histogram(metricTokens, metric.WithUnit("{token}"), metric.WithDescription("Tokens of model calls."))
	duration, err2 := meter.Float64Histogram(metricDuration, metric.WithUnit("s"), metric.WithDescription("Duration of operations."))
	first, err3 := meter.Float64Histogram(metricFirstChunk, metric.WithUnit("s"), metric.WithDescription("Time until a model began to answer."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return agent.Middleware{}, err
	}
	r := &recorder{cfg: cfg, tracer: cfg.Tracer.Tracer(scope), tokens: tokens, duration: duration, first: first}
	return agent.Middleware{Run: r.run, Model: r.model, Tool: r.tool}, nil
}

// start begins a span of an operation. The function it returns ends it.
func (r *recorder) start(ctx context.Context, operation, target string, attrs ...attribute.KeyValue) (context.Context, trace.Span, func(error)) {
	name := operation
	if target != "" {
		name += " " + target
	}
	attrs = append(attrs, attribute.String(keyOperation, operation), attribute.String(keyProvider, r.cfg.Provider))
	kind := trace.SpanKindInternal
	if operation == opChat {
		kind = trace.SpanKindClient
	}
	begin := time.Now()
	ctx, span := r.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	return ctx, span, func(err error) {
		labels := attrs[len(attrs)-2:]
		if err != nil {
			kind := errorType(err)
			labels = append(labels[:2:2], attribute.String(keyErrorType, kind))
			span.SetAttributes(attribute.String(keyErrorType, kind))
			what := kind
			if r.cfg.Content { // an error may quote what was said
				what = r.cfg.Redact.Text(err.Error())
			}
			span.SetStatus(codes.Error, what)
		}
		r.duration.Record(ctx, time.Since(begin).Seconds(), metric.WithAttributes(labels...))
		span.End()
	}
}

func errorType(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return string(e.Kind)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "_OTHER"
}

func (r *recorder) run(next agent.RunFunc) agent.RunFunc {
	return func(ctx context.Context, st *agent.State, inputs ...agent.Input) iter.Seq2[agent.Event, error] {
		return func(yield func(agent.Event, error) bool) {
			ctx, span, end := r.start(ctx, opAgent, r.cfg.Agent, attribute.String(keyAgent, r.cfg.Agent))
			var failure error
			defer func() { end(failure) }()
			for ev, err := range next(ctx, st, inputs...) {
				switch ev := ev.(type) {
				case *agent.RunStart:
					span.SetAttributes(attribute.String(keyConversation, ev.Session))
				case *agent.End:
					span.SetAttributes(attribute.StringSlice(keyFinish, []string{string(ev.Reason)}),
						attribute.Int(keyInput, ev.Usage.Input), attribute.Int(keyOutput, ev.Usage.Output))
				}
				failure = errors.Join(failure, err)
				if !yield(ev, err) {
					return
				}
			}
		}
	}
}

// A tracedModel is a model whose calls are spans.
type tracedModel struct {
	model.Model
	r *recorder
}

func (m *tracedModel) Unwrap() model.Model { return m.Model }

func (r *recorder) model(next model.Model) model.Model { return &tracedModel{next, r} }

func (m *tracedModel) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		name := ""
		if n, ok := model.As[model.Named](m.Model); ok {
			name = n.Name()
		}
		begin, began := time.Now(), false
		ctx, span, end := m.r.start(ctx, opChat, name, attribute.String(keyModel, name))
		var failure error
		defer func() { end(failure) }()
		for ch, err := range m.Model.Generate(ctx, req) {
			if !began && err == nil {
				began = true
				m.r.first.Record(ctx, time.Since(begin).Seconds(), metric.WithAttributes(attribute.String(keyModel, name)))
			}
			if f, ok := ch.(*model.Finish); ok {
				m.finish(ctx, span, name, f)
			}
			failure = err
			if !yield(ch, err) {
				return
			}
		}
	}
}

func (m *tracedModel) finish(ctx context.Context, span trace.Span, name string, f *model.Finish) {
	span.SetAttributes(attribute.String(keyResponseModel, f.Model), attribute.String(keyResponseID, f.ID),
		attribute.StringSlice(keyFinish, []string{string(f.Reason)}),
		attribute.Int(keyInput, f.Usage.Input), attribute.Int(keyOutput, f.Usage.Output), attribute.Int(keyCached, f.Usage.Cached))
	for kind, n := range map[string]int{"input": f.Usage.Input, "output": f.Usage.Output} {
		m.r.tokens.Record(ctx, int64(n), metric.WithAttributes(attribute.String(keyModel, name),
			attribute.String(keyTokenType, kind), attribute.String(keyOperation, opChat), attribute.String(keyProvider, m.r.cfg.Provider)))
	}
}

func (r *recorder) tool(next tool.Handler) tool.Handler {
	return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			ctx, span, end := r.start(ctx, opTool, call.Name,
				attribute.String(keyTool, call.Name), attribute.String(keyCall, call.ID), attribute.String(keyToolType, "function"))
			var failure error
			defer func() { end(failure) }()
			if r.cfg.Content {
				span.SetAttributes(attribute.String(keyArguments, string(r.cfg.Redact.JSON(call.Input))))
			}
			col := tool.NewCollector(call)
			for ch, err := range next(ctx, t, call) {
				if err == nil {
					col.Add(ch)
				}
				if err == nil && ch.Failed {
					err = fmt.Errorf("the tool failed")
					failure = err
					if !yield(ch, nil) {
						return
					}
					continue
				}
				failure = errors.Join(failure, err)
				if !yield(ch, err) {
					return
				}
			}
			if r.cfg.Content {
				span.SetAttributes(attribute.String(keyResult, r.cfg.Redact.Text(col.Result().Text())))
			}
		}
	}
}
