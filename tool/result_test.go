package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

type report struct {
	Lines []string          `json:"lines"`
	Took  time.Duration     `json:"took"`
	Notes map[string]string `json:"notes,omitempty"`
	Next  *report           `json:"next,omitempty"`
	Extra any               `json:"extra"`
}

func returning[Out any](t *testing.T, out Out) (tool.Info, *message.ToolResult) {
	t.Helper()
	tl, err := tool.New("probe", "Probes.", func(context.Context, struct{}) (Out, error) { return out, nil })
	if err != nil {
		t.Fatal(err)
	}
	res, err := call(t.Context(), tl, "{}")
	if err != nil {
		t.Fatal(err)
	}
	return tl.Info(), res
}

// TestResults has a row for each form that Out may have.
func TestResults(t *testing.T) {
	picture := &message.Data{MediaType: "image/png", Bytes: []byte("png")}
	check := func(name string, info tool.Info, got *message.ToolResult, wantOutput bool, want message.ToolResult) {
		t.Helper()
		want.ID, want.Name = "1", "probe"
		if want.Outcome == "" {
			want.Outcome = message.OutcomeSuccess
		}
		if !reflect.DeepEqual(*got, want) || (info.Output != nil) != wantOutput {
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(want)
			t.Errorf("%s: output schema %s\ngot  %s\nwant %s", name, info.Output, g, w)
		}
	}
	text := func(s string) message.Blocks { return message.Blocks{&message.Text{Text: s}} }

	info, res := returning(t, "a < b")
	check("string", info, res, false, message.ToolResult{Blocks: text("a < b")})
	info, res = returning(t, 5)
	check("number", info, res, false, message.ToolResult{Blocks: text("5"), Structured: json.RawMessage("5")})
	info, res = returning(t, []string{"<a>"})
	check("list", info, res, false, message.ToolResult{Blocks: text(`["<a>"]`), Structured: json.RawMessage(`["<a>"]`)})
	info, res = returning(t, report{Took: time.Second})
	const encoded = `{"lines":null,"took":1000000000,"extra":null}`
	check("struct", info, res, true, message.ToolResult{Blocks: text(encoded), Structured: json.RawMessage(encoded)})
	const schema = `{"properties":{"lines":{"oneOf":[{"items":{"type":"string"},"type":"array"},{"type":"null"}]},"took":{"type":"integer","description":"nanoseconds"},` +
		`"notes":{"additionalProperties":{"type":"string"},"type":"object"},"next":{"$ref":"#"},"extra":{}},"additionalProperties":false,"type":"object","required":["lines","took","extra"]}`
	if string(info.Output) != schema {
		t.Errorf("output schema\ngot  %s\nwant %s", info.Output, schema)
	}
	validSchema(t, info.Output)
	info, res = returning(t, error(errors.New("full")))
	check("error", info, res, false, message.ToolResult{Outcome: message.OutcomeError, Blocks: text("full")})
	info, res = returning(t, error(nil))
	check("no error", info, res, false, message.ToolResult{Blocks: text("done")})
	info, res = returning(t, picture)
	check("block", info, res, false, message.ToolResult{Blocks: message.Blocks{picture}})
	info, res = returning(t, &tool.Result{
		Blocks: []message.Block{&message.Text{Text: "see"}, picture}, ForUser: []message.Block{&message.Text{Text: "diff"}},
		Structured: map[string]int{"n": 1}, Meta: map[string]json.RawMessage{"k": json.RawMessage("1")},
	})
	check("result", info, res, false, message.ToolResult{
		Blocks: message.Blocks{&message.Text{Text: "see"}, picture}, ForUser: text("diff"),
		Structured: json.RawMessage(`{"n":1}`), Meta: map[string]json.RawMessage{"k": json.RawMessage("1")},
	})
	info, res = returning(t, &tool.Result{Failed: true, Structured: []int{1}})
	check("failed result", info, res, false, message.ToolResult{Outcome: message.OutcomeError, Blocks: text("[1]"), Structured: json.RawMessage("[1]")})
	info, res = returning(t, (*tool.Result)(nil))
	check("nil result", info, res, false, message.ToolResult{})

	if _, err := tool.New("probe", "Probes.", func(context.Context, struct{}) (struct{ F func() }, error) { return struct{ F func() }{}, nil }); err == nil {
		t.Error("a result that cannot be encoded: no error")
	}
}

// TestCollector joins chunks by block id.
func TestCollector(t *testing.T) {
	shared := &message.Text{ID: "t1", Text: "Hel"}
	c := tool.NewCollector(tool.Call{ID: "1", Name: "probe"})
	for _, ch := range []tool.Chunk{
		{Block: shared},
		{Block: &message.Data{ID: "d1", MediaType: "image/png", Bytes: []byte("ab")}},
		{Block: &message.Text{ID: "t1", Text: "lo"}},
		{Block: &message.Text{Text: "apart"}},
		{Block: &message.Text{ID: "t1", Text: "for you"}, ForUser: true},
		{Block: &message.Data{ID: "d1", Bytes: []byte("cd")}},
		{Block: &message.Text{ID: "d1", Text: "another kind"}},
		{Structured: json.RawMessage("1"), Meta: map[string]json.RawMessage{"a": json.RawMessage("1"), "b": json.RawMessage("1")}},
		{Structured: json.RawMessage("2"), Meta: map[string]json.RawMessage{"b": json.RawMessage("2")}, Failed: true},
		tool.Text("after the failure"),
	} {
		c.Add(ch)
	}
	want := &message.ToolResult{
		ID: "1", Name: "probe", Outcome: message.OutcomeError,
		Blocks: message.Blocks{
			&message.Text{ID: "t1", Text: "Hello"}, &message.Data{ID: "d1", MediaType: "image/png", Bytes: []byte("abcd")},
			&message.Text{Text: "apart"}, &message.Text{ID: "d1", Text: "another kind"}, &message.Text{Text: "after the failure"},
		},
		ForUser: message.Blocks{&message.Text{ID: "t1", Text: "for you"}}, Structured: json.RawMessage("2"),
		Meta: map[string]json.RawMessage{"a": json.RawMessage("1"), "b": json.RawMessage("2")},
	}
	if got := c.Result(); !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("got  %s\nwant %s", g, w)
	}
	if shared.Text != "Hel" {
		t.Error("the tool's own block was changed")
	}
}
