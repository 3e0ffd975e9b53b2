package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// stateVersion is the version of a State's JSON that this program writes. It
// reads this one and older ones.
const stateVersion = 1

// ErrNewerState is wrapped by the error for a State that a newer version of
// kitbag wrote.
var ErrNewerState = errors.New("the session was written by a newer version of kitbag")

// A State is a whole conversation: what was said, what is open, what people
// allowed, what tools remember, and what waits. The zero State is a new
// conversation. It is plain JSON: what one process saves another may load and
// go on with.
//
// Read the fields between runs, not during one.
type State struct {
	ID       string             // of the conversation; made by the first run
	Messages []*message.Message // immutable once they are here
	Scope    toolkit.Scope      // the open tool groups
	Rules    []permission.Rule  // accepted in this conversation, added to Config.Policy
	Tools    tool.State         // what tools remember
	Usage    message.Usage      // of all model calls

	// Generation counts how often earlier messages were rewritten
	// (compaction): while it stays, Messages only grows.
	Generation int

	seq   int64  // of the last event
	run   string // id of the current run, "" between runs
	spent spent  // since the last input
	open  []*openCall
	away  []*awayCall
	ratio float64 // of reported to estimated tokens; 0 for unknown
	seal  string  // see [Config.Key]

	loaded bool // it came as JSON

	cleaner cleaner // what is encoded goes through it

	frozen *moving // what is encoded for these parts, while the run saves

	running bool // a run is on, or was when its process was stopped

	busy atomic.Bool
}

