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

// Handoff returns a tool with which the model hands the conversation over to another agent, which may hand it over in
// turn. With a nil agent the conversation returns to the agent that had it before. An answer may contain only one
// hand-off.
//
// From the next step on, the [Config] of the other agent applies: its instructions, toolkit, policy, model and
// everything else, except what belongs to the conversation: Save, Key, Redact, Approve, Elicit, AnswerWithin,
// Limits, Seams and Middleware.Run are always from the agent whose Run was called. The other agent reads the whole
// conversation; open groups are closed, and rules that were accepted in the conversation remain in force. The
// [State] records the current agent ([State.HandedTo]): a later run of the same agent continues there.
//
// A hand-off is a call like any other: the policy of the current agent judges it, and afterwards only the policy of
// the other agent decides what may run. Allow it by a rule if the other agent can do no more harm with the content
// of the conversation.
func Handoff(name, description string, to *Agent) (tool.Tool, error) {
	t, err := tool.New(name, description, func(context.Context, struct{}) (string, error) { return handedOver, nil },
		tool.Options{Idempotent: true})
	if err != nil {
		return nil, fmt.Errorf("agent.Handoff: %w", err)
	}
	return &handoff{t, to}, nil
}

const handedOver = "Done. The conversation continues with another agent: its instructions and tools apply from here on."

// handoff marks a tool after whose call another agent continues; nil means the previous one.
type handoff struct {
	tool.Tool
	to *Agent
}

func (h *handoff) Unwrap() tool.Tool { return h.Tool }

// HandedTo returns the names of the tools that handed the conversation to its current agent, in order; none
// if that is the agent that is run. See [Handoff].
func (st *State) HandedTo() []string { return slices.Clone(st.handed) }

// checkHandoff rejects a hand-off back without an agent to return to, and all but the first of an answer.
func (r *run) checkHandoff(h *handoff) error {
	if slices.ContainsFunc(r.st.loop.Open, func(c *openCall) bool { return c.Handoff != decide.HandoffNone && c.Status != decide.Done }) {
		return errors.New("not done: this answer already hands the conversation over; only one agent can have it, the first that you named")
	}
	if h.to == nil && len(r.st.handed) == 0 {
		return errors.New("not done: the conversation was not handed over, so there is no agent to return to; continue yourself")
	}
	return nil
}

// pathAfter returns the names of the hand-offs to the current agent after a batch, and whether
// the batch changes them.
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

// handOver makes another agent continue. It is called before the results of the batch are saved, so that a
// saved State with these results also has the new agent.
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

// resumeHandoff continues with the agent that the conversation was handed over to.
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

// continueWith sets the agent of the next step.
func (r *run) continueWith(next *Agent) {
	r.a, r.cfg = next, &next.cfg
	r.cache, r.dialog.model, r.windowGauge, r.questions.host = requestCache{}, nil, window.Gauge{}, nil
}

// handedTo returns the agent that the hand-offs in path lead to, with the configuration that belongs to
// the conversation.
func (a *Agent) handedTo(path []string) (*Agent, error) {
	current := a
	for _, name := range path {
		var h *handoff
		tools, listed := current.cfg.Toolkit.Registered()
		for _, t := range append(tools, listed...) {
			if t.Info().Name == name {
				h, _ = tool.As[*handoff](t)
			}
		}
		if h == nil || h.to == nil {
			return nil, fmt.Errorf("the conversation was handed over by the tools %s, but %s is not a hand-off to another agent; restore it, or start a new conversation",
				strings.Join(path, ", "), name)
		}
		current = h.to
	}
	if current == a {
		return a, nil
	}
	next := *current
	if a.parent != nil {
		next = *current.asSubAgent(a.parent)
	}
	c := &next.cfg
	c.Save, c.Key, c.Redact, c.Seams, c.Limits = a.cfg.Save, a.cfg.Key, a.cfg.Redact, a.cfg.Seams, a.cfg.Limits
	c.Approve, c.Elicit, c.AnswerWithin = a.cfg.Approve, a.cfg.Elicit, a.cfg.AnswerWithin
	return &next, nil
}

// closeGroups resets the open groups in s to the initial groups of another toolkit.
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
