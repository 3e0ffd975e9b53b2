package agui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
)

// A newInput is an input to send to the session.
type newInput struct {
	id    string
	input agent.Input
}

// A planner determines which inputs of a request are new to its thread.
type planner struct {
	ctx   context.Context
	store store
	id    string // of the session
	state *agent.State
	in    *runInput

	inputs []newInput
}

// plan returns the inputs that are new to the session, answers first.
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

// newMessages compares the request's messages with the session's, and returns the new ones of the user.
func (p *planner) newMessages() ([]*wireMessage, error) {
	known := map[string]wireMessage{}
	var users []string // in order
	for _, m := range messagesOf(p.state.Messages) {
		known[m.ID] = m
		if m.Role == "user" {
			users = append(users, m.ID)
		}
	}
	var fresh []*wireMessage
	last := "" // the id of the last message of the user that the request and the session have
	for i := range p.in.Messages {
		m := &p.in.Messages[i]
		stored, ok := known[m.ID]
		switch {
		case ok && !sameMessage(stored, m) && !p.equalsInput(m):
			return nil, differs("message %q is not the one that the thread has under this id", m.ID)
		case ok && m.Role == "user" && len(fresh) > 0:
			return nil, differs("message %q is before message %q, which the thread has already", fresh[0].ID, m.ID)
		case ok && m.Role == "user":
			last = m.ID
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
	if len(fresh) > maxNew {
		return nil, differs("%d messages are new; at most %d may be sent at once", len(fresh), maxNew)
	}
	if n := len(users); last != "" && users[n-1] != last && len(fresh) > 0 {
		return nil, differs("the thread has messages after %q, which is the last one of the request", last)
	}
	return fresh, nil
}

func differs(format string, args ...any) error {
	return mismatched("history_differs", format+"; GET the thread to load its messages", args...)
}

// sameMessage reports whether a message of the client equals the session's. Of results it only compares the ids of their
// calls, since the session may have shortened the texts.
func sameMessage(stored wireMessage, m *wireMessage) bool {
	if stored.Role != m.Role || stored.Role == "tool" {
		return stored.Role == m.Role && stored.ToolCallID == m.ToolCallID
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

// isInput reports whether the session has an input with the message's id, which waits or was removed by a compaction.
// It fails if that input is not the same message.
func (p *planner) isInput(m *wireMessage) (bool, error) {
	if err := session.CheckID(m.ID); err != nil || strings.HasPrefix(m.ID, answerPrefix) {
		return false, refuse(400, "message id %q: use 1 to 128 letters, digits, '.', '_' and '-', and do not begin with %q", m.ID, answerPrefix)
	}
	e, err := p.store.Input(p.ctx, p.id, m.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var sent storedInput
	if json.Unmarshal(e.Data, &sent) != nil || sent.Message == nil {
		return false, differs("the id %q belongs to an input that is not a message", m.ID)
	}
	if text, ok := m.text(); ok && text != sent.Message.Text() {
		return false, differs("message %q is not the one that the thread has under this id", m.ID)
	}
	return true, nil
}

// equalsInput reports whether a message of the user equals the input with its id. The session's message may differ
// from both, since its text may have been redacted.
func (p *planner) equalsInput(m *wireMessage) bool {
	ok, err := p.isInput(m)
	return m.Role == "user" && ok && err == nil
}

// storedInput is an input as [session.Send] stores it.
type storedInput struct {
	Message *message.Message `json:"message,omitempty"`
	Confirm *event.Confirm   `json:"confirm,omitempty"`
	Result  *event.Result    `json:"result,omitempty"`
}

// isAnswerOf reports whether an entry is the answer in.
func isAnswerOf(e session.Entry, in agent.Input) bool {
	var sent, want storedInput
	switch in := in.(type) {
	case event.Confirm:
		want.Confirm = &in
	case event.Result:
		want.Result = &in
	}
	if json.Unmarshal(e.Data, &sent) != nil {
		return false
	}
	a, errA := json.Marshal(sent)
	b, errB := json.Marshal(want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// addMessage adds a message with the request's context to the inputs.
func (p *planner) addMessage(m *wireMessage) error {
	blocks, err := m.blocks()
	if err == nil && len(blocks) == 1 && blocks.Text() == "" {
		if _, empty := blocks[0].(*message.Text); empty {
			err = errors.New("it is empty; send a text or a file")
		}
	}
	if err != nil {
		return refuse(400, "message %q: %v", m.ID, err)
	}
	for _, c := range p.in.Context {
		blocks = append(blocks, &message.Hint{Source: "frontend", Text: c.Description + ": " + c.Value})
	}
	p.inputs = append(p.inputs, newInput{m.ID, agent.Say("", blocks...)})
	return nil
}

// addAnswers adds the answers to the open questions to the inputs. If the request has any answer or a new message,
// every question needs an answer.
func (p *planner) addAnswers(hasMessages bool) error {
	resume := map[string]resumeEntry{}
	for _, e := range p.in.Resume {
		resume[e.InterruptID] = e
	}
	unanswered := 0
	for _, ev := range p.state.Pending() {
		switch ev := ev.(type) {
		case *event.Approval:
			id := interruptID(ev.Call, ev.Question)
			e, ok := resume[id]
			if !ok {
				unanswered++
				continue
			}
			delete(resume, id)
			if err := p.addConfirm(ev, e); err != nil {
				return err
			}
		case *event.External:
			if err := p.addResult(ev, hasMessages); err != nil {
				return err
			}
		}
	}
	if unanswered > 0 && (hasMessages || len(p.inputs) > 0 || len(p.in.Resume) > 0) {
		return mismatched("interrupts_open", "%d interrupt(s) of the thread are not answered; the request's resume must answer each", unanswered)
	}
	for _, e := range p.in.Resume {
		if _, unknown := resume[e.InterruptID]; !unknown {
			continue
		}
		if err := p.checkRepeated(e); err != nil {
			return err
		}
	}
	return nil
}

// addConfirm adds the answer to an approval to the inputs.
func (p *planner) addConfirm(q *event.Approval, e resumeEntry) error {
	a, err := e.decision()
	if err != nil {
		return err
	}
	answer := q.Deny(a.Reason)
	switch {
	case a.approved() && a.Remember:
		answer = q.Allow(q.Suggest...)
	case a.approved():
		answer = q.Allow()
	}
	if answer.Allow {
		answer.Input = a.EditedArgs
	}
	return p.addAnswer(q.Call, q.Question, answer)
}

// A decision is the payload that answers an approval.
type decision struct {
	Approved   *bool           `json:"approved"`
	EditedArgs json.RawMessage `json:"editedArgs"`
	Remember   bool            `json:"remember"`
	Reason     string          `json:"reason"`
}

func (d decision) approved() bool { return d.Approved != nil && *d.Approved }

// decision returns the decision of an entry; a cancelled one is a refusal.
func (e resumeEntry) decision() (decision, error) {
	if e.Status == "cancelled" {
		return decision{Reason: "The user cancelled the question."}, nil
	}
	var d decision
	dec := json.NewDecoder(bytes.NewReader(e.Payload))
	dec.DisallowUnknownFields()
	// strictjson refuses both "approved" and "Approved", of which the decoder would use the last.
	if strictjson.Unmarshal(e.Payload, new(decision)) != nil || dec.Decode(&d) != nil || d.Approved == nil {
		return d, mismatched("payload_invalid", "the payload for interrupt %q does not match its responseSchema: it needs approved, a boolean", e.InterruptID)
	}
	if bytes.Equal(d.EditedArgs, []byte("null")) {
		d.EditedArgs = nil
	}
	return d, nil
}

// addResult adds the result of a frontend tool to the inputs: a tool message of the request, or a failure if the
// request has only new messages.
func (p *planner) addResult(q *event.External, hasMessages bool) error {
	for i := range p.in.Messages {
		m := &p.in.Messages[i]
		if m.Role != "tool" || m.ToolCallID != q.Call {
			continue
		}
		blocks, err := m.blocks()
		if err != nil {
			return refuse(400, "message %q: %v", m.ID, err)
		}
		if m.Error != "" {
			blocks = append(blocks, &message.Text{Text: m.Error})
		}
		return p.addAnswer(q.Call, 0, event.Result{Call: q.Call, Blocks: blocks, Failed: m.Error != ""})
	}
	if !hasMessages {
		return nil
	}
	text := "The frontend returned no result; the user has sent a message instead."
	return p.addAnswer(q.Call, 0, event.Result{Call: q.Call, Blocks: message.Blocks{&message.Text{Text: text}}, Failed: true})
}

const answerPrefix = "answer."

func interruptID(call string, question int64) string {
	return call + "#" + strconv.FormatInt(question, 10)
}

// answerID returns the id of the nth answer to a question. There is another answer only if the last one was refused.
func answerID(interrupt string, n int) string {
	sum := sha256.Sum256([]byte(interrupt))
	return answerPrefix + hex.EncodeToString(sum[:16]) + "." + strconv.Itoa(n)
}

// maxAnswers is how many answers to a question may be sent, each after the one before was refused.
const maxAnswers = 20

// addAnswer adds an answer to the inputs, unless it was sent before. It fails if a different answer was sent before.
func (p *planner) addAnswer(call string, question int64, in agent.Input) error {
	interrupt := interruptID(call, question)
	for n := range maxAnswers {
		id := answerID(interrupt, n)
		e, err := p.store.Input(p.ctx, p.id, id)
		if errors.Is(err, fs.ErrNotExist) {
			p.inputs = append(p.inputs, newInput{id, in})
			return nil
		}
		if err != nil {
			return err
		}
		if e.Refused != "" {
			continue
		}
		if !isAnswerOf(e, in) {
			return mismatched("already_answered", "call %q was answered by another request", call)
		}
		return nil
	}
	return mismatched("already_answered", "%d answers to call %q were refused; cancel the run", maxAnswers, call)
}

// checkRepeated returns an error unless an entry repeats the answer to a question that is no longer open.
func (p *planner) checkRepeated(e resumeEntry) error {
	d, err := e.decision()
	if err != nil {
		return err
	}
	for n := maxAnswers - 1; n >= 0; n-- {
		given, err := p.store.Input(p.ctx, p.id, answerID(e.InterruptID, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var sent storedInput
		if err == nil {
			err = json.Unmarshal(given.Data, &sent)
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
