package agentotel

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/tracecontext"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var update = flag.Bool("update", false, "write the golden file")

type in struct {
	City string `json:"city"`
}

// TestSpans compares the spans of a run with a good call and a bad call, with content off and on, with
// testdata/spans.golden.
func TestSpans(t *testing.T) {
	var b strings.Builder
	for _, content := range []bool{false, true} {
		fmt.Fprintf(&b, "# content: %v\n", content)
		spans := tracetest.NewSpanRecorder()
		reader := metric.NewManualReader()
		mw, err := New(Config{Agent: "helpdesk", Content: content,
			Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
			Meter:  metric.NewMeterProvider(metric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		weather := tool.Must(tool.New("weather", "The weather.", func(_ context.Context, in in) (string, error) {
			if in.City == "" {
				return "", errors.New("no city")
			}
			return "fog in " + in.City, nil
		}))
		m := scripted.New(scripted.Call("weather", in{"Graz"}), scripted.Call("weather", in{""}), scripted.Say("Fog."))
		a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(weather),
			Policy: permission.Policy{Mode: permission.ModeBypass}, Middleware: []agent.Middleware{mw}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Reply(t.Context(), &agent.State{ID: "ses_1"}, agent.Say("Weather in Graz?")); err != nil {
			t.Fatal(err)
		}
		describeSpans(&b, spans.Ended())
		describeMetrics(t, &b, reader)
	}
	const golden = "testdata/spans.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestSpansHoldNoSecrets records the contents of a call with a key in its
// arguments, its result and its error.
func TestSpansHoldNoSecrets(t *testing.T) {
	const secret = "sk-" + "aB3dE5gH7jK2mN4pQ6rSaB3dE5gH7jK2"
	r, err := redact.New(redact.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	mw, err := New(Config{Content: true, Redact: r, Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(spans))})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	weather := tool.Must(tool.New("weather", "The weather.", func(_ context.Context, in in) (string, error) {
		got = in.City
		return "fog in " + in.City, nil
	}))
	m := scripted.New(scripted.Call("weather", in{secret}), scripted.Fail(errors.New("no such key: "+secret)))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(weather),
		Policy: permission.Policy{Mode: permission.ModeBypass}, Middleware: []agent.Middleware{mw}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), new(agent.State), agent.Say("Weather with "+secret+"?")); err == nil || got != secret {
		t.Fatalf("%v; the tool got %q", err, got)
	}
	var b strings.Builder
	describeSpans(&b, spans.Ended())
	for _, s := range spans.Ended() {
		b.WriteString(s.Status().Description)
	}
	if strings.Contains(b.String(), secret[:10]) || strings.Count(b.String(), "[redacted: openai-key]") != 9 {
		t.Errorf("recorded:\n%s", b.String())
	}
}

func describeSpans(b *strings.Builder, spans []trace.ReadOnlySpan) {
	names := map[string]string{}
	for _, s := range spans {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	for _, s := range spans {
		fmt.Fprintf(b, "%s (%s) below %q: %s\n", s.Name(), s.SpanKind(), names[s.Parent().SpanID().String()], s.Status().Code)
		var attrs []string
		for _, a := range s.Attributes() {
			attrs = append(attrs, fmt.Sprintf("  %s=%s\n", a.Key, a.Value.String()))
		}
		slices.Sort(attrs)
		b.WriteString(strings.Join(attrs, ""))
	}
}

func describeMetrics(t *testing.T, b *strings.Builder, reader metric.Reader) {
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range rm.ScopeMetrics[0].Metrics {
		count := uint64(0)
		switch h := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, p := range h.DataPoints {
				count += p.Count
			}
		case metricdata.Histogram[float64]:
			for _, p := range h.DataPoints {
				count += p.Count
			}
		}
		lines = append(lines, fmt.Sprintf("metric %s (%s): %d values\n", m.Name, m.Unit, count))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
}

// TestSpansOfCallsThatDidNotRun: a call with wrong arguments, or of an unknown tool, has a span too.
func TestSpansOfCallsThatDidNotRun(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	mw, err := New(Config{Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(spans))})
	if err != nil {
		t.Fatal(err)
	}
	weather := tool.Must(tool.New("weather", "The weather.", func(_ context.Context, in in) (string, error) { return "fog", nil }))
	m := scripted.New(scripted.Call("weather", map[string]any{"city": []int{1}}).And(scripted.Call("nothing", nil)), scripted.Say("Fog."))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(weather), Middleware: []agent.Middleware{mw}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), new(agent.State), agent.Say("Weather?")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range spans.Ended() {
		if s.Status().Code == codes.Error {
			got = append(got, s.Name())
		}
	}
	if !slices.Equal(got, []string{"execute_tool weather", "execute_tool nothing"}) {
		t.Errorf("spans with an error: %q", got)
	}
}

// TestTraceContext: the field Tool alone continues the trace of an MCP client, and the tool's server is sent its own span.
func TestTraceContext(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	mw, err := New(Config{Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(spans))})
	if err != nil {
		t.Fatal(err)
	}
	var sent tracecontext.Context
	remote := tool.Must(tool.New("remote", "Is on another server.", func(ctx context.Context, _ struct{}) (string, error) {
		sent = tracecontext.From(ctx)
		return "", nil
	}))
	const id = "0af7651916cd43dd8448eb211c80319c"
	ctx := tracecontext.With(t.Context(), tracecontext.Context{Parent: "00-" + id + "-b7ad6b7169203331-01", State: "a=1", Baggage: "tenant=7"})
	for _, err := range tool.Run(ctx, remote, tool.Call{ID: "1", Name: "remote", Input: []byte("{}")}, mw.Tool) {
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := spans.Ended()
	if len(ended) != 1 || ended[0].Parent().SpanID().String() != "b7ad6b7169203331" || ended[0].SpanContext().TraceID().String() != id {
		t.Fatalf("spans %v", ended)
	}
	if want := (tracecontext.Context{Parent: "00-" + id + "-" + ended[0].SpanContext().SpanID().String() + "-01", State: "a=1", Baggage: "tenant=7"}); sent != want {
		t.Errorf("sent %+v, want %+v", sent, want)
	}
}
