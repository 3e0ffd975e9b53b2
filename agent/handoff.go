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
// the other agent decides what may run. Allow it by a rule if the other agent can do no more harm than the current one
// with the content of the conversation.
func Handoff(name, description string, to *Agent) (tool.Tool, error) {
	t, err := tool.New(name, description, func(context.Context, struct{}) (string, error) { return handedOver, nil },
		tool.Options{Idempotent: true})
	if err != nil {
		return nil, fmt.Errorf("agent.Handoff: %w", err)
	}
	return &handoff{t, to}, nil
}

const handedOver = "Done. The conversation continues with another agent: its instructions and tools apply from here on."

// A handoff is a tool after whose call another agent continues.
type handoff struct {
	tool.Tool
	to *Agent // nil for the previous agent
}

func (h *handoff) Unwrap() tool.Tool { return h.Tool }

// HandedTo returns the names of the tools that handed the conversation to its current agent, in order; none
// if that is the agent that is run. See [Handoff].
func (st *State) HandedTo() []string { return slices.Clone(st.handoffPath) }

// checkHandoff rejects a hand-off back without an agent to return to, and a second hand-off of an answer. The earlier
// calls of the answer are open; those that were rejected are done.
func (r *run) checkHandoff(h *handoff) error {
	if slices.ContainsFunc(r.st.loop.Open, func(c *openCall) bool { return c.Handoff != decide.HandoffNone && c.Status != decide.Done }) {
		return errors.New("not done: this answer already hands the conversation over; only one agent can have it, the first that you named")
	}
	if h.to == nil && len(r.st.handoffPath) == 0 {
		return errors.New("not done: the conversation was not handed over, so there is no agent to return to; continue yourself")
	}
	return nil
}

// handoffPathAfter returns the handoffPath after the results of calls, and whether they change it.
func (st *State) handoffPathAfter(calls []*openCall) (path []string, changed bool) {
	for _, c := range calls {
		switch {
		case c.Handoff == decide.HandoffNone || c.Result.Outcome != message.OutcomeSuccess:
		case c.Handoff == decide.HandoffBack:
			return st.handoffPath[:max(len(st.handoffPath)-1, 0)], true
		default:
			return append(slices.Clip(st.handoffPath), c.Tool), true
		}
	}
	return st.handoffPath, false
}

// handOver hands the conversation over to the agent that path leads to. It is called before the results of the answer's calls are saved,
// so that a saved State with these results also has the new agent.
func (r *run) handOver(path []string) error {
	next, err := r.entry.agentAt(path)
	if err == nil {
		err = closeGroups(&r.st.Scope)
	}
	if err != nil {
		return err
	}
	r.st.handoffPath = path
	r.st.tokenRatio, r.st.revealed = 0, nil // these depend on the agent's model and tools
	r.continueWith(next)
	return nil
}

// resumeHandoff continues with the current agent of the State.
func (r *run) resumeHandoff() error {
	a, err := r.entry.agentAt(r.st.handoffPath)
	if err == nil {
		r.continueWith(a)
	}
	return err
}

// continueWith sets the agent of the next step, and resets what depends on the agent.
func (r *run) continueWith(next *Agent) {
	r.agent, r.cfg = next, &next.cfg
	r.cache, r.dialog.model, r.windowGauge, r.questions.host = requestCache{}, nil, window.Gauge{}, nil
}

// agentAt returns the agent that the hand-off tools in path lead to from a, with the parts of a's Config that belong to the
// conversation; see [Handoff].
func (a *Agent) agentAt(path []string) (*Agent, error) {
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
			return nil, fmt.Errorf("the conversation was handed over by the tools %s, but %s is not a hand-off to another agent; restore that tool, or start a new conversation",
				strings.Join(path, ", "), name)
		}
		current = h.to
	}
	if current == a { // asSubAgent has configured it already
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

// closeGroups removes the open groups from s: a Scope without the member "active" has the initial groups of its toolkit.
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
