package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// A State is the progress of a conversation. It is saved with its messages.
type State struct {
	Seq        int64             // of the last event
	Run        string            // id of the current run, "" between runs
	Running    bool              // a run is in progress, or was when its process was stopped
	Spent      Spent             // since the last input
	Open       []*Call           // in the order of the model's answer
	Background []*BackgroundCall // oldest first
}

// judgeAgain is the value of Call.Judged for a call that must be judged again before it starts.
const judgeAgain = -1

// A Call is a call of the last assistant message, until the results of all calls of the message are added to the
// conversation together. Its JSON is part of saved sessions: members may be added, but never changed.
type Call struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`           // as the model called it
	Tool  string          `json:"tool,omitempty"` // the tool that would run
	Input json.RawMessage `json:"input,omitempty"`

	Status        Status `json:"status"`
	Again         bool   `json:"again,omitempty"` // started a second time, after a crash
	Parallel      bool   `json:"parallel,omitempty"`
	ChangesGroups bool   `json:"late,omitempty"` // changes which tools are visible: runs last

	Handoff Handoff `json:"handoff,omitempty"` // which agent continues when the call has succeeded

	Approved   bool   `json:"approved,omitempty"` // by the user
	Unverified bool   `json:"-"`                  // read from a State whose seal was not checked: anyone may have written it
	Edited     bool   `json:"edited,omitempty"`   // the user changed Input
	Judged     int    `json:"judged,omitempty"`   // how many calls had ended when the call was allowed; or judgeAgain
	Why        string `json:"why,omitempty"`      // why the call may run, or needs approval

	// The last question to the user, from the permission.Decision:
	Safety  bool              `json:"safety,omitempty"`
	Danger  string            `json:"danger,omitempty"` // the reason if Safety is set
	Suggest []permission.Rule `json:"suggest,omitempty"`

	// Judgement is what the last decision was based on. File contents in it are only for comparison.
	Judgement *permission.Judgement `json:"judgement,omitempty"`

	Confined bool `json:"confined,omitempty"` // the tool runs the call in the sandbox profile of the Judgement

	Preview   string    `json:"preview,omitempty"`  // shown with the question
	Asked     time.Time `json:"asked,omitzero"`     // when the question was asked
	Question  int64     `json:"question,omitempty"` // the number of the question's event
	Announced Announced `json:"told,omitzero"`      // the last event about what the call waits for

	Result *message.ToolResult `json:"result,omitempty"`

	Sub     json.RawMessage `json:"sub,omitempty"`    // the State of the sub-agent that works on the call
	Charged Charge          `json:"charged,omitzero"` // what the sub-agent has used, as far as the outer run has counted it
}

// SetUnverified records whether the open calls were read from a State whose seal was not checked.
func (s *State) SetUnverified(unverified bool) {
	for _, c := range s.Open {
		c.Unverified = unverified
	}
}

// A Handoff says which agent gets the conversation after a call.
type Handoff string

// The hand-offs.
const (
	HandoffNone Handoff = ""
	HandoffTo   Handoff = "to"   // another agent
	HandoffBack Handoff = "back" // the previous agent
)

// Announced identifies an emitted event.
type Announced struct {
	Seq  int64     `json:"seq,omitempty"`
	Time time.Time `json:"time,omitzero"`
}

// A BackgroundCall is a call that runs or ran in the background, until the conversation has its result.
type BackgroundCall struct {
	ID     string              `json:"id"`
	Tool   string              `json:"tool"`
	Result *message.ToolResult `json:"result,omitempty"` // nil while it runs
}

// A Status is the state of a call.
type Status string

// The statuses.
const (
	New      Status = "new"      // not judged yet
	Allowed  Status = "allowed"  // may run
	Asking   Status = "asking"   // waits for the user
	Covered  Status = "covered"  // judged again when the user has answered about a similar call
	External Status = "external" // waits for the host
	Nested   Status = "nested"   // its sub-agent waits
	Running  Status = "running"  // started, no result yet
	Done     Status = "done"
)

// Check returns an error if the open calls cannot be those of a saved conversation.
func (s *State) Check() error {
	for i, c := range s.Open {
		if c == nil {
			return fmt.Errorf("open call %d is null", i)
		}
		switch c.Status {
		case New, Allowed, Asking, Covered, External, Nested, Running, Done:
		default:
			return fmt.Errorf("open call %q has the unknown status %q", c.ID, c.Status)
		}
		if (c.Result != nil) != (c.Status == Done) {
			return fmt.Errorf("open call %q: the status is %q; a call has a result if it is done, and only then", c.ID, c.Status)
		}
	}
	if slices.Contains(s.Background, nil) {
		return fmt.Errorf("a background call is null")
	}
	return nil
}

// Find returns the open call with the given id, or nil.
func (s *State) Find(id string) *Call {
	for _, c := range s.Open {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// EndedCalls counts the open calls that have ended.
func (s *State) EndedCalls() int { return s.count(Done) }

func (s *State) count(status Status) int {
	n := 0
	for _, c := range s.Open {
		if c.Status == status {
			n++
		}
	}
	return n
}

// InBackground returns the calls that run in the background, oldest first.
func (s *State) InBackground() []*BackgroundCall {
	return slices.DeleteFunc(slices.Clone(s.Background), func(bg *BackgroundCall) bool { return bg.Result != nil })
}

// Results returns the message with the results of calls. In place of a missing result it has an empty one, so that the
// history can be checked while calls are open.
func Results(open []*Call) *message.Message {
	m := &message.Message{Role: message.RoleTool, Blocks: make(message.Blocks, 0, len(open))}
	for _, c := range open {
		res := c.Result
		if res == nil {
			res = &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: message.OutcomeInterrupted}
		}
		m.Blocks = append(m.Blocks, res)
	}
	return m
}

// ResultOf returns a result for c whose text is from the program, not from a tool.
func ResultOf(c *Call, outcome message.Outcome, text string) *message.ToolResult {
	return &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: outcome, Blocks: message.Blocks{&message.Text{Text: text}}}
}
