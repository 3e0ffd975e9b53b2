package inspect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var update = flag.Bool("update", false, "write the expected rows")

// store keeps events as a session, a second apart, and the State of st, which may be empty.
func store(t *testing.T, id string, events ...map[string]any) session.Store {
	t.Helper()
	st := agent.State{ID: id}
	data, err := st.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	rec := session.Record{Seq: 1, Whole: true, Data: data, Status: session.StatusEnded}
	for i, ev := range events {
		ev["seq"] = i + 1
		if ev["time"] == nil {
			ev["time"] = time.Date(2026, 1, 2, 3, 4, 5+i, 0, time.UTC)
		}
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		rec.Events = append(rec.Events, session.Event{Seq: int64(i + 1), Data: data})
	}
	s := session.Memory()
	log, err := s.Open(t.Context(), id)
	if err == nil {
		err = log.Append(t.Context(), rec)
	}
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A row is a line of a timeline as the page gets it.
type row struct {
	Kind, Name, Text, State, Why, Fault string
	Step, Lane, Sub                     int
	Behind                              bool
	Start, End                          time.Time
	Usage                               message.Usage
	Cost                                float64
}

func (r row) String() string {
	out := fmt.Sprintf("%d %-10s %s %q", r.Step, r.Kind, r.Name, r.Text)
	add := func(ok bool, format string, args ...any) {
		if ok {
			out += " " + fmt.Sprintf(format, args...)
		}
	}
	add(r.State != "", "[%s]", r.State)
	add(r.Why != "", "because %q", r.Why)
	add(r.Fault != "", "fault %q", r.Fault)
	add(r.Lane > 0, "lane %d", r.Lane)
	add(r.Behind, "behind")
	add(r.Sub > 0, "%d below", r.Sub)
	add(!r.End.IsZero() && r.End != r.Start, "took %v", r.End.Sub(r.Start))
	add(r.Usage.Input > 0, "in %d, cached %d, out %d", r.Usage.Input, r.Usage.Cached, r.Usage.Output)
	add(r.Cost > 0, "$%.4f", r.Cost)
	return out
}

// rows returns rows of a timeline.
func rows(t *testing.T, c *http.Client, url string) []row {
	t.Helper()
	var got struct{ Rows []row }
	get(t, c, url, &got)
	return got.Rows
}

// TestRows makes the rows of events of every kind.
func TestRows(t *testing.T) {
	data, err := os.ReadFile("testdata/timeline.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var events []map[string]any
	for line := range bytes.Lines(data) {
		var ev map[string]any
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	c, base := client(t, store(t, "s", events...), inspect.Options{})
	var out strings.Builder
	for i, r := range rows(t, c, base+"api/sessions/s/rows?n=500") {
		fmt.Fprintln(&out, r)
		if r.Sub > 0 {
			for _, r := range rows(t, c, fmt.Sprintf("%sapi/sessions/s/rows?n=500&of=%d", base, i)) {
				fmt.Fprintln(&out, "    ", r)
			}
		}
	}
	const golden = "testdata/timeline.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || out.String() != string(want) {
		t.Errorf("the rows differ from %s (%v); run the test with -update and look at what changed:\n%s", golden, err, out.String())
	}
	var found struct{ Row int }
	get(t, c, base+"api/sessions/s/find?q=FULL&from=0", &found)
	if r := rows(t, c, base+"api/sessions/s/rows?n=500"); found.Row < 0 || r[found.Row].Name != "book" {
		t.Errorf("a text in a result is found in row %d", found.Row)
	}
	var details struct{ Events []struct{ Type string } }
	get(t, c, fmt.Sprintf("%sapi/sessions/s/details?row=%d", base, found.Row), &details)
	types := []string{}
	for _, ev := range details.Events {
		types = append(types, ev.Type)
	}
	if want := []string{"tool_call", "approval", "tool_start", "tool_result"}; !slices.Equal(types, want) {
		t.Errorf("the events of the row are %v, want %v", types, want)
	}
}

// TestNoEvents shows a session of which only the State is there, and one that was forked from it and continued.
func TestNoEvents(t *testing.T) {
	look, err := tool.New("look", "Looks.", func(context.Context, struct{}) (string, error) { return "Nothing.", nil }, tool.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	s := session.Memory()
	run := func(id string, turns ...scripted.Turn) {
		t.Helper()
		open, err := session.Open(t.Context(), s, id)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		a, err := agent.New(agent.Config{Model: scripted.New(turns...), Toolkit: toolkit.Of(look), Save: open.Save, Policy: permission.Policy{TrustReadOnly: true}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Reply(t.Context(), open.State, agent.Say("Look.")); err != nil {
			t.Fatal(err)
		}
	}
	run("first", scripted.Call("look", nil), scripted.Say("There is nothing."))
	for _, to := range []string{"copy", "continued"} {
		if err := session.Fork(t.Context(), s, "first", to, 0); err != nil {
			t.Fatal(err)
		}
	}
	run("continued", scripted.Say("Still nothing."))
	exportedTest(t, s, "continued")
	c, base := client(t, s, inspect.Options{})
	kinds := func(id string) (out []string) {
		for _, r := range rows(t, c, base+"api/sessions/"+id+"/rows?n=500") {
			out = append(out, r.Kind)
		}
		return out
	}
	if got, want := kinds("copy"), []string{"user", "model", "tool", "model"}; !slices.Equal(got, want) {
		t.Errorf("the copy has %v, want %v", got, want)
	}
	if got, want := kinds("continued"), []string{"user", "model", "tool", "model", "run", "user", "model", "end"}; !slices.Equal(got, want) {
		t.Errorf("the continued one has %v, want %v", got, want)
	}
	var details struct{ Events []any }
	if get(t, c, base+"api/sessions/copy/details?row=2", &details); len(details.Events) != 1 {
		t.Errorf("the details of a call are %v", details)
	}
}

// TestInterruptedModel ends the row of a model call without an answer when the next event says so, and not again later.
func TestInterruptedModel(t *testing.T) {
	c, base := client(t, store(t, "s",
		map[string]any{"type": "model_start", "message": "m1", "step": 1},
		map[string]any{"type": "discard", "message": "m1", "error": "reset"},
		map[string]any{"type": "model_start", "message": "m2", "step": 1},
		map[string]any{"type": "end", "reason": "interrupted"},
		map[string]any{"type": "run_start"},
		map[string]any{"type": "model_start", "message": "m3", "step": 1}, // the process ends
		map[string]any{"type": "run_start", "resumed": true},
		map[string]any{"type": "end", "reason": "limit"},
	), inspect.Options{})
	var got []string
	for _, r := range rows(t, c, base+"api/sessions/s/rows?n=500") {
		if r.Kind == "model" {
			got = append(got, fmt.Sprint(r.State, " ", r.End.Sub(r.Start)))
		}
	}
	if want := []string{"interrupted 2s", "interrupted 1s", "interrupted 1s"}; !slices.Equal(got, want) {
		t.Errorf("the model calls are %q, want %q", got, want)
	}
}

// TestSubAgentAsks shows the question of a sub-agent in the row of the sub-agent, which has one lane though it starts twice.
func TestSubAgentAsks(t *testing.T) {
	call := func(kind, id, name string) map[string]any {
		return map[string]any{"type": kind, "call": id, "name": name, "outcome": "success", "reason": "test", "input": map[string]any{}}
	}
	c, base := client(t, store(t, "s",
		call("tool_call", "call_1", "expert"), call("tool_start", "call_1", "expert"), call("approval", "call_1/call_1", "look"),
		map[string]any{"type": "end", "reason": "waiting"},
		map[string]any{"type": "run_start", "resumed": true},
		call("tool_start", "call_1", "expert"), call("tool_result", "call_1", "expert"),
		call("tool_call", "call_2", "book"), call("tool_start", "call_2", "book"),
		call("tool_call", "call_3", "pay"), call("tool_start", "call_3", "pay"),
		call("tool_call", "call_4", "expert"), call("tool_start", "call_4", "expert"), call("external", "call_4/call_1", "host"),
	), inspect.Options{})
	var got []string
	for _, r := range rows(t, c, base+"api/sessions/s/rows?n=500") {
		if r.Kind == "tool" {
			got = append(got, fmt.Sprint(r.Name, " ", r.State, " ", r.Lane))
		}
	}
	if want := []string{"expert success 1", "book running 1", "pay running 2", "expert external 3"}; !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
}

// TestQuestions has one row for a question, which is emitted again with the answer.
func TestQuestions(t *testing.T) {
	ask := func(call, message, action string) map[string]any {
		return map[string]any{"type": "elicitation", "call": call, "server": "shop", "message": message, "action": action}
	}
	c, base := client(t, store(t, "s", ask("call_1", "Which size?", ""), ask("call_2", "Which size?", ""), ask("call_2", "Which size?", "decline"),
		ask("call_1", "Which size?", "accept"), ask("call_1", "Which size?", "")), inspect.Options{})
	var got []string
	for _, r := range rows(t, c, base+"api/sessions/s/rows?n=500") {
		got = append(got, r.Kind+" "+r.State)
	}
	if want := []string{"asked accept", "asked decline", "asked asked"}; !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}
}

// TestFirstRequests asks a handler that has not read the session yet.
func TestFirstRequests(t *testing.T) {
	for path, want := range map[string]string{"details?row=1": `"limit"`, "details?row=0.0": "there is no row", "requests?from=9223372036854775807": `"total":0`} {
		c, base := client(t, store(t, "s", map[string]any{"type": "run_start"}, map[string]any{"type": "end", "reason": "limit"}), inspect.Options{})
		if got, code := body(t, c, "GET", base+"api/sessions/s/"+path, ""); !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want %s", path, code, got, want)
		}
	}
}

// TestGroupsOfNextProcess counts no change when the first request of the next process has the same groups.
func TestGroupsOfNextProcess(t *testing.T) {
	start := func(by string, isOpen bool) map[string]any {
		return map[string]any{"type": "model_start", "step": 1, "groups": []any{map[string]any{"name": "a", "open": isOpen, "bytes": 100, "about": 10, "by": by}}}
	}
	c, base := client(t, store(t, "s", start("", false), start("model", true), start("", true), start("user", false)), inspect.Options{})
	var got struct {
		Spans []struct{ Requests int }
		Was   struct{ Changes int }
	}
	if get(t, c, base+"api/sessions/s/groups", &got); got.Was.Changes != 2 || len(got.Spans) != 3 || got.Spans[1].Requests != 2 {
		t.Errorf("%+v", got)
	}
}

// TestIdle ends the feed of a session that no page shows.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := inspect.New(store(t, "s", map[string]any{"type": "run_start"}), inspect.Options{Token: "0123456789abcdef"})
		if err != nil {
			t.Fatal(err)
		}
		h.Read(t, "s")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := h.Feeds(); n != 0 {
			t.Errorf("%d feeds are left", n)
		}
		h.Close()
	})
}
