package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// The kinds of rows.
const (
	kindRun        = "run"        // a call of Run begins
	kindUser       = "user"       // a message of the user
	kindHint       = "hint"       // a message of the program
	kindModel      = "model"      // a model call
	kindTool       = "tool"       // a tool call
	kindRetry      = "retry"      // of a model call
	kindDiscard    = "discard"    // an answer that broke off
	kindCompaction = "compaction" // of the conversation
	kindAsked      = "asked"      // a question of a tool or server, while it ran
	kindSampling   = "sampling"   // a request of a server to the model
	kindEnd        = "end"        // of a run
)

// A row is a line of a timeline: something that happened, with all of its events.
type row struct {
	Kind    string    `json:"kind"`
	Step    int       `json:"step,omitempty"`
	Record  int64     `json:"record,omitempty"` // that contains its last event: a fork can begin after it
	Start   time.Time `json:"start,omitzero"`
	End     time.Time `json:"end,omitzero"`
	Message string    `json:"message,omitempty"` // its id, of a message of the user or the model
	Name    string    `json:"name,omitempty"`    // of the tool or the model
	Text    string    `json:"text,omitempty"`    // the beginning of what was said, asked or returned
	State   string    `json:"state,omitempty"`   // "running", "asked", an outcome, or a reason of an end
	Why     string    `json:"why,omitempty"`     // the reason of a decision

	Decision permission.Behavior `json:"decision,omitempty"` // the first one about a call

	Fault  string        `json:"fault,omitempty"`  // the text of an error
	Lane   int           `json:"lane,omitempty"`   // calls that overlap have different ones, from 1
	Behind bool          `json:"behind,omitempty"` // the call continued in the background
	Usage  message.Usage `json:"usage,omitzero"`
	Cost   float64       `json:"cost,omitempty"`
	First  time.Duration `json:"first,omitempty"` // to the first piece of the model's answer
	Sub    int           `json:"sub,omitempty"`   // how many rows a sub-agent has

	call   string
	events []int64   // the numbers of its events
	detail any       // what is shown for a row without events
	nested *timeline // of the sub-agent
}

// A timeline makes rows of events. It is not safe for concurrent use.
type timeline struct {
	rows   []*row
	ledger ledger
	price  func(model string, u message.Usage) (float64, bool)

	changed map[int]bool   // the rows since they were last looked at
	step    int            // of the last model call
	pending int            // the row of a model call without an answer, or -1
	models  map[string]int // the rows of model calls, by the message
	calls   map[string]int // the rows of tool calls
	lanes   []string       // the call in each lane, "" for a free one
}

func newTimeline(price func(string, message.Usage) (float64, bool)) *timeline {
	return &timeline{price: price, changed: map[int]bool{}, pending: -1, models: map[string]int{}, calls: map[string]int{}}
}

// add adds an event, whose number in the session is seq.
func (t *timeline) add(ev event.Event, seq, record int64) {
	if i := t.apply(ev, seq, record); i >= 0 {
		r := t.rows[i]
		r.Record, r.events = record, append(r.events, seq)
		t.changed[i] = true
		t.ledger.add(ev, i, t.price)
	}
}

// row appends a row that begins with an event.
func (t *timeline) row(kind string, ev event.Event) (*row, int) {
	r := &row{Kind: kind, Step: t.step, Start: ev.Head().Time}
	t.rows = append(t.rows, r)
	return r, len(t.rows) - 1
}

