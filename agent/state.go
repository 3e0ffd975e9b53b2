package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// stateVersion is the version of a State's JSON that this program writes. It reads this version and older ones.
const stateVersion = 1

// ErrNewerState is wrapped by the error for a State that was written by a newer version of kitbag.
var ErrNewerState = errors.New("the session was written by a newer version of kitbag")

// A State is a whole conversation: the messages, the open calls, the rules that users accepted, what tools
// remember, and what is waited for. The zero State is a new conversation. It can be encoded as JSON: one
// process may save it and another may load it and continue.
//
// Read the fields between runs, not during one.
type State struct {
	ID       string             // of the conversation; made by the first run
	Messages []*message.Message // each one is immutable once it is added
	Scope    toolkit.Scope      // the open tool groups
	Rules    []permission.Rule  // accepted in this conversation, added to Config.Policy
	Tools    toolstate.State    // what tools remember
	Usage    message.Usage      // of all model calls

	// Generation counts how often earlier messages were rewritten (compaction). While it is the same,
	// messages were only appended.
	Generation int

	loop  decide.State // the open calls, and what was spent
	ratio float64      // of reported to estimated tokens; 0 for unknown
	seal  string       // see [Config.Key]

	handoffPath []string // names of the hand-off tools that lead from the agent that is run to the current one

	revealed *revealedTools // nil for a model that does not accept tools in the conversation

	sent *sentParts // the last request; not stored, so the first one after loading is reported whole

	loaded  bool          // it was decoded from JSON
	cleaner cleaner       // removes secrets from what is encoded
	frozen  *mutableParts // the encoded form of these parts, while the run saves
	saving  Saving        // what the current save stores in addition to the State
	busy    atomic.Bool
}

// Saving is what a save stores in addition to the State: the events and inputs that led to it.
type Saving struct {
	// Events are all events since the last successful save, except deltas, in order: those that need no
	// save, such as an [event.ModelStart], and those that are yielded once this save has succeeded. So
	// every event is in exactly one save, even if no consumer received it. Every yielded event is stored,
	// except one that needs no save and was the last before a crash.
	Events []event.Event

	Inputs []string // the ids of the inputs whose effect is now in the State; see [WithID]
}

// Saving returns what is saved with the State. It is for [Config.Save], and empty at any other time.
func (st *State) Saving() Saving { return st.saving }

// The parts of a State that package decide defines.
type (
	openCall       = decide.Call
	backgroundCall = decide.BackgroundCall
)

// Pending returns what the conversation waits for, from a user or the host, in the order of the calls: each
// is an [*event.Approval] or an [*event.External] like the event that was emitted.
func (st *State) Pending() []event.Event {
	var out []event.Event
	for _, c := range st.loop.Open {
		out = append(out, pendingOf(c, st.loop.Run)...)
	}
	return out
}

// pendingOf returns what an open call of a run waits for.
func pendingOf(c *openCall, run string) []event.Event {
	head := event.Header{Seq: c.Announced.Seq, Run: run, Time: c.Announced.Time}
	switch c.Status {
	case decide.Asking:
		head.Type, head.Time = "approval", cmp.Or(head.Time, c.Asked)
		q := &event.Approval{Header: head, Call: c.ID, Name: c.Tool, Input: c.Input, Reason: c.Why, Safety: c.Safety,
			Suggest: slices.Clone(c.Suggest), Preview: c.Preview, Runs: c.Judgement.Differs(c.Input), Question: c.Question}
		if c.Confined && c.Judgement != nil {
			q.Profile, q.Network = c.Judgement.Profile, c.Judgement.Network
		}
		return []event.Event{q}
	case decide.External:
		head.Type = "external"
		return []event.Event{&event.External{Header: head, Call: c.ID, Name: c.Tool, Input: c.Input}}
	case decide.Nested:
		return pendingInSub(c, head)
	}
	return nil
}

// Done reports whether the conversation has its answer: nothing waits or was cut off, and the model has answered
// the last message. Without inputs [Agent.Reply] and Run return that answer again, and [ReplyAs] returns a typed one.
func (st *State) Done() bool {
	if len(st.loop.Open) > 0 || len(st.loop.Background) > 0 || st.loop.Running || len(st.Messages) == 0 {
		return false
	}
	last := st.Messages[len(st.Messages)-1]
	return last.Role == message.RoleAssistant && len(last.ToolCalls()) == 0 || st.finalCall() != nil
}

type stateJSON struct {
	Version    int                `json:"version"`
	ID         string             `json:"id,omitempty"`
	Messages   []*message.Message `json:"messages"`
	Scope      json.RawMessage    `json:"scope,omitempty"`
	Rules      []permission.Rule  `json:"rules,omitempty"`
	Tools      json.RawMessage    `json:"tools,omitempty"`
	Usage      message.Usage      `json:"usage"`
	Seq        int64              `json:"seq"`
	Run        string             `json:"run,omitempty"`
	Spent      decide.Spent       `json:"spent,omitzero"`
	Open       []*openCall        `json:"open,omitempty"`
	Background []*backgroundCall  `json:"away,omitempty"`
	Gen        int                `json:"generation,omitempty"`
	Ratio      float64            `json:"token_ratio,omitempty"`
	Seal       string             `json:"seal,omitempty"`
	Running    bool               `json:"running,omitempty"`
	Handed     []string           `json:"handed,omitempty"`
	Revealed   *revealedJSON      `json:"revealed,omitempty"`
}

