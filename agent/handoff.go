package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// Handoff returns a tool by which the model hands the conversation over to another agent, for good or
// until that one hands it over in turn. With a nil agent the conversation goes back to the agent that
// had it before. The model makes one hand-off in an answer at most.
//
// From the next step on the instructions, the toolkit, the policy, the model and all else in the
// [Config] are those of the other agent, but for what belongs to the conversation: Save, Key, Redact,
// Approve, Elicit, AnswerWithin, Limits, Seams and Middleware.Run stay those of the agent that is run.
// The other agent reads all that was said; groups that were open are closed, and the rules that were
// accepted in the conversation still hold. The [State] remembers who has it ([State.HandedTo]): a
// later run of the same agent continues there.
//
// A hand-off is a call like others: the policy of the agent that has the conversation is asked about
// it, and afterwards that of the other one alone decides what may run. Allow it by a rule where the
// other agent may do no more harm with what this one has read.
func Handoff(name, description string, to *Agent) (tool.Tool, error) {
	t, err := tool.New(name, description, func(context.Context, struct{}) (string, error) { return handedOver, nil },
		tool.Options{Idempotent: true})
	if err != nil {
		return nil, fmt.Errorf("agent.Handoff: %w", err)
	}
	return &handoff{t, to}, nil
}

const handedOver = "Done. The conversation continues with the agent that took it over: its instructions and tools count from here on."

// handoff marks a tool after whose call another agent continues, nil for the one before.
type handoff struct {
	tool.Tool
	to *Agent
}

func (h *handoff) Unwrap() tool.Tool { return h.Tool }

// HandedTo returns the names of the tools by which the conversation came to the agent that has it; none
// if that is the agent that is run. See [Handoff].
func (st *State) HandedTo() []string { return slices.Clone(st.handed) }

// checkHandoff refuses a hand-off that leads nowhere, and all but the first of an answer.
func (r *run) checkHandoff(h *handoff) error {
	if slices.ContainsFunc(r.st.loop.Open, func(c *openCall) bool { return c.Handoff != decide.HandoffNone && c.Status != decide.Done }) {
		return errors.New("not done: this answer hands the conversation over already, and only one agent can have it")
	}
	if h.to == nil && len(r.st.handed) == 0 {
		return errors.New("not done: the conversation was not handed over before, so that there is no agent to go back to")
	}
	return nil
}

// pathAfter returns by which hand-offs the conversation comes to its agent after a batch, and whether
// that makes one.
func (st *State) pathAfter(batch []*openCall) (path []string, changed bool) {
	for _, c := range batch {
		switch {
		case c.Handoff == decide.HandoffNone || c.Result.Outcome != message.OutcomeSuccess:
		case c.Handoff == decide.HandoffBack:
			return st.handed[:max(len(st.handed)-1, 0)], true
		default:
			return append(slices.Clip(st.handed), c.Tool), true
		}
	}
	return st.handed, false
}

// handOver has another agent continue. It is called before the results of the batch are saved: a State
// that has them has its new agent, too.
func (r *run) handOver(path []string) error {
	next, err := r.entry.handedTo(path)
	if err == nil {
		err = closeGroups(&r.st.Scope)
	}
	if err != nil {
		return err
	}
	r.st.handed, r.st.ratio, r.st.revealed = path, 0, nil
	r.continueWith(next)
	return nil
}

// resumeHandoff has the agent continue that the conversation was handed over to.
func (r *run) resumeHandoff() error {
	if len(r.st.handed) == 0 {
		return nil
	}
	a, err := r.entry.handedTo(r.st.handed)
	if err == nil {
		r.continueWith(a)
	}
	return err
}

// continueWith makes a the agent of the next step.
func (r *run) continueWith(a *Agent) {
	r.a, r.cfg = a, &a.cfg
	r.shown, r.dialog.model, r.full, r.people.host = shown{}, nil, window.Gauge{}, nil
}

// handedTo returns the agent that a conversation came to by the hand-offs of path, with what belongs to
// the conversation.
func (a *Agent) handedTo(path []string) (*Agent, error) {
	at := a
	for _, name := range path {
		var h *handoff
		tools, listed := at.cfg.Toolkit.Registered()
		for _, t := range append(tools, listed...) {
			if t.Info().Name == name {
				h, _ = tool.As[*handoff](t)
			}
		}
		if h == nil || h.to == nil {
			return nil, fmt.Errorf("the conversation was handed over by the tools %s, and %s is not a hand-off to another agent any more; put it back, or begin a new conversation",
				strings.Join(path, ", "), name)
		}
		at = h.to
	}
	if at == a {
		return a, nil
	}
	next := *at
	if a.parent != nil {
		next = *at.below(a.parent)
	}
	c := &next.cfg
	c.Save, c.Key, c.Redact, c.Seams, c.Limits = a.cfg.Save, a.cfg.Key, a.cfg.Redact, a.cfg.Seams, a.cfg.Limits
	c.Approve, c.Elicit, c.AnswerWithin = a.cfg.Approve, a.cfg.Elicit, a.cfg.AnswerWithin
	return &next, nil
}

// closeGroups has the groups in s that are open at first be open again, those of another toolkit.
func closeGroups(s *toolkit.Scope) error {
	data, err := s.MarshalJSON()
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	delete(members, "active")
	if data, err = json.Marshal(members); err != nil {
		return err
	}
	return s.UnmarshalJSON(data)
}
