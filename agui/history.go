package agui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
)

// A newInput is an input that the session does not have yet.
type newInput struct {
	id    string
	input agent.Input
}

// A planner determines the inputs to send to a session for a request.
type planner struct {
	ctx     context.Context
	store   store
	session string // id
	state   *agent.State
	request *runInput

	inputs []newInput // the result
}

// plan returns the inputs that the session does not have yet: the answers, then the messages.
func (p *planner) plan() ([]newInput, error) {
	messages, err := p.newMessages()
	if err != nil {
		return nil, err
	}
	if err := p.addAnswers(len(messages) > 0); err != nil {
		return nil, err
	}
	for _, m := range messages {
		if err := p.addMessage(m); err != nil {
			return nil, err
		}
	}
	return p.inputs, nil
}

// newMessages compares the request's messages with the session's, and returns the user's messages that are new.
// Messages of other roles that the session does not have are ignored: a compaction may have removed them.
func (p *planner) newMessages() ([]*wireMessage, error) {
	known := map[string]wireMessage{}
	newest := "" // id of the session's last message of the user
	for _, m := range messagesOf(p.state.Messages) {
		known[m.ID] = m
		if m.Role == "user" {
			newest = m.ID
		}
	}
	var fresh []*wireMessage
	shared := "" // id of the user's last message that both the request and the session have
	for i := range p.request.Messages {
		m := &p.request.Messages[i]
		stored, ok := known[m.ID]
		switch {
		case ok && !sameMessage(stored, m) && !p.equalsInput(m):
			return nil, historyDiffers("message %q is not the one that the thread has under this id", m.ID)
		case ok && m.Role == "user" && len(fresh) > 0:
			return nil, historyDiffers("message %q is before message %q, which the thread has already", fresh[0].ID, m.ID)
		case ok && m.Role == "user":
			shared = m.ID
		case !ok && m.Role == "user":
			isInput, err := p.isInput(m)
			if err != nil {
				return nil, err
			}
			if !isInput {
				fresh = append(fresh, m)
			}
		}
	}
	if len(fresh) > maxNewMessages {
		return nil, historyDiffers("%d messages are new; at most %d may be sent at once", len(fresh), maxNewMessages)
	}
	if shared != "" && shared != newest && len(fresh) > 0 {
		return nil, historyDiffers("the thread has messages after %q, which is the last one of the request", shared)
	}
	return fresh, nil
}

func historyDiffers(format string, args ...any) error {
	return mismatched("history_differs", format+"; GET the thread to load its messages", args...)
}

// sameMessage reports whether a message of the client equals the session's message.
func sameMessage(stored wireMessage, m *wireMessage) bool {
	if stored.Role != m.Role {
		return false
	}
	if m.Role == "tool" { // the session may have shortened the result's text
		return stored.ToolCallID == m.ToolCallID
	}
	if text, ok := m.text(); ok {
		var storedText string
		if len(stored.Content) > 0 && json.Unmarshal(stored.Content, &storedText) != nil || storedText != text {
			return false
		}
	}
	return slices.EqualFunc(stored.ToolCalls, m.ToolCalls, func(a, b wireCall) bool {
		return a.ID == b.ID && a.Function.Name == b.Function.Name && sameJSON(a.Function.Arguments, b.Function.Arguments)
	})
}

func sameJSON(a, b string) bool {
	var x, y bytes.Buffer
	return a == b || json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil && x.String() == y.String()
}