// apply changes or appends the row that an event belongs to, and returns its index, -1 for none.
func (t *timeline) apply(ev event.Event, seq, record int64) int {
	switch ev := ev.(type) {
	case *event.RunStart:
		t.interruptModel(ev.Time)
		r, i := t.row(kindRun, ev)
		if ev.Resumed {
			r.Text = "continued"
		}
		return i
	case *event.ModelStart:
		t.step = ev.Step
		t.interruptModel(ev.Time)
		r, i := t.row(kindModel, ev)
		r.State, r.Name = "running", ev.Model
		t.pending = i
		t.models[ev.Message] = i
		return i
	case *event.Message:
		return t.message(ev)
	case *event.Retry:
		r, i := t.row(kindRetry, ev)
		r.State, r.Fault = string(message.OutcomeError), preview(ev.Error)
		r.Text = fmt.Sprintf("attempt %d failed, next one after %v", ev.Attempt, ev.Wait.Round(time.Millisecond))
		return i
	case *event.Discard:
		r, i := t.row(kindDiscard, ev)
		r.State, r.Fault = string(message.OutcomeError), preview(ev.Error)
		return i
	case *event.Elicitation:
		text := preview(ev.Message)
		i := slices.IndexFunc(t.rows, func(r *row) bool { // which the answer is for
			return ev.Action != "" && r.Kind == kindAsked && r.State == "asked" && r.call == ev.Call && r.Name == ev.Server && r.Text == text
		})
		if i < 0 {
			_, i = t.row(kindAsked, ev)
		}
		r := t.rows[i]
		r.call, r.Name, r.Text, r.State, r.Fault = ev.Call, ev.Server, text, cmp.Or(string(ev.Action), "asked"), preview(ev.Error)
		return i
	case *event.Sampling:
		r, i := t.row(kindSampling, ev)
		r.Name, r.Text, r.Fault = cmp.Or(ev.Model, ev.Server), preview(ev.Text), preview(ev.Refused)
		t.setUsage(r, ev.Model, ev.Usage)
		return i
	case *event.Compaction:
		r, i := t.row(kindCompaction, ev)
		r.Text = fmt.Sprintf("about %d tokens became %d, %d messages were replaced", ev.Before, ev.After, ev.Dropped)
		r.Why = preview(cmp.Or(ev.Failed, ev.Summary))
		t.setUsage(r, "", ev.Usage)
		return i
	case *event.End:
		r, i := t.row(kindEnd, ev)
		r.State, r.Fault = string(ev.Reason), preview(ev.Detail)
		t.interruptModel(ev.Time)
		return i
	}
	return t.applyCall(ev, seq, record)
}

// interruptModel ends the model call that has no answer, if there is one: its answer broke off, or was empty.
func (t *timeline) interruptModel(at time.Time) {
	if t.pending >= 0 {
		r := t.rows[t.pending]
		r.State, r.End = string(message.OutcomeInterrupted), at
		t.changed[t.pending] = true
		t.pending = -1
	}
}

// message completes the row of a model call, or appends one for another message.
func (t *timeline) message(ev *event.Message) int {
	m := ev.Message
	if m == nil || m.Role == message.RoleTool { // its results have events
		return -1
	}
	i, ok := t.models[m.ID]
	if !ok {
		kind := kindUser
		switch {
		case m.Role == message.RoleAssistant:
			kind = kindModel
		case isHint(m):
			kind = kindHint
		}
		_, i = t.row(kind, ev)
	}
	r := t.rows[i]
	if i == t.pending {
		t.pending = -1
	}
	r.Message, r.End, r.Text, r.State = m.ID, ev.Time, preview(textOf(m)), ev.Finish
	if m.Role == message.RoleAssistant {
		r.Name, r.First = cmp.Or(m.Model, r.Name), ev.FirstToken
		if m.Usage != nil {
			t.setUsage(r, m.Model, *m.Usage)
		}
	}
	return i
}

func (t *timeline) setUsage(r *row, model string, u message.Usage) {
	r.Usage = u
	r.Cost, _ = t.price(model, u)
}

// isHint reports whether a message was written by the program.
func isHint(m *message.Message) bool {
	return !slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, hint := b.(*message.Hint); return !hint })
}

// textOf returns what a message says: its text, else its hints, else the names of the tools that it calls.
func textOf(m *message.Message) string {
	if text := m.Text(); text != "" {
		return text
	}
	var parts []string
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Hint:
			parts = append(parts, b.Text)
		case *message.Data:
			parts = append(parts, "["+cmp.Or(b.Name, "data")+"]")
		case *message.ToolCall:
			parts = append(parts, b.Name)
		}
	}
	return strings.Join(parts, ", ")
}

