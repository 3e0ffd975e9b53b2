package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// A judgeRequest is what the page sends to have the calls of a session judged again.
type judgeRequest struct {
	Settings string `json:"settings"` // a settings file; "" for the policy of Options
	Row      *int   `json:"row"`      // the only call to judge; nil for all
}

// A judgedCall is a call that was judged again.
type judgedCall struct {
	Row   int                 `json:"row"`
	Tool  string              `json:"tool"`
	Text  string              `json:"text"`
	Was   permission.Behavior `json:"was"`           // the stored decision; "" if there is none
	Why   string              `json:"why,omitempty"` // the reason of Was
	Now   permission.Behavior `json:"now"`
	Cause string              `json:"cause"`           // the reason of Now
	Known bool                `json:"known,omitempty"` // Now takes into account what the tool says about the call
	Steps []step              `json:"steps,omitempty"` // for a single call
	Parts []part              `json:"parts,omitempty"`
}

// A step is a step of a decision.
type step struct {
	Name   string              `json:"name"`
	Answer permission.Behavior `json:"answer"`
	Reason string              `json:"reason,omitempty"`
	Rule   string              `json:"rule,omitempty"`
}

// A part is a piece of a call that is judged by itself.
type part struct {
	Command string `json:"command"`
	Effects string `json:"effects"`
	Reason  string `json:"reason,omitempty"`
}

// maxJudged is the maximum number of calls in an HTTP response.
const maxJudged = 500

// judge judges the calls of a session again, by another policy, and serves those that are decided differently. The
// rules that were accepted in the session apply, too.
func (h *Handler) judge(r *http.Request, id string) (any, error) {
	var req judgeRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, badBody(err)
	}
	st, _, err := session.Read(r.Context(), h.store, id, 0)
	if err != nil {
		return nil, err
	}
	stored, err := storedIn(st) // a copy may have settings
	if err != nil {
		return nil, err
	}
	variant, err := storedVariant{Settings: cmp.Or(strings.TrimSpace(req.Settings), stored.Settings)}.variant()
	if err != nil {
		return nil, badRequest(err.Error())
	}
	p := h.opts.Policy
	if variant.Settings != nil {
		p = *variant.Settings
		p.Dirs = slices.Concat(h.opts.Policy.Dirs, p.Dirs)
	}
	p.Rules = slices.Concat(p.Rules, st.Rules)
	calls, err := h.calls(r.Context(), id, st.Messages, req.Row)
	if err != nil {
		return nil, err
	}
	differ := []judgedCall{}
	for _, c := range calls {
		h.decide(&c, &p, id, req.Row != nil)
		if (req.Row != nil || c.Was != "" && c.Was != c.Now) && len(differ) < maxJudged {
			differ = append(differ, c.judgedCall)
		}
	}
	return map[string]any{"judged": len(calls), "differ": differ}, nil
}

// A storedCall is a tool call of the timeline, with its arguments.
type storedCall struct {
	judgedCall
	id    string
	input json.RawMessage
}

// calls returns the tool calls of a session, or only the call in a row. It leaves out the calls of sub-agents, which
// have separate policies.
func (h *Handler) calls(ctx context.Context, id string, msgs []*message.Message, onlyRow *int) ([]storedCall, error) {
	f, release, err := h.wholeFeed(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	inputs := map[string]json.RawMessage{}
	for _, m := range msgs {
		for _, c := range m.ToolCalls() {
			inputs[c.ID] = c.Input
		}
	}
	f.mu.Lock()
	after, last := f.dropped, f.seq
	var calls []storedCall
	for i, r := range f.timeline.rows {
		if r.Kind == kindTool && (onlyRow == nil || *onlyRow == i) {
			if onlyRow != nil && len(r.events) > 0 { // the first event has the arguments
				after, last = r.events[0]-1, r.events[0]
			}
			calls = append(calls, storedCall{judgedCall{Row: i, Tool: r.Name, Text: r.Text, Was: r.Decision, Why: r.Why}, r.call, nil})
		}
	}
	f.mu.Unlock()
	err = h.events(ctx, id, after, last, func(raw session.Event) bool {
		if !bytes.Contains(raw.Data, []byte(`"tool_call"`)) { // cheaper than decoding
			return true
		}
		ev, err := event.Decode(raw.Data)
		if c, ok := ev.(*event.ToolCall); err == nil && ok {
			inputs[c.Call] = c.Input // also for messages that a compaction has replaced
		}
		return true
	})
	for i, c := range calls {
		calls[i].input = inputs[c.id]
	}
	return calls, err
}

// decide judges c by p, and explains the steps and parts if details is true.
func (h *Handler) decide(c *storedCall, p *permission.Policy, id string, details bool) {
	call := &permission.Call{Tool: c.Tool, Input: c.input}
	if h.opts.Call != nil {
		if described := h.opts.Call(id, c.Tool, c.input); described != nil {
			call = described
		}
	}
	c.Known = call.Checker != nil || call.ReadOnly || call.Control
	e := permission.Explain(p, call)
	c.Now, c.Cause = e.Behavior, escape(e.Reason)
	if !details {
		return
	}
	for _, s := range e.Steps {
		rule := ""
		if s.Rule != nil {
			rule = s.Rule.String() + " (" + cmp.Or(s.Rule.Source, "accepted") + ")"
		}
		c.Steps = append(c.Steps, step{s.Name, s.Answer, escape(s.Reason), escape(rule)})
	}
	c.Parts = parts(e)
}

func parts(e permission.Explanation) (out []part) {
	for _, s := range e.Parts {
		out = append(out, part{escape(strings.Join(s.Argv, " ")), strings.Join(s.Effects, ", "), escape(s.Reason)})
	}
	return out
}