// toJSON returns what is to be encoded, with the messages after the first n.
func (st *State) toJSON(n int) (stateJSON, error) {
	m := st.frozen
	if m == nil {
		var err error
		if m, err = st.encodeMutable(); err != nil {
			return stateJSON{}, err
		}
	}
	out := stateJSON{stateVersion, st.ID, st.Messages[n:], m.scope, st.Rules, m.tools,
		st.Usage, st.loop.Seq, st.loop.Run, st.loop.Spent, st.loop.Open, st.loop.Background, st.Generation, st.ratio, st.seal, st.loop.Running, st.handoffPath,
		st.revealed.toJSON()}
	st.redactState(&out)
	return out, nil
}

// mutableParts is the JSON of the parts that tools may change at any moment of a run. Everything else in a State
// is changed only by the run's goroutine. A save encodes these parts once, before it seals: otherwise the
// seal and the file, encoded one after the other, could be of two different States.
type mutableParts struct{ scope, tools json.RawMessage }

func (st *State) encodeMutable() (*mutableParts, error) {
	scope, err := st.Scope.MarshalJSON()
	if err != nil {
		return nil, err
	}
	tools, err := st.Tools.MarshalJSON()
	return &mutableParts{scope, tools}, err
}

// MarshalJSON writes the whole state.
func (st *State) MarshalJSON() ([]byte, error) { return st.MarshalFrom(0) }

// MarshalFrom writes the state with only the messages after the first n, for a store that has the others:
// messages do not change.
func (st *State) MarshalFrom(n int) ([]byte, error) {
	out, err := st.toJSON(n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// UnmarshalJSON replaces the state with what MarshalJSON wrote, in this version or an older one. A State is
// not trusted: if its history breaks the rules of [CheckHistory], it returns an error. After an error the
// state is unchanged.
func (st *State) UnmarshalJSON(data []byte) error {
	var head struct {
		Version *int `json:"version"`
	}
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return fmt.Errorf("session: this is not a kitbag session: %w", err)
	case head.Version == nil:
		return errors.New(`session: no "version": this is not a kitbag session`)
	case *head.Version > stateVersion:
		return fmt.Errorf("session: %w: its version is %d, this program reads up to %d; update the program",
			ErrNewerState, *head.Version, stateVersion)
	case *head.Version < 1:
		return fmt.Errorf("session: version %d does not exist", *head.Version)
	}
	var in stateJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	loop := decide.State{Seq: in.Seq, Run: in.Run, Running: in.Running, Spent: in.Spent, Open: in.Open, Background: in.Background}
	if err := checkOpen(in.Messages, &loop); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	for _, m := range in.Messages {
		for _, c := range m.ToolCalls() { // so that the model gets the bytes that it got before
			c.Input = strictjson.Plain(c.Input)
		}
	}
	for _, c := range loop.Open {
		c.Input = strictjson.Plain(c.Input)
	}
	loop.SetUnverified(true) // until a run has checked the seal
	if err := st.decodeMutable(in.Scope, in.Tools); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	st.ID, st.Messages, st.Rules, st.Usage = in.ID, in.Messages, in.Rules, in.Usage
	st.Generation, st.ratio, st.seal = in.Gen, window.Clamp(in.Ratio), in.Seal
	st.loop, st.loaded, st.handoffPath, st.revealed, st.sent = loop, true, in.Handed, in.Revealed.revealed(), nil
	return nil
}

// decodeMutable replaces both parts, or neither. Both types contain locks and cannot be copied, so each text
// is decoded into another value first. An absent part is empty.
func (st *State) decodeMutable(scope, tools json.RawMessage) error {
	none := json.RawMessage("{}")
	if scope == nil {
		scope = none
	}
	if tools == nil {
		tools = none
	}
	if err := errors.Join(new(toolkit.Scope).UnmarshalJSON(scope), new(toolstate.State).UnmarshalJSON(tools)); err != nil {
		return err
	}
	return errors.Join(st.Scope.UnmarshalJSON(scope), st.Tools.UnmarshalJSON(tools))
}

// checkOpen checks that the history is complete, except for the results of open calls.
func checkOpen(msgs []*message.Message, loop *decide.State) error {
	if err := loop.Check(); err != nil {
		return err
	}
	if len(loop.Open) == 0 {
		return CheckHistory(msgs)
	}
	if len(msgs) == 0 {
		return errors.New("calls are open but there is no message that made them")
	}
	return CheckHistory(append(slices.Clone(msgs), decide.Results(loop.Open)))
}

// pendingInSub returns what a sub-agent's call waits for, as questions of the outer run, which emitted them
// one after the other. Two sub-agents may give calls the same id, so the outer call's id is the prefix.
func pendingInSub(c *openCall, head event.Header) []event.Event {
	var st State
	if json.Unmarshal(c.Sub, &st) != nil {
		return nil
	}
	pending := st.Pending()
	for _, p := range pending {
		h := p.Head()
		h.Run, h.Seq = head.Run, head.Seq
		if !head.Time.IsZero() {
			h.Time = head.Time
		}
		switch p := p.(type) {
		case *event.Approval:
			p.Call = c.ID + "/" + p.Call
		case *event.External:
			p.Call = c.ID + "/" + p.Call
		}
		if head.Seq > 0 {
			head.Seq++
		}
	}
	return pending
}

// redactState removes secrets from what is about to be encoded; the State itself keeps them.
func (st *State) redactState(out *stateJSON) {
	if st.cleaner.r == nil {
		return
	}
	msgs := st.cleaner.messages(out.Messages, len(st.Messages))
	out.Messages = nil
	*out = redacted(st.cleaner.r, *out)
	out.Messages = msgs
}