// applyCall is apply for the events of tool calls.
func (t *timeline) applyCall(ev event.Event, seq, record int64) int {
	switch ev := ev.(type) {
	case *event.ToolCall:
		i := t.callRow(ev.Call, ev.Name, ev)
		t.rows[i].Text = inputText(ev.Input)
		return i
	case *event.ToolStart:
		i := t.callRow(ev.Call, ev.Name, ev)
		r := t.rows[i]
		r.Start, r.State, r.Why = ev.Time, "running", preview(ev.Reason)
		r.Decision = cmp.Or(r.Decision, permission.Allow)
		r.Lane = t.takeLane(ev.Call)
		return i
	case *event.Approval:
		i := t.callRow(ev.Call, ev.Name, ev)
		r := t.rows[i]
		r.State, r.Why = "asked", preview(ev.Reason)
		if r.call == ev.Call {
			r.Decision = permission.Ask
		}
		return i
	case *event.External:
		i := t.callRow(ev.Call, ev.Name, ev)
		r := t.rows[i]
		r.State, r.Text = "external", cmp.Or(r.Text, inputText(ev.Input))
		return i
	case *event.Background:
		i := t.callRow(ev.Call, ev.Name, ev)
		t.rows[i].Behind = true
		if ev.Result != nil {
			t.endCall(i, ev.Time, ev.Result.Outcome, ev.Result.Text())
		}
		return i
	case *event.ToolResult:
		i := t.callRow(ev.Call, ev.Name, ev)
		if !t.rows[i].Behind { // otherwise it says only that the call continues
			t.endCall(i, ev.Time, ev.Outcome, ev.Text)
		}
		if ev.By != "" {
			t.rows[i].Why = "refused by " + preview(ev.By)
		}
		return i
	case *event.Sub:
		i := t.callRow(ev.Call, "", ev)
		r := t.rows[i]
		if r.nested == nil {
			r.nested = newTimeline(t.price)
		}
		r.nested.add(ev.Event, seq, record)
		clear(r.nested.changed) // the page loads all rows of a sub-agent
		r.Sub = len(r.nested.rows)
		return i
	}
	return -1
}

// plainJSON writes what package json escapes for the sake of HTML as it is.
var plainJSON = strings.NewReplacer(`\\`, `\\`, `\u0026`, "&", `\u003c`, "<", `\u003e`, ">")

func inputText(input json.RawMessage) string { return preview(plainJSON.Replace(string(input))) }

// callRow returns the row of a call. For a call of a sub-agent, which waits and is also in the nested timeline, it is the
// row of the sub-agent.
func (t *timeline) callRow(call, name string, ev event.Event) int {
	if i, ok := t.calls[call]; ok {
		return i
	}
	outer, _, ofSub := strings.Cut(call, "/")
	if i, ok := t.calls[outer]; ok && ofSub {
		return i
	}
	r, i := t.row(kindTool, ev)
	r.call, r.Name = call, name
	t.calls[call] = i
	return i
}

// takeLane puts a call into the first free lane, unless it has one: a sub-agent starts again after an answer.
func (t *timeline) takeLane(call string) int {
	i := slices.Index(t.lanes, call)
	if i < 0 {
		i = slices.Index(t.lanes, "")
	}
	if i < 0 {
		i = len(t.lanes)
		t.lanes = append(t.lanes, "")
	}
	t.lanes[i] = call
	return i + 1
}

// endCall records how a call ended.
func (t *timeline) endCall(i int, at time.Time, outcome message.Outcome, text string) {
	r := t.rows[i]
	r.End, r.State = at, string(outcome)
	if outcome != message.OutcomeSuccess {
		r.Fault = preview(text)
	}
	if outcome == message.OutcomeDenied {
		r.Decision = cmp.Or(r.Decision, permission.Deny)
	}
	if lane := slices.Index(t.lanes, r.call); lane >= 0 {
		t.lanes[lane] = ""
	}
}

// at returns the row at a path: indexes joined by dots, of which all but the last lead to a sub-agent.
func (t *timeline) at(path string) (*row, error) {
	var r *row
	for part := range strings.SplitSeq(path, ".") {
		i, err := strconv.Atoi(part)
		if err != nil || t == nil || i < 0 || i >= len(t.rows) {
			return nil, badRequest(fmt.Sprintf("there is no row %.40q", path))
		}
		r = t.rows[i]
		t = r.nested
	}
	return r, nil
}

// addMessages adds rows for messages that have no events. When each began is known, not how long it took.
func (t *timeline) addMessages(list []*message.Message) {
	for _, m := range list {
		ev := &event.Message{Header: event.Header{Time: m.Created}, Message: m}
		if m.Role == message.RoleAssistant {
			t.step++
		}
		if i := t.message(ev); i >= 0 {
			t.rows[i].detail = m
		}
		for _, b := range m.Blocks {
			switch b := b.(type) {
			case *message.ToolCall:
				i := t.callRow(b.ID, b.Name, ev)
				t.rows[i].Text, t.rows[i].detail = inputText(b.Input), []any{b}
			case *message.ToolResult:
				i := t.callRow(b.ID, b.Name, ev)
				t.endCall(i, m.Created, b.Outcome, b.Text())
				list, _ := t.rows[i].detail.([]any)
				t.rows[i].detail = append(list, b)
			}
		}
	}
	for _, r := range t.rows {
		r.End = time.Time{}
	}
}
