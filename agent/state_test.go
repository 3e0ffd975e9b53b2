package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestCrashAnywhere stops a run at every save, as if the process had been killed there, and continues in a
// new one. No call runs twice, and the answer is the same.
func TestCrashAnywhere(t *testing.T) {
	turns := []turn{
		calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`, `c3 ask {"path":"c"}`),
		calls(`c4 ask {"path":"d"}`, `c5 note {"path":"e"}`),
		says("done"),
	}
	var snapshots []string
	var used []int // how many turns were used up
	for cut := 0; ; cut++ {
		var j journal
		tk := toolkit.Of(noting(&j, "note", tool.Options{Parallel: true}), noting(&j, "ask", tool.Options{}))
		cfg := Config{Toolkit: tk, Policy: permission.Policy{Rules: []permission.Rule{{Tool: "note", Behavior: permission.Allow}}}}
		var a *Agent
		var w *turnModel
		record := cut == 0
		if record {
			cfg.Save = func(_ context.Context, st *State) error {
				data, err := json.Marshal(st)
				snapshots, used = append(snapshots, string(data)), append(used, len(w.reqs))
				return err
			}
		}
		st := new(State)
		var inputs []Input
		if record {
			a, w = newAgent(t, cfg, turns...)
			inputs = []Input{Say("go")}
		} else {
			if cut > len(snapshots) {
				break
			}
			a, w = newAgent(t, cfg, turns[used[cut-1]:]...)
			if err := json.Unmarshal([]byte(snapshots[cut-1]), st); err != nil {
				t.Fatal(err)
			}
		}
		for {
			evs, err := play(t, a, st, inputs...)
			if err != nil {
				t.Fatalf("snapshot %d: %v", cut, err)
			}
			end := endOf(t, evs)
			if end.Reason == event.EndCompleted {
				equal(t, "answer", end.Text, "done")
				break
			}
			inputs = nil
			for _, p := range st.Pending() {
				inputs = append(inputs, event.Confirm{Call: p.(*event.Approval).Call, Allow: true})
			}
			if len(inputs) == 0 {
				t.Fatalf("snapshot %d: ended %s with nothing pending", cut, end.Reason)
			}
		}
		for _, c := range []string{"note:a", "note:b", "ask:c", "ask:d", "note:e"} {
			if n := strings.Count(j.String(), c); n > 1 || record && n != 1 {
				t.Errorf("snapshot %d: %s ran %d times", cut, c, n)
			}
		}
	}
	if len(snapshots) < 15 {
		t.Errorf("only %d snapshots", len(snapshots))
	}
}

// oneOpen is a state with one open call.
const oneOpen = `{"version":1,"messages":[{"role":"assistant","blocks":[{"type":"tool_call","id":"a","name":"n","input":{}}]}],
	"open":[{"id":"a","name":"n","input":{},STATUS}]}`

func TestStateRefuses(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{`{`, "JSON"},
		{`{"messages":[]}`, "version"},
		{`{"version":99,"messages":[{"blocks":[{"type":"x"}]}]}`, "newer"},
		{`{"version":0}`, "version"},
		{`{"version":1,"messages":[{"role":"assistant","blocks":[{"type":"tool_call","id":"a","name":"n","input":{}}]}]}`, "without results"},
		{`{"version":1,"messages":[null]}`, "nil"},
		{`{"version":1,"messages":[],"open":[{"id":"a","status":"new"}]}`, "open"},
		{`{"version":1,"messages":[{"role":"user","blocks":[]}],"open":[null]}`, "null"},
		{`{"version":1,"messages":[{"role":"assistant","blocks":[{"type":"tool_call","id":"a","name":"n","input":{}}]}],"open":[{"id":"b","name":"n","status":"new"}]}`, "for call b"},
		{strings.ReplaceAll(oneOpen, "STATUS", `"status":"odd"`), "unknown status"},
		{strings.ReplaceAll(oneOpen, "STATUS", `"status":"done"`), `the status is "done"; a call has a result`},
		{strings.ReplaceAll(oneOpen, "STATUS", `"status":"allowed","result":{"type":"tool_result","id":"a","name":"n","outcome":"success"}`), `the status is "allowed"; a call has a result`},
	} {
		var st State
		err := json.Unmarshal([]byte(row.in), &st)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.in, err, row.want)
		}
	}
	var st State
	if err := json.Unmarshal([]byte(`{"version":2}`), &st); !errors.Is(err, ErrNewerState) {
		t.Errorf("newer version: %v", err)
	}
}

func TestCheckHistory(t *testing.T) {
	call := func(id string) *message.Message {
		return message.Assistant(&message.ToolCall{ID: id, Name: "n", Input: json.RawMessage(`{}`)})
	}
	answer := func(id string) *message.Message {
		return &message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: id, Name: "n"}}}
	}
	user := message.User("x")
	for _, row := range []struct {
		msgs []*message.Message
		ok   bool
	}{
		{nil, true},
		{[]*message.Message{user, call("a"), answer("a"), user}, true},
		{[]*message.Message{user, user}, true},
		{[]*message.Message{call("a")}, false},
		{[]*message.Message{call("a"), user}, false},
		{[]*message.Message{call("a"), answer("b")}, false},
		{[]*message.Message{answer("a")}, false},
		{[]*message.Message{call("a"), answer("a"), call("a"), answer("a")}, false},
		{[]*message.Message{call("a"), answer("a"), answer("a")}, false},
		{[]*message.Message{call(""), answer("")}, false},
		{[]*message.Message{message.Assistant(&message.ToolCall{ID: "a", Name: "n", Input: json.RawMessage(`[]`)}), answer("a")}, false},
	} {
		if err := CheckHistory(row.msgs); (err == nil) != row.ok {
			t.Errorf("%+v: %v", row.msgs, err)
		}
	}
}