// openCall is a call of the last assistant message, until the results of all
// of them are added to the conversation together.
type openCall struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`           // as the model called it
	Tool  string          `json:"tool,omitempty"` // the tool that would run
	Input json.RawMessage `json:"input,omitempty"`

	Status   callStatus `json:"status"`
	Again    bool       `json:"again,omitempty"` // started a second time, after a crash
	Parallel bool       `json:"parallel,omitempty"`
	Late     bool       `json:"late,omitempty"` // changes what is open: runs last

	Approved bool   `json:"approved,omitempty"` // by a person
	Edited   bool   `json:"edited,omitempty"`   // a person changed Input
	Judged   int    `json:"judged,omitempty"`   // how many calls had ended when it was allowed
	Why      string `json:"why,omitempty"`      // it may run, or is asked about

	Safety  bool              `json:"safety,omitempty"`
	Danger  string            `json:"danger,omitempty"` // the reason of the safety question that a person was asked
	Suggest []permission.Rule `json:"suggest,omitempty"`
	Preview string            `json:"preview,omitempty"`
	Asked   time.Time         `json:"asked,omitzero"`

	Result *message.ToolResult `json:"result,omitempty"`

	Sub     json.RawMessage `json:"sub,omitempty"` // the State of a sub-agent
	Charged charge          `json:"charged,omitzero"`
	answers []Input         // for it; never saved, they come and go within one Run
	early   *earlyCall      // it started before its answer was there; never saved
}

// awayCall is a call that went on in the background, until the model is told of
// its result.
type awayCall struct {
	ID     string              `json:"id"`
	Tool   string              `json:"tool"`
	Result *message.ToolResult `json:"result,omitempty"` // nil while it runs
}

type callStatus string

const (
	statusNew      callStatus = "new"      // not judged yet
	statusAllowed  callStatus = "allowed"  // may run
	statusAsking   callStatus = "asking"   // a person is asked
	statusCovered  callStatus = "covered"  // judged again when a like call has been answered
	statusExternal callStatus = "external" // the host has it
	statusNested   callStatus = "nested"   // a sub-agent waits
	statusRunning  callStatus = "running"  // started, no result yet
	statusDone     callStatus = "done"
)

// Pending returns what waits for a person or for the host, in call order: each
// is an [*Approval] or an [*External] like the event that told of it.
func (st *State) Pending() []Event {
	var out []Event
	for _, c := range st.open {
		switch c.Status {
		case statusAsking:
			out = append(out, &Approval{Head: Head{Type: "approval", Run: st.run}, Call: c.ID, Name: c.Tool, Input: c.Input,
				Reason: c.Why, Safety: c.Safety, Suggest: slices.Clone(c.Suggest), Preview: c.Preview})
		case statusExternal:
			out = append(out, &External{Head: Head{Type: "external", Run: st.run}, Call: c.ID, Name: c.Tool, Input: c.Input})
		case statusNested:
			out = append(out, c.pendingBelow(st.run)...)
		}
	}
	return out
}

func (st *State) find(call string) *openCall {
	for _, c := range st.open {
		if c.ID == call {
			return c
		}
	}
	return nil
}

// doneCalls counts the open calls that have ended.
func (st *State) doneCalls() int {
	n := 0
	for _, c := range st.open {
		if c.Status == statusDone {
			n++
		}
	}
	return n
}

type stateJSON struct {
	Version  int                `json:"version"`
	ID       string             `json:"id,omitempty"`
	Messages []*message.Message `json:"messages"`
	Scope    json.RawMessage    `json:"scope,omitempty"`
	Rules    []permission.Rule  `json:"rules,omitempty"`
	Tools    json.RawMessage    `json:"tools,omitempty"`
	Usage    message.Usage      `json:"usage"`
	Seq      int64              `json:"seq"`
	Run      string             `json:"run,omitempty"`
	Spent    spent              `json:"spent,omitzero"`
	Open     []*openCall        `json:"open,omitempty"`
	Away     []*awayCall        `json:"away,omitempty"`
	Gen      int                `json:"generation,omitempty"`
	Ratio    float64            `json:"token_ratio,omitempty"`
	Seal     string             `json:"seal,omitempty"`
	Running  bool               `json:"running,omitempty"`
}

// toJSON returns what is encoded, with the messages after the first n.
func (st *State) toJSON(n int) (stateJSON, error) {
	m := st.frozen
	if m == nil {
		var err error
		if m, err = st.encodeMoving(); err != nil {
			return stateJSON{}, err
		}
	}
	out := stateJSON{stateVersion, st.ID, st.Messages[n:], m.scope, st.Rules, m.tools,
		st.Usage, st.seq, st.run, st.spent, st.open, st.away, st.Generation, st.ratio, st.seal, st.running}
	st.redactState(&out)
	return out, nil
}

// moving holds the JSON of what tools may change at any moment of a run. All
// else in a State belongs to the run's goroutine. A save encodes these parts
// once, before it seals: else a seal and a file that were encoded one after the
// other could be of two different States.
type moving struct{ scope, tools json.RawMessage }

func (st *State) encodeMoving() (*moving, error) {
	scope, err := st.Scope.MarshalJSON()
	if err != nil {
		return nil, err
	}
	tools, err := st.Tools.MarshalJSON()
	return &moving{scope, tools}, err
}

// MarshalJSON writes the whole state.
func (st *State) MarshalJSON() ([]byte, error) { return st.MarshalFrom(0) }

// MarshalFrom writes the state with only those messages that follow the first
// n, for a store that has the others: messages do not change.
func (st *State) MarshalFrom(n int) ([]byte, error) {
	in, err := st.toJSON(n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(in)
}

// UnmarshalJSON replaces the state with what MarshalJSON wrote, in this version
// or an older one. A State is not trusted: one whose history breaks the rules of
// [CheckHistory] is refused. After an error the state is as it was.
func (st *State) UnmarshalJSON(data []byte) error {
	var head struct {
		Version *int `json:"version"`
	}
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return fmt.Errorf("session: %w", err)
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
	if err := checkOpen(in.Messages, in.Open); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if slices.Contains(in.Away, nil) {
		return errors.New("session: a call in the background is null")
	}
	if err := st.decodeMoving(in.Scope, in.Tools); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	st.ID, st.Messages, st.Rules, st.Usage = in.ID, in.Messages, in.Rules, in.Usage
	st.seq, st.run, st.spent, st.open, st.away = in.Seq, in.Run, in.Spent, in.Open, in.Away
	st.Generation, st.ratio, st.seal, st.running = in.Gen, window.Clamp(in.Ratio), in.Seal, in.Running
	st.loaded = true
	return nil
}

// decodeMoving replaces both parts, or none. Both types hold locks and cannot be
// copied, so each text is tried on another value first. An absent part is empty.
func (st *State) decodeMoving(scope, tools json.RawMessage) error {
	none := json.RawMessage("{}")
	if scope == nil {
		scope = none
	}
	if tools == nil {
		tools = none
	}
	if err := errors.Join(new(toolkit.Scope).UnmarshalJSON(scope), new(tool.State).UnmarshalJSON(tools)); err != nil {
		return err
	}
	return errors.Join(st.Scope.UnmarshalJSON(scope), st.Tools.UnmarshalJSON(tools))
}

// checkOpen checks that the history is whole, but for the calls that are open.
func checkOpen(msgs []*message.Message, open []*openCall) error {
	if len(open) == 0 {
		return CheckHistory(msgs)
	}
	for i, c := range open {
		if c == nil {
			return fmt.Errorf("open call %d is null", i)
		}
		if err := c.check(); err != nil {
			return err
		}
	}
	if len(msgs) == 0 {
		return errors.New("calls are open but there is no message that made them")
	}
	closed := append(slices.Clone(msgs), closing(open))
	return CheckHistory(closed)
}

// check checks what of c does not depend on the history.
func (c *openCall) check() error {
	switch c.Status {
	case statusNew, statusAllowed, statusAsking, statusCovered, statusExternal, statusNested, statusRunning, statusDone:
	default:
		return fmt.Errorf("the status of open call %q is %q, which does not exist", c.ID, c.Status)
	}
	if (c.Result != nil) != (c.Status == statusDone) {
		return fmt.Errorf("open call %q: status %q, but a result is there: %t", c.ID, c.Status, c.Result != nil)
	}
	return nil
}

// closing returns the message that answers the open calls; those without a
// result get an empty one.
func closing(open []*openCall) *message.Message {
	m := &message.Message{Role: message.RoleTool}
	for _, c := range open {
		res := c.Result
		if res == nil {
			res = &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: message.OutcomeInterrupted}
		}
		m.Blocks = append(m.Blocks, res)
	}
	return m
}
