package browsertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// long stores a session with a number of steps, each with a model call and two tool calls.
func long(t *testing.T, store session.Store, id string, steps int) {
	t.Helper()
	small := session.Memory()
	demo(t, small)
	rec := stored(t, small, "done")
	rec.Data, rec.Events = replaced(t, rec.Data, `"done"`[1:5], id), nil
	seq, now := int64(0), time.Now().Add(-time.Hour)
	add := func(ev event.Event) {
		seq++
		now = now.Add(10 * time.Millisecond)
		h := ev.Head()
		h.Seq, h.Type, h.Time = seq, event.TypeOf(ev), now
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		rec.Events = append(rec.Events, session.Event{Seq: seq, Data: data})
	}
	recs := []session.Record{}
	add(&event.RunStart{Session: id})
	for step := range steps {
		msg := &message.Message{ID: fmt.Sprint("msg_", step), Role: message.RoleAssistant, Model: "gpt-5.5", Usage: &message.Usage{Input: 1000 + step, Cached: 900, Output: 50}}
		add(&event.ModelStart{Message: msg.ID, Step: step + 1, Model: "gpt-5.5", Tools: 12})
		for i := range 2 {
			msg.Blocks = append(msg.Blocks, &message.ToolCall{ID: fmt.Sprint("call_", step, "_", i), Name: "look", Input: json.RawMessage(`{"where":"Bergen"}`)})
		}
		add(&event.Message{Message: msg, Finish: "tool_calls"})
		for _, c := range msg.ToolCalls() {
			add(&event.ToolCall{Message: msg.ID, Call: c.ID, Name: c.Name, Input: c.Input})
			add(&event.ToolStart{Call: c.ID, Name: c.Name, Reason: "it only reads"})
		}
		for _, c := range msg.ToolCalls() {
			text := fmt.Sprintf("Result of step %d: %0500d", step, step)
			add(&event.ToolResult{Call: c.ID, Name: c.Name, Outcome: message.OutcomeSuccess, Text: text,
				Result: &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: message.OutcomeSuccess, Blocks: message.Blocks{&message.Text{Text: text}}}})
		}
		if step%500 == 499 { // few records, so that the test does not wait for the disk
			recs = append(recs, rec)
			rec = session.Record{Seq: rec.Seq + 1, Whole: true, Data: rec.Data, Status: rec.Status, Labels: rec.Labels}
		}
	}
	put(t, store, id, recs...)
}
