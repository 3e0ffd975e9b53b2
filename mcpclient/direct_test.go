package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// directServer has a tool that succeeds, one that fails, and one that it rejects calls of.
func directServer(msg request, reply func(string)) {
	var p struct {
		Name      string
		Arguments json.RawMessage
	}
	_ = json.Unmarshal(msg.Params, &p)
	switch {
	case handleStandard(msg, reply, `[{"name":"echo it"},{"name":"fails"},{"name":"refused"},{"name":"left_out"}]`):
	case p.Name == "echo it":
		reply(msg.result(`{"content":[{"type":"text","text":` + string(must(json.Marshal(string(p.Arguments)))) + `}]}`))
	case p.Name == "fails":
		reply(msg.result(`{"content":[{"type":"text","text":"it rained"}],"isError":true}`))
	default:
		reply(msg.fail(codeInvalidParams, "no"))
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestCall calls tools directly, by the server's names.
func TestCall(t *testing.T) {
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, ExcludeTools: []string{"left_out"}}}, directServer)
	for _, row := range []struct {
		name    string
		args    any
		outcome message.Outcome
		text    string // of the result, or of the error
	}{
		{"echo it", map[string]int{"n": 1}, message.OutcomeSuccess, `{"n":1}`},
		{"echo it", json.RawMessage(`{"n": 2}`), message.OutcomeSuccess, `{"n":2}`},
		{"echo it", nil, message.OutcomeSuccess, `{}`},
		{"fails", nil, message.OutcomeError, "it rained"},
		{"refused", nil, "", "refused tools/call: no (code -32602)"},
		{"left_out", nil, "", `has no tool "left_out"`},
		{"mcp__srv__fails", nil, "", `has no tool "mcp__srv__fails"`},
		{"echo it", make(chan int), "", "arguments of echo it"},
	} {
		res, err := c.Call(t.Context(), row.name, row.args)
		if (err != nil) != (row.outcome == "") || err != nil && !strings.Contains(err.Error(), row.text) ||
			err == nil && (res.Outcome != row.outcome || res.Text() != row.text) {
			t.Errorf("%s %v: %+v, %v", row.name, row.args, res, err)
		}
		if _, refused := errors.AsType[*CallError](err); refused != (row.name == "refused") {
			t.Errorf("%s: %#v", row.name, err)
		}
	}
}

// TestNoPrefix checks that tools without a prefix have the server's names, made legal, and that a toolkit leaves
// out a tool whose name another of its tools has.
func TestNoPrefix(t *testing.T) {
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, NoPrefix: true}}, directServer)
	var names []string
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range tools {
		names = append(names, tl.Info().Name)
	}
	if got := strings.Join(names, " "); got != "echo_it fails left_out refused" {
		t.Errorf("the tools are %s", got)
	}
	if res, err := c.Call(t.Context(), "echo it", nil); err != nil || res.Text() != "{}" {
		t.Errorf("%+v, %v", res, err)
	}
	own := tool.Must(tool.New("fails", "The host's own.", func(context.Context, struct{}) (string, error) { return "own", nil }, tool.Options{}))
	kit, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{own}, Sources: []tool.Source{c}}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := kit.View(t.Context(), new(toolkit.Scope))
	if err != nil {
		t.Fatal(err)
	}
	if s := v.Skipped(); len(s) != 1 || s[0].Tool != "fails" || !strings.Contains(s[0].Reason, "has this name") {
		t.Errorf("skipped: %+v", s)
	}
}
