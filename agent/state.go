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

// A State is a whole conversation: the messages, the open calls and what they wait for, the rules that users accepted,
// and what tools remember. The zero State is a new conversation. A State can be encoded as JSON: one process may save
// the State, and another may load it and continue.
//
// Read the fields between runs, not during one.
type State struct {
	ID       string             // of the conversation; made by the first run
	Messages []*message.Message // in order; an added message is never changed, but may be replaced
	Scope    toolkit.Scope      // the open tool groups
	Rules    []permission.Rule  // accepted by users in this conversation; apply in addition to Config.Policy
	Tools    toolstate.State    // what tools remember
	Usage    message.Usage      // of all model calls

	// Generation counts the compactions. As long as it is the same, messages were only appended.
	Generation int

	loop       decide.State // the open calls, and what was spent
	tokenRatio float64      // of the server's tokens to our estimate; 0 if unknown
	seal       string       // see [Config.Key]

	handoffPath []string       // the hand-off tools that lead from the agent that is run to the current agent
	revealed    *revealedTools // nil for a model that is not a [model.Revealer]
	sent        *sentParts     // the last request; not stored, so the first ModelStart after loading reports all parts

	loaded   bool          // the State was decoded from JSON
	redactor stateRedactor // from the last run; removes secrets from the JSON
	frozen   *mutableParts // as the save in progress encodes them; nil at other times
	saving   Saving        // what the save in progress stores in addition to the State
	busy     atomic.Bool   // a run uses the State
}

// Saving is what a save stores in addition to the State: the events and inputs that led to it.
type Saving struct {
	// Events are all events since the last successful save, except deltas, in order: events that were yielded without
	// a save, such as an [event.ModelStart], and events that are yielded once this save has succeeded. So every event is
	// in exactly one successful save, even if no consumer received it, unless a crash prevents the next save.
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

// Pending returns what the conversation waits for, from a user or the host, in the order of the calls: an
// [*event.Approval] or [*event.External] for each call, like the event that was emitted.
func (st *State) Pending() []event.Event {
	var out []event.Event
	for _, c := range st.loop.Open {
		out = append(out, pendingOf(c, st.loop.Run)...)
	}
	return out
}

// pendingOf returns what an open call of the run with the given id waits for.
func pendingOf(c *openCall, run string) []event.Event {
	head := event.Header{Seq: c.Announced.Seq, Run: run, Time: c.Announced.Time}
	switch c.Status {
	case decide.Asking:
		head.Type, head.Time = "approval", cmp.Or(head.Time, c.Asked) // Time is zero until the event is emitted
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

// Done reports whether the conversation has its answer: no call is open, no run was cut off, and the model has answered
// the last message. Without inputs, [Agent.Reply] and Run return that answer again, and [ReplyAs] a typed answer.
func (st *State) Done() bool {
	if len(st.loop.Open) > 0 || len(st.loop.Background) > 0 || st.loop.Running || len(st.Messages) == 0 {
		return false
	}
	last := st.Messages[len(st.Messages)-1]
	return last.Role == message.RoleAssistant && len(last.ToolCalls()) == 0 || st.finalCall() != nil
}

// stateJSON is the form in which a State is stored. The order of the fields is part of the sealed text.
type stateJSON struct {
	Version     int                `json:"version"`
	ID          string             `json:"id,omitempty"`
	Messages    []*message.Message `json:"messages"`
	Scope       json.RawMessage    `json:"scope,omitempty"`
	Rules       []permission.Rule  `json:"rules,omitempty"`
	Tools       json.RawMessage    `json:"tools,omitempty"`
	Usage       message.Usage      `json:"usage"`
	Seq         int64              `json:"seq"`
	Run         string             `json:"run,omitempty"`
	Spent       decide.Spent       `json:"spent,omitzero"`
	Open        []*openCall        `json:"open,omitempty"`
	Background  []*backgroundCall  `json:"away,omitempty"`
	Generation  int                `json:"generation,omitempty"`
	TokenRatio  float64            `json:"token_ratio,omitempty"`
	Seal        string             `json:"seal,omitempty"`
	Running     bool               `json:"running,omitempty"`
	HandoffPath []string           `json:"handed,omitempty"`
	Revealed    *revealedJSON      `json:"revealed,omitempty"`
}

// toJSON returns what is to be encoded, without the first n messages and without secrets.
func (st *State) toJSON(n int) (stateJSON, error) {
	m := st.frozen
	if m == nil {
		var err error
		if m, err = st.encodeMutable(); err != nil {
			return stateJSON{}, err
		}
	}
	loop := &st.loop
	out := stateJSON{Version: stateVersion, ID: st.ID, Scope: m.scope, Rules: st.Rules, Tools: m.tools, Usage: st.Usage,
		Seq: loop.Seq, Run: loop.Run, Spent: loop.Spent, Open: loop.Open, Background: loop.Background, Running: loop.Running,
		Generation: st.Generation, TokenRatio: st.tokenRatio, Seal: st.seal, HandoffPath: st.handoffPath, Revealed: st.revealed.toJSON()}
	msgs := st.Messages[n:]
	if st.redactor.r != nil {
		msgs = st.redactor.messages(msgs, len(st.Messages))
		out = redacted(st.redactor.r, out)
	}
	out.Messages = msgs
	return out, nil
}

// mutableParts is the JSON of the parts that tools may change at any moment of a run; only the run's goroutine changes
// the rest of a State. A save encodes the mutable parts once: otherwise the seal, which is computed first, might not
// match the file.
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

// MarshalFrom writes the state without the first n messages, for a store that already has them; see Generation.
func (st *State) MarshalFrom(n int) ([]byte, error) {
	out, err := st.toJSON(n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// UnmarshalJSON replaces the state with what MarshalJSON wrote, in this version or an older one. The JSON is not
// trusted: UnmarshalJSON returns an error if the history breaks the rules of [CheckHistory]. After an error the state
// is unchanged.
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
		return fmt.Errorf("session: version %d does not exist; the first version is 1", *head.Version)
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
		for _, c := range m.ToolCalls() { // without the escapes that MarshalJSON has added: the model gets the same bytes as before
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
	st.Generation, st.tokenRatio, st.seal = in.Generation, window.Clamp(in.TokenRatio), in.Seal
	st.loop, st.loaded, st.handoffPath, st.revealed, st.sent = loop, true, in.HandoffPath, in.Revealed.revealed(), nil
	return nil
}

// decodeMutable decodes both parts, or neither if there is an error. A nil part is empty.
func (st *State) decodeMutable(scope, tools json.RawMessage) error {
	empty := json.RawMessage("{}")
	if scope == nil {
		scope = empty
	}
	if tools == nil {
		tools = empty
	}
	// First into other values, to find errors; these values contain locks, so they cannot be copied to the State.
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
		return errors.New("calls are open, but there is no message that contains them")
	}
	return CheckHistory(append(slices.Clone(msgs), decide.Results(loop.Open)))
}

// pendingInSub returns what the sub-agent that works on c waits for, as events of the outer run. head is the header of the
// first event; the numbers of the others follow, unless head.Seq is 0 because no event was emitted. Each id begins
// with the id of c, since calls of different sub-agents may have the same id.
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
