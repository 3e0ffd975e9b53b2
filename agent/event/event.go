// Package event defines the events of a run of an agent, and the answers to its questions.
//
// [Agent.Run] yields events. A program switches on those that it shows:
//
//	for ev, err := range a.Run(ctx, &st, agent.Say("What is 2+3?")) {
//		if err != nil {
//			return err
//		}
//		switch ev := ev.(type) {
//		case *event.TextDelta:
//			fmt.Print(ev.Text)
//		case *event.Approval:
//			fmt.Printf("may %s run? %s\n", ev.Name, ev.Reason)
//		}
//	}
//
// Every event has a [Header] with its type and its sequence number, so that all of them can be sent
// to a browser (server-sent events) without a case for each:
//
//	h := ev.Head()
//	data, err := json.Marshal(ev)
//	fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", h.Seq, h.Type, data)
//
// [Decode] decodes such an event again. An [*Approval] is answered by a [Confirm], which [Approval.Allow] and
// [Approval.Deny] make, and an [*External] by a [Result]: both are inputs of the next run.
//
// [Agent.Run]: https://pkg.go.dev/github.com/kitbag-go/kitbag/agent#Agent.Run
package event

import (
	"encoding/json"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// An Event is something that happened in a run: a [*RunStart], [*ModelStart], [*TextDelta], [*ThinkingDelta],
// [*ToolCallDelta], [*Discard], [*Retry], [*Message], [*ToolCall], [*ToolStart], [*ToolDelta], [*ToolResult],
// [*Approval], [*External], [*Background], [*Elicitation], [*Sampling], [*Sub], [*Compaction] or [*End]. The set is
// closed. Events are immutable and encode to JSON objects whose "type" is the name in lower case with underscores.
// Ids in events are those of the stored messages, blocks and calls.
type Event interface {
	// Head returns the part that every event has.
	Head() *Header

	kind() string
}

// A Header is the part that every event has.
type Header struct {
	Seq  int64     `json:"seq"` // 1, 2, 3 … within the State; after a crash or a failed save some are skipped, but none occurs twice
	Type string    `json:"type"`
	Run  string    `json:"run"` // the id of the run, which stays the same while it waits
	Time time.Time `json:"time"`
}

// Head returns h.
func (h *Header) Head() *Header { return h }

// TypeOf returns the "type" of an event, which its Header has once a run has emitted it.
func TypeOf(ev Event) string { return ev.kind() }

// RunStart is the first event of a call of Run. Resumed says that the run had been waiting, or was cut off.
type RunStart struct {
	Header
	Session string `json:"session"` // the ID of the agent.State
	Resumed bool   `json:"resumed,omitempty"`
}

// ModelStart says that the model is being called. Digest identifies the list of tools in the request: if the list
// changes, the provider's prompt cache misses.
type ModelStart struct {
	Header
	Message string `json:"message"` // the id that the answer will have
	Step    int    `json:"step"`    // counted from 1 for each input
	Model   string `json:"model,omitempty"`
	Tools   int    `json:"tools"` // number of tools in the list
	Digest  string `json:"digest,omitempty"`

	// Same and Parts describe the request if agent.Config.Save is set: the request begins with the first Same parts of
	// the conversation's previous request, which are in the provider's cache, and continues with Parts. The first request
	// of a process has all its parts in Parts.
	Same  int    `json:"same,omitempty"`
	Parts []Part `json:"parts,omitempty"`

	// Groups are all groups of tools that may be opened (see toolkit.Ceiling), if agent.Config.Save is set and a group has
	// changed since the process's previous request.
	Groups []Group `json:"groups,omitempty"`
}

// A Group is a group of tools when a request was made.
type Group struct {
	Name  string `json:"name"`
	Open  bool   `json:"open,omitempty"`
	Tools int    `json:"tools"` // number of known tools; the tools of a server are known once the server has started
	Bytes int    `json:"bytes"` // of the tools' definitions
	About int    `json:"about"` // bytes of the group's name and description: the model reads no more of a closed group
	// By is who opened or closed the group since the previous request: "model" with a control tool; "rule", because groups
	// exclude each other or a parent was closed; "user", see toolkit.Scope.ByUser; or "host", the program. Empty if the
	// group was neither opened nor closed.
	By string `json:"by,omitempty"`
}

// A Part is a part of a request to a model: a tool, the system prompt, a message, or a later change of the tools.
// Equal Parts have equal contents.
type Part struct {
	Kind   string `json:"kind"`           // "tool", "system", "message" or "change"
	Name   string `json:"name,omitempty"` // a tool's name, a message's role or "hint", a change like "+added -removed"
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`          // of the text; a provider may encode it with more or fewer
	Data   int    `json:"data,omitempty"` // number of images and files
}

// TextDelta is the next piece of the model's text.
type TextDelta struct {
	Header
	Message string `json:"message"`
	Block   string `json:"block"`
	Text    string `json:"text"`
}

// ThinkingDelta is the next piece of the model's reasoning.
type ThinkingDelta struct {
	Header
	Message string `json:"message"`
	Block   string `json:"block"`
	Text    string `json:"text"`
}

// ToolCallDelta is the next piece of a tool call that the model is writing. Args is raw text, which may turn
// out to be invalid.
type ToolCallDelta struct {
	Header
	Message string `json:"message"`
	Call    string `json:"call"`
	Name    string `json:"name"`
	Args    string `json:"args"`
}

// Discard says that the deltas of a message are invalid: the answer broke off and the model is called again.
type Discard struct {
	Header
	Message string `json:"message"`
	Error   string `json:"error"`
}

// Retry says that a model call failed and will be repeated after Wait.
type Retry struct {
	Header
	Attempt int           `json:"attempt"` // the attempt that failed, from 1
	Wait    time.Duration `json:"wait_ns"`
	Error   string        `json:"error"`
}

// Message says that a message was added to the conversation: the user's, the model's answer, or the results
// of the tool calls of an answer.
type Message struct {
	Header
	Message *message.Message `json:"message"`
	Finish  string           `json:"finish,omitempty"` // why the model stopped

	// FirstToken is the time from the request to the first piece of the model's answer; 0 if it is not known.
	FirstToken time.Duration `json:"first_token_ns,omitempty"`
}

// ToolCall announces a call of the model's answer. Input is what was stored; Repaired lists the repairs of
// what the model had sent.
type ToolCall struct {
	Header
	Message  string          `json:"message"`
	Call     string          `json:"call"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Repaired []string        `json:"repaired,omitempty"`
}

// ToolStart says that a call was allowed and starts to run.
type ToolStart struct {
	Header
	Call   string `json:"call"`
	Name   string `json:"name"`
	Reason string `json:"reason"` // why it may run
}

// ToolDelta is a piece of a result. Text is for the model unless ForUser is set.
type ToolDelta struct {
	Header
	Call    string `json:"call"`
	Name    string `json:"name"`
	Text    string `json:"text,omitempty"`
	Data    string `json:"data,omitempty"` // the media type of an image or file, which only the result contains
	ForUser bool   `json:"for_user,omitempty"`

	// Progress, if not nil, is the progress of the call. Text may be empty then.
	Progress *tool.Progress `json:"progress,omitempty"`
}

// ToolResult says how a call ended. Every call has exactly one.
type ToolResult struct {
	Header
	Call    string              `json:"call"`
	Name    string              `json:"name"`
	Outcome message.Outcome     `json:"outcome"`
	Text    string              `json:"text"` // of Result
	Result  *message.ToolResult `json:"result"`
	By      string              `json:"by,omitempty"` // who has refused the call, see Confirm.By; empty if no one has
}

// An Approval asks the user whether a call may run. It is answered by a [Confirm]. Suggest lists rules that the
// user may accept with the answer, so that such a call is not asked about again.
type Approval struct {
	Header
	Call    string            `json:"call"`
	Name    string            `json:"name"` // the tool that would run
	Input   json.RawMessage   `json:"input"`
	Reason  string            `json:"reason"`
	Safety  bool              `json:"safety,omitempty"` // no rule can answer this question
	Suggest []permission.Rule `json:"suggest,omitempty"`
	Preview string            `json:"preview,omitempty"` // what the call would do, such as a diff

	// Runs is the command that would run, if Input contains it in another form. Show both to the user.
	Runs string `json:"runs,omitempty"`

	// Profile is the sandbox profile that the call would run with, and Network says whether the call may connect to
	// other machines. The empty Profile says that the tool has no sandbox, and [permission.ProfileOpen] that
	// this call would run outside of the sandbox: in both cases Network has no meaning.
	Profile permission.Profile `json:"profile,omitempty"`
	Network bool               `json:"network,omitempty"`

	// Question is a number that differs between any two questions about a call. It stays the same when a
	// question is repeated.
	Question int64 `json:"question,omitempty"`
}

// External hands a call to the host. It is answered by a [Result].
type External struct {
	Header
	Call  string          `json:"call"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// Elicitation is a question that a running call asks the user; see agent.Config.Elicit. When the user has answered, it is
// emitted again, with an Action; no event has the values of a form. Message is plain text from the Server; without a
// Server the agent itself asks.
type Elicitation struct {
	Header
	Call     string          `json:"call,omitempty"` // empty if several calls could have caused it
	Server   string          `json:"server,omitempty"`
	Message  string          `json:"message"`
	Schema   json.RawMessage `json:"schema,omitempty"` // of the form
	URL      string          `json:"url,omitempty"`    // of a page; never open it without asking the user
	Site     string          `json:"site,omitempty"`   // the host of the page
	Warnings []string        `json:"warnings,omitempty"`
	Action   host.Action     `json:"action,omitempty"`
	Error    string          `json:"error,omitempty"` // why the question was cancelled, if not by the user
}

// Sampling reports a request of an MCP server to the model: the answer, or why the request was refused.
type Sampling struct {
	Header
	Call    string        `json:"call,omitempty"` // empty if several calls could have caused it
	Server  string        `json:"server"`
	Model   string        `json:"model,omitempty"`
	Text    string        `json:"text,omitempty"`    // the answer
	Usage   message.Usage `json:"usage"`             // counted as usage of the run
	Refused string        `json:"refused,omitempty"` // why; empty if the model has answered
}

// Background says that a call continues in the background, or, with a Result, how the call ended there; see
// agent.Config.Background. The [*ToolResult] of such a call is emitted when the call moves to the background, and only
// tells the model so.
type Background struct {
	Header
	Call   string              `json:"call"`
	Name   string              `json:"name"`
	Result *message.ToolResult `json:"result,omitempty"`
}

// Sub is an event of a sub-agent that works on a call; see agent.AsTool.
type Sub struct {
	Header
	Call  string `json:"call"`
	Event Event  `json:"event"`
}

// Compaction says that earlier messages were rewritten to fit the window: the Generation of the State has
// increased. Before and After are estimates in tokens.
type Compaction struct {
	Header
	Before  int    `json:"before"`
	After   int    `json:"after"`
	Dropped int    `json:"dropped"`           // messages
	Summary string `json:"summary,omitempty"` // empty if cutting old results was enough, or with Failed
	Failed  string `json:"failed,omitempty"`  // why there is no summary; the messages are dropped anyway

	Usage message.Usage `json:"usage,omitzero"` // of the requests for the summary
}

// EndReason says how a run ended.
type EndReason string

// The reasons.
const (
	EndCompleted   EndReason = "completed"   // the model answered
	EndWaiting     EndReason = "waiting"     // an answer of the user or the host is needed; see agent.State.Pending
	EndInterrupted EndReason = "interrupted" // the context ended, or an agent.Interrupt
	EndLimit       EndReason = "limit"       // see agent.Limits
	EndError       EndReason = "error"
)

// End is the last event of a run.
type End struct {
	Header
	Reason EndReason       `json:"reason"`
	Detail string          `json:"detail,omitempty"` // the limit, the error, or what an interrupted model call was waiting for
	Text   string          `json:"text,omitempty"`   // the answer, when completed, or the last text at a limit
	Output json.RawMessage `json:"output,omitempty"` // the answer of agent.ReplyAs
	Steps  int             `json:"steps"`            // model calls for the last input
	Usage  message.Usage   `json:"usage"`            // of this call of Run
}

func (*RunStart) kind() string      { return "run_start" }
func (*ModelStart) kind() string    { return "model_start" }
func (*TextDelta) kind() string     { return "text_delta" }
func (*ThinkingDelta) kind() string { return "thinking_delta" }
func (*ToolCallDelta) kind() string { return "tool_call_delta" }
func (*Discard) kind() string       { return "discard" }
func (*Retry) kind() string         { return "retry" }
func (*Message) kind() string       { return "message" }
func (*ToolCall) kind() string      { return "tool_call" }
func (*ToolStart) kind() string     { return "tool_start" }
func (*ToolDelta) kind() string     { return "tool_delta" }
func (*ToolResult) kind() string    { return "tool_result" }
func (*Approval) kind() string      { return "approval" }
func (*External) kind() string      { return "external" }
func (*Elicitation) kind() string   { return "elicitation" }
func (*Sampling) kind() string      { return "sampling" }
func (*Background) kind() string    { return "background" }
func (*Sub) kind() string           { return "sub" }
func (*Compaction) kind() string    { return "compaction" }
func (*End) kind() string           { return "end" }