// isInput reports whether the session has received an input with the message's id. The State does not have such a
// message if it still waits, or if a compaction has removed it. isInput fails if the input differs from the message.
func (p *planner) isInput(m *wireMessage) (bool, error) {
	if err := session.CheckID(m.ID); err != nil || isAnswerID(m.ID) {
		return false, refuse(http.StatusBadRequest, "message id %q: use 1 to 128 letters, digits, '.', '_' and '-', and do not begin with %q", m.ID, answerPrefix)
	}
	entry, err := p.store.Input(p.ctx, p.session, m.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var sent storedInput
	if json.Unmarshal(entry.Data, &sent) != nil || sent.Message == nil {
		return false, historyDiffers("the id %q belongs to an input that is not a message", m.ID)
	}
	if text, ok := m.text(); ok && text != sent.Message.Text() {
		return false, historyDiffers("message %q is not the one that the thread has under this id", m.ID)
	}
	return true, nil
}

// equalsInput reports whether a message of the user equals the input with its id. The message in the State may differ
// from the input, since its text may have been redacted.
func (p *planner) equalsInput(m *wireMessage) bool {
	isInput, err := p.isInput(m)
	return m.Role == "user" && isInput && err == nil
}

// storedInput is an input as [session.Send] stores it.
type storedInput struct {
	Message *message.Message `json:"message,omitempty"`
	Confirm *event.Confirm   `json:"confirm,omitempty"`
	Result  *event.Result    `json:"result,omitempty"`
}

// isAnswer reports whether a stored input is the given answer.
func isAnswer(stored session.Entry, answer agent.Input) bool {
	var got, want storedInput
	switch answer := answer.(type) {
	case event.Confirm:
		want.Confirm = &answer
	case event.Result:
		want.Result = &answer
	}
	if json.Unmarshal(stored.Data, &got) != nil {
		return false
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// addMessage adds a message with the request's context to the inputs.
func (p *planner) addMessage(m *wireMessage) error {
	blocks, err := m.blocks()
	if text, isText := m.text(); err == nil && isText && text == "" {
		err = errors.New("it is empty; send a text or a file")
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "message %q: %v", m.ID, err)
	}
	for _, c := range p.request.Context {
		blocks = append(blocks, &message.Hint{Source: "frontend", Text: c.Description + ": " + c.Value})
	}
	p.inputs = append(p.inputs, newInput{m.ID, agent.Say("", blocks...)})
	return nil
}

// addAnswers adds the answers to the open questions to the inputs. If the request has any answer or new message, it
// must answer every approval.
func (p *planner) addAnswers(hasMessages bool) error {
	unused := map[string]resumeEntry{} // by interrupt id
	for _, e := range p.request.Resume {
		unused[e.InterruptID] = e
	}
	unanswered := 0
	for _, ev := range p.state.Pending() {
		switch ev := ev.(type) {
		case *event.Approval:
			id := interruptID(ev.Call, ev.Question)
			e, answered := unused[id]
			if !answered {
				unanswered++
				continue
			}
			delete(unused, id)
			if err := p.addConfirm(ev, e); err != nil {
				return err
			}
		case *event.External:
			if err := p.addResult(ev, hasMessages); err != nil {
				return err
			}
		}
	}
	if unanswered > 0 && (hasMessages || len(p.inputs) > 0 || len(p.request.Resume) > 0) {
		return mismatched("interrupts_open", "%d interrupt(s) of the thread are not answered; the request's resume must answer each", unanswered)
	}
	for _, e := range p.request.Resume {
		if _, isUnused := unused[e.InterruptID]; isUnused {
			if err := p.checkRepeated(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// addConfirm adds the answer to an approval to the inputs.
func (p *planner) addConfirm(approval *event.Approval, e resumeEntry) error {
	d, err := e.decision()
	if err != nil {
		return err
	}
	answer := approval.Deny(d.Reason)
	if d.approved() {
		answer = approval.Allow()
		if d.Remember {
			answer = approval.Allow(approval.Suggest...)
		}
		answer.Input = d.EditedArgs
	}
	return p.addAnswer(approval.Call, approval.Question, answer)
}

// A decision is the payload that answers an approval.
type decision struct {
	Approved   *bool           `json:"approved"`
	EditedArgs json.RawMessage `json:"editedArgs"`
	Remember   bool            `json:"remember"`
	Reason     string          `json:"reason"`
}

func (d decision) approved() bool { return d.Approved != nil && *d.Approved }

// decision returns the decision of an entry; if the entry is cancelled, the call is not approved.
func (e resumeEntry) decision() (decision, error) {
	if e.Status == "cancelled" {
		return decision{Reason: "The user cancelled the question."}, nil
	}
	var d decision
	dec := json.NewDecoder(bytes.NewReader(e.Payload))
	dec.DisallowUnknownFields()
	// The decoder would accept "Approved" for "approved"; strictjson does not.
	if strictjson.Unmarshal(e.Payload, new(decision)) != nil || dec.Decode(&d) != nil || d.Approved == nil {
		return d, mismatched("payload_invalid", "the payload for interrupt %q does not match its responseSchema: it needs approved, a boolean", e.InterruptID)
	}
	if bytes.Equal(d.EditedArgs, []byte("null")) {
		d.EditedArgs = nil
	}
	return d, nil
}

// addResult adds the result of a call of a frontend tool to the inputs. The result is a tool message of the request, or
// a failure if the request has no such message but new messages of the user.
func (p *planner) addResult(call *event.External, hasMessages bool) error {
	for i := range p.request.Messages {
		m := &p.request.Messages[i]
		if m.Role != "tool" || m.ToolCallID != call.Call {
			continue
		}
		blocks, err := m.blocks()
		if err != nil {
			return refuse(http.StatusBadRequest, "message %q: %v", m.ID, err)
		}
		if m.Error != "" {
			blocks = append(blocks, &message.Text{Text: m.Error})
		}
		return p.addAnswer(call.Call, 0, event.Result{Call: call.Call, Blocks: blocks, Failed: m.Error != ""})
	}
	if !hasMessages {
		return nil
	}
	text := "The frontend returned no result; the user has sent a message instead."
	return p.addAnswer(call.Call, 0, event.Result{Call: call.Call, Blocks: message.Blocks{&message.Text{Text: text}}, Failed: true})
}

// answerPrefix begins the ids of the inputs that are answers; no message's id may begin with it.
const answerPrefix = "answer."

func isAnswerID(input string) bool { return strings.HasPrefix(input, answerPrefix) }

func interruptID(call string, question int64) string { return call + "#" + itoa(question) }

// answerID returns the id of the input that is the nth answer to an interrupt. It has a hash, since the interrupt's id
// may have characters that an input's id must not have.
func answerID(interrupt string, n int) string {
	sum := sha256.Sum256([]byte(interrupt))
	return answerPrefix + hex.EncodeToString(sum[:16]) + "." + strconv.Itoa(n)
}

// maxAnswers is the maximum number of answers to a question. Another answer is sent only after the last was refused.
const maxAnswers = 20

// addAnswer adds an answer to the inputs, unless it was sent before. It fails if a different answer was sent before.
func (p *planner) addAnswer(call string, question int64, answer agent.Input) error {
	interrupt := interruptID(call, question)
	for n := range maxAnswers {
		id := answerID(interrupt, n)
		stored, err := p.store.Input(p.ctx, p.session, id)
		if errors.Is(err, fs.ErrNotExist) {
			p.inputs = append(p.inputs, newInput{id, answer})
			return nil
		}
		if err != nil {
			return err
		}
		if stored.Refused != "" {
			continue
		}
		if !isAnswer(stored, answer) {
			return mismatched("already_answered", "call %q was answered by another request", call)
		}
		return nil
	}
	return mismatched("already_answered", "%d answers to call %q were refused; cancel the run", maxAnswers, call)
}

// checkRepeated returns an error unless an entry repeats the last answer to a question that is no longer open.
func (p *planner) checkRepeated(e resumeEntry) error {
	d, err := e.decision()
	if err != nil {
		return err
	}
	for n := maxAnswers - 1; n >= 0; n-- {
		stored, err := p.store.Input(p.ctx, p.session, answerID(e.InterruptID, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var sent storedInput
		if err == nil {
			err = json.Unmarshal(stored.Data, &sent)
		}
		switch {
		case err != nil:
			return err
		case sent.Confirm == nil || sent.Confirm.Allow != d.approved() || !sameJSON(string(sent.Confirm.Input), string(d.EditedArgs)):
			return mismatched("already_answered", "interrupt %q already has a different answer", e.InterruptID)
		}
		return nil
	}
	return mismatched("interrupt_unknown", "the thread has no open interrupt %q", e.InterruptID)
}
