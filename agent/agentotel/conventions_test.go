package agentotel

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// served is a model that is called through a server.
type served struct{ model.Model }

func (s served) Unwrap() model.Model   { return s.Model }
func (s served) Server() (string, int) { return "models.example.org", 8443 }

// TestConventions compares the recorded attributes with those of the conventions, of
// https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai: the required ones, those that
// are required if known, and those enabled by Config.Content.
func TestConventions(t *testing.T) {
	common := "gen_ai.operation.name gen_ai.provider.name"
	server := " gen_ai.request.model server.address server.port"
	for _, row := range []struct {
		signal, always, content string
	}{
		{"gen_ai.client.operation.duration chat", common + server, ""},
		{"gen_ai.client.operation.duration execute_tool", common, ""},
		{"gen_ai.client.operation.duration invoke_agent", common, ""},
		{"gen_ai.client.operation.time_to_first_chunk chat", common + server, ""},
		{"gen_ai.client.token.usage chat", common + server + " gen_ai.response.model gen_ai.token.type", ""},
		{"span chat", common + server + " gen_ai.conversation.id gen_ai.response.finish_reasons gen_ai.response.model" +
			" gen_ai.usage.input_tokens gen_ai.usage.output_tokens gen_ai.usage.cache_read.input_tokens",
			"gen_ai.system_instructions gen_ai.input.messages gen_ai.output.messages"},
		{"span execute_tool", common + " gen_ai.conversation.id gen_ai.tool.call.id gen_ai.tool.name gen_ai.tool.type",
			"gen_ai.tool.call.arguments gen_ai.tool.call.result"},
		{"span invoke_agent", common + " gen_ai.agent.name gen_ai.conversation.id gen_ai.response.finish_reasons gen_ai.usage.input_tokens gen_ai.usage.output_tokens", ""},
	} {
		for _, content := range []bool{false, true} {
			want := strings.Fields(row.always)
			if content {
				want = append(want, strings.Fields(row.content)...)
			}
			slices.Sort(want)
			if got := recorded(t, content)[row.signal]; !slices.Equal(got, want) {
				t.Errorf("%s, content %v:\n got %v\nwant %v", row.signal, content, got, want)
			}
		}
	}
}

// recorded runs an agent with one call and returns the names of the attributes of each signal.
func recorded(t *testing.T, content bool) map[string][]string {
	t.Helper()
	spans, reader := converse(t, Config{Agent: "helpdesk", Content: content})
	out := map[string][]string{}
	add := func(signal string, attrs []attribute.KeyValue) {
		operation, names := "", []string{}
		for _, a := range attrs {
			if names = append(names, string(a.Key)); a.Key == "gen_ai.operation.name" {
				operation = a.Value.AsString()
			}
		}
		slices.Sort(names)
		out[signal+" "+operation] = names
	}
	for _, s := range spans {
		if scope := s.InstrumentationScope(); scope.Version == "" || scope.SchemaURL != "https://opentelemetry.io/schemas/1.41.0" {
			t.Errorf("the scope of a span: %+v", scope)
		}
		add("span", s.Attributes())
	}
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	if scope := rm.ScopeMetrics[0].Scope; scope.Version == "" || scope.SchemaURL != "https://opentelemetry.io/schemas/1.41.0" {
		t.Errorf("the scope of metrics: %+v", scope)
	}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		switch h := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, p := range h.DataPoints {
				add(m.Name, p.Attributes.ToSlice())
			}
		case metricdata.Histogram[float64]:
			for _, p := range h.DataPoints {
				add(m.Name, p.Attributes.ToSlice())
			}
		}
	}
	return out
}

// converse runs an agent whose model thinks, calls a tool, and answers.
func converse(t *testing.T, cfg Config) ([]trace.ReadOnlySpan, metric.Reader) {
	t.Helper()
	spans, reader := tracetest.NewSpanRecorder(), metric.NewManualReader()
	cfg.Tracer, cfg.Meter = trace.NewTracerProvider(trace.WithSpanProcessor(spans)), metric.NewMeterProvider(metric.WithReader(reader))
	mw, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	weather := tool.Must(tool.New("weather", "The weather.", func(_ context.Context, in in) (string, error) { return "fog in " + in.City, nil }))
	m := served{scripted.New(scripted.Think("Hm.").And(scripted.Call("weather", in{"Graz"})), scripted.Say("Fog."))}
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(weather), Instructions: "Be brief.",
		Policy: permission.Policy{Mode: permission.ModeBypass}, Middleware: []agent.Middleware{mw}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), &agent.State{ID: "ses_1"}, agent.Say("Weather in Graz?")); err != nil {
		t.Fatal(err)
	}
	return spans.Ended(), reader
}

// TestMessages: messages are recorded in the JSON of the conventions.
func TestMessages(t *testing.T) {
	spans, _ := converse(t, Config{Content: true})
	var got []string
	for _, s := range spans {
		for _, a := range s.Attributes() {
			if name, ok := strings.CutPrefix(string(a.Key), "gen_ai."); ok && slices.Contains([]string{"system_instructions", "input.messages", "output.messages"}, name) {
				if !json.Valid([]byte(a.Value.AsString())) {
					t.Errorf("%s is not JSON", a.Key)
				}
				got = append(got, name+" "+a.Value.AsString())
			}
		}
	}
	const input = `{"role":"user","parts":[{"type":"text","content":"Weather in Graz?"}]}`
	const call = `{"role":"assistant","parts":[{"type":"reasoning","content":"Hm."},{"type":"tool_call","id":"call_1","name":"weather","arguments":{"city":"Graz"}}]`
	want := []string{
		`system_instructions [{"type":"text","content":"Be brief."}]`,
		`input.messages [` + input + `]`,
		`output.messages [` + call + `,"finish_reason":"tool_call"}]`,
		`system_instructions [{"type":"text","content":"Be brief."}]`,
		`input.messages [` + input + `,` + call + `},{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":"fog in Graz"}]}]`,
		`output.messages [{"role":"assistant","parts":[{"type":"text","content":"Fog."}],"finish_reason":"stop"}]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestParts has the kinds of blocks that are not in TestMessages.
func TestParts(t *testing.T) {
	got := jsonAttribute("k", (&recorder{}).parts(message.Assistant(
		&message.Data{MediaType: "image/png", Bytes: []byte("twelve bytes")}, &message.Data{MediaType: "image/png", URL: "https://example.org/a.png"},
		&message.Hint{Source: "clock", Text: "It is noon."}, &message.ToolCall{ID: "c", Name: "add", Input: json.RawMessage(`{"a":`)}, &message.Unknown{Type: "other"},
	))).Value.AsString()
	const want = `[{"type":"data","mime_type":"image/png","modality":"image","bytes":12},{"type":"uri","mime_type":"image/png","modality":"image","uri":"https://example.org/a.png"},` +
		`{"type":"text","content":"It is noon."},{"type":"tool_call","id":"c","name":"add","arguments":"{\"a\":"},{"type":"other"}]`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
