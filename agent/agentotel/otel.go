// Package agentotel traces and measures agents with OpenTelemetry, according to the GenAI semantic conventions.
//
//	mw, err := agentotel.New(agentotel.Config{Agent: "helpdesk"})
//	a, err := agent.New(agent.Config{Middleware: []agent.Middleware{mw}, …})
//
// A run is a span "invoke_agent helpdesk"; below it each model call is a span "chat MODEL" and each tool call a
// span "execute_tool NAME". Tokens and durations are histograms. Messages, arguments and results are recorded
// only if [Config.Content] is set: they may contain secrets. With Content a chat span has all messages of its request,
// in the JSON of the conventions, but only the type and the size of images and files. [Config.Redact] removes the
// secrets that it recognizes.
//
// The conventions are still in development. The names are those of semantic conventions 1.41, the last release of
// OpenTelemetry's Go module that had them.
//
// Spans continue a trace that an MCP client has sent, and the span of a tool call is sent to the tool's MCP server,
// as W3C trace context in _meta. For a gateway or server without an agent, the field Tool of the middleware is enough:
//
//	mcpgateway.ServeOptions{Middleware: []tool.Middleware{mw.Tool}, …}
//
// This package is a module of its own, so that only programs that use it depend on OpenTelemetry.
package agentotel

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/genai"
	"github.com/kitbag-go/kitbag/internal/tracecontext"
	"github.com/kitbag-go/kitbag/redact"
)

const (
	scope     = "github.com/kitbag-go/kitbag/agent/agentotel"
	schemaURL = "https://opentelemetry.io/schemas/1.41.0"
)

// moduleVersion returns the version of this module that the program was built with.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == scope {
				return m.Version
			}
		}
	}
	return "(devel)"
}

// A Config says what is recorded, and with which providers. The zero Config uses the global providers.
type Config struct {
	Agent    string // the agent's name; empty for none
	Provider string // who serves the model, such as "anthropic"; empty for "openai"
	Content  bool   // record instructions, messages, and arguments and results of tools

	// Redact, if not nil, removes secrets from contents and errors. The agent's own redactor does not apply
	// here: tools get their arguments unchanged.
	Redact *redact.Redactor

	Tracer trace.TracerProvider // nil is the global one
	Meter  metric.MeterProvider // nil is the global one
}

var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

type recorder struct {
	cfg      Config
	tracer   trace.Tracer
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram

	timeToFirstChunk metric.Float64Histogram
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
	version := moduleVersion()
	meter := cfg.Meter.Meter(scope, metric.WithInstrumentationVersion(version), metric.WithSchemaURL(schemaURL))
	tokens, err1 := meter.Int64Histogram(genai.MetricTokens, metric.WithUnit("{token}"), metric.WithDescription("Tokens of model calls."))
	duration, err2 := meter.Float64Histogram(genai.MetricDuration, metric.WithUnit("s"), metric.WithDescription("Duration of operations."))
	timeToFirstChunk, err3 := meter.Float64Histogram(genai.MetricFirstChunk, metric.WithUnit("s"), metric.WithDescription("Time until a model began to answer."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return agent.Middleware{}, err
	}
	tracer := cfg.Tracer.Tracer(scope, trace.WithInstrumentationVersion(version), trace.WithSchemaURL(schemaURL))
	r := &recorder{cfg, tracer, tokens, duration, timeToFirstChunk}
	return genai.Begin(r.begin).Watch(cfg.Agent, cfg.Content), nil
}

// begin begins the span of an operation. The function that it returns ends the span.
func (r *recorder) begin(ctx context.Context, op *genai.Op) (context.Context, func()) {
	name := op.Name
	if op.Target != "" {
		name += " " + op.Target
	}
	kind := trace.SpanKindInternal
	if op.Name == genai.OpChat {
		kind = trace.SpanKindClient
	}
	labels := r.labels(op)
	start := time.Now()
	if !trace.SpanContextFromContext(ctx).IsValid() { // an MCP client may have sent the parent span
		c := tracecontext.From(ctx)
		ctx = w3c.Extract(ctx, propagation.MapCarrier{"traceparent": c.Parent, "tracestate": c.State, "baggage": c.Baggage})
	}
	ctx, span := r.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(slices.Concat(r.startAttributes(op), labels)...))
	carrier := propagation.MapCarrier{} // the trace context that is sent to the MCP server of a tool
	w3c.Inject(ctx, carrier)
	ctx = tracecontext.With(ctx, tracecontext.Context{Parent: carrier["traceparent"], State: carrier["tracestate"], Baggage: carrier["baggage"]})
	return ctx, func() {
		span.SetAttributes(r.endAttributes(op)...)
		if op.Name == genai.OpChat {
			r.measure(ctx, op, labels)
		}
		if op.Err != nil {
			description := genai.ErrorClass(op.Err)
			errorType := attribute.String(genai.ErrorType, description)
			labels = append(labels, errorType)
			span.SetAttributes(errorType)
			if r.cfg.Content { // an error may quote the conversation
				description = r.cfg.Redact.Text(op.Err.Error())
			}
			span.SetStatus(codes.Error, description)
		}
		r.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(labels...))
		span.End()
	}
}

// labels returns the attributes that the span and the metrics of an operation share.
func (r *recorder) labels(op *genai.Op) []attribute.KeyValue {
	labels := []attribute.KeyValue{attribute.String(genai.Operation, op.Name), attribute.String(genai.Provider, r.cfg.Provider)}
	if op.Name == genai.OpChat {
		labels = append(labels, nonEmpty(genai.Model, op.Target)...)
	}
	if op.Host != "" {
		labels = append(labels, attribute.String(genai.Address, op.Host), attribute.Int(genai.Port, op.Port))
	}
	return labels
}

// nonEmpty returns the attribute of a text, or none if the text is empty.
func nonEmpty(key, value string) []attribute.KeyValue {
	if value == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String(key, value)}
}

// startAttributes returns the attributes that are known when an operation begins: samplers see them.
func (r *recorder) startAttributes(op *genai.Op) []attribute.KeyValue {
	attrs := nonEmpty(genai.Conversation, op.Session)
	switch op.Name {
	case genai.OpAgent:
		return append(attrs, nonEmpty(genai.Agent, op.Target)...)
	case genai.OpChat:
		if r.cfg.Content {
			attrs = append(attrs, r.inputMessages(op.Request)...)
		}
	case genai.OpTool:
		attrs = append(attrs, attribute.String(genai.Tool, op.Target),
			attribute.String(genai.Call, op.Call.ID), attribute.String(genai.ToolType, "function"))
		if r.cfg.Content {
			attrs = append(attrs, attribute.String(genai.Arguments, string(r.cfg.Redact.JSON(op.Call.Input))))
		}
	}
	return attrs
}

// endAttributes returns the attributes that are known when an operation has ended.
func (r *recorder) endAttributes(op *genai.Op) []attribute.KeyValue {
	attrs := nonEmpty(genai.Conversation, op.Session) // a new conversation has its id only now
	if e := op.End; e != nil {
		attrs = append(attrs, attribute.StringSlice(genai.Finish, []string{string(e.Reason)}),
			attribute.Int(genai.Input, e.Usage.Input), attribute.Int(genai.Output, e.Usage.Output))
	}
	if f := op.Finish; f != nil {
		attrs = slices.Concat(attrs, nonEmpty(genai.ResponseModel, f.Model), nonEmpty(genai.ResponseID, f.ID))
		attrs = append(attrs,
			attribute.StringSlice(genai.Finish, []string{string(f.Reason)}),
			attribute.Int(genai.Input, f.Usage.Input), attribute.Int(genai.Output, f.Usage.Output), attribute.Int(genai.Cached, f.Usage.Cached))
	}
	if r.cfg.Content && op.Answer != nil && len(op.Answer.Blocks) > 0 {
		attrs = append(attrs, r.outputMessage(op))
	}
	if r.cfg.Content && op.Result != nil {
		attrs = append(attrs, attribute.String(genai.Result, r.cfg.Redact.Text(op.Result.Text())))
	}
	return attrs
}

// measure records the metrics that only model calls have: tokens and the time to the first chunk.
func (r *recorder) measure(ctx context.Context, op *genai.Op, labels []attribute.KeyValue) {
	if op.First > 0 {
		r.timeToFirstChunk.Record(ctx, op.First.Seconds(), metric.WithAttributes(labels...))
	}
	if op.Finish == nil {
		return
	}
	labels = slices.Concat(labels, nonEmpty(genai.ResponseModel, op.Finish.Model))
	for _, n := range []struct {
		kind   string
		tokens int
	}{{"input", op.Finish.Usage.Input}, {"output", op.Finish.Usage.Output}} {
		r.tokens.Record(ctx, int64(n.tokens), metric.WithAttributes(append(slices.Clip(labels), attribute.String(genai.TokenType, n.kind))...))
	}
}
