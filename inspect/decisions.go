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

// A replay is what the page sends to have the calls of a session judged again.
type replay struct {
	Settings string `json:"settings"` // a settings file; "" for the policy of Options
	Row      *int   `json:"row"`      // the only call to judge; nil for all
}

// A judged is a call that was judged again.
type judged struct {
	Row   int                 `json:"row"`
	Tool  string              `json:"tool"`
	Text  string              `json:"text"`
	Was   permission.Behavior `json:"was"` // "" if the call was not judged, or that was not stored
	Why   string              `json:"why,omitempty"`
	Now   permission.Behavior `json:"now"`
	Cause string              `json:"cause"`           // the reason now
	Known bool                `json:"known,omitempty"` // what the tool says of the call was taken into account
	Steps []step              `json:"steps,omitempty"` // for a single call
	Parts []part              `json:"parts,omitempty"`
}

// A step is one of a decision.
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

// maxJudged is how many differences an HTTP response has.
const maxJudged = 500

// judge judges the calls of a session again, by another policy, and serves those that are decided differently. The
// rules that were accepted in the session apply, too.
func (h *Handler) judge(r *http.Request, id string) (any, error) {
	var in replay
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, badBody(err)
	}
	st, _, err := session.Read(r.Context(), h.store, id, 0)
	if err != nil {
		return nil, err
	}
	own, err := storedIn(st) // of a copy
	if err != nil {
		return nil, err
	}
	with, err := storedVariant{Settings: cmp.Or(strings.TrimSpace(in.Settings), own.Settings)}.variant()
	if err != nil {
		return nil, badRequest(err.Error())
	}
	p := h.opts.Policy
	if with.Settings != nil {
		p = *with.Settings
		p.Dirs = slices.Concat(h.opts.Policy.Dirs, p.Dirs)
	}
	p.Rules = slices.Concat(p.Rules, st.Rules)
	calls, err := h.calls(r.Context(), id, st.Messages, in.Row)
	if err != nil {
		return nil, err
	}
	differ, total := []judged{}, 0
	for _, c := range calls {
		if in.Row != nil && *in.Row != c.Row {
			continue
		}
		total++
		h.decide(&c, &p, id, in.Row != nil)
		if (in.Row != nil || c.Was != "" && c.Was != c.Now) && len(differ) < maxJudged {
			differ = append(differ, c.judged)
		}
	}
	return map[string]any{"judged": total, "differ": differ}, nil
}

// A storedCall is one of the timeline, with its arguments.
type storedCall struct {
	judged
	input json.RawMessage
}

// calls returns the tool calls of a session, or the one in a row, without those of sub-agents, which have policies of
// their own.
func (h *Handler) calls(ctx context.Context, id string, msgs []*message.Message, only *int) ([]storedCall, error) {
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
	after, last := int64(0), f.seq
	var out []storedCall
	var ids []string
	for i, r := range f.t.rows {
		if r.Kind == kindTool && (only == nil || *only == i) {
			if only != nil && len(r.events) > 0 { // the first one has the arguments
				after, last = r.events[0]-1, r.events[0]
			}
			out = append(out, storedCall{judged: judged{Row: i, Tool: r.Name, Text: r.Text, Was: r.Decision, Why: r.Why}})
			ids = append(ids, r.call)
		}
	}
	f.mu.Unlock()
	err = h.events(ctx, id, after, last, func(raw session.Event) bool {
		if !bytes.Contains(raw.Data, []byte(`"tool_call"`)) {
			return true
		}
		ev, err := event.Decode(raw.Data)
		if c, ok := ev.(*event.ToolCall); err == nil && ok {
			inputs[c.Call] = c.Input // also of messages that a compaction has replaced
		}
		return true
	})
	for i := range out {
		out[i].input = inputs[ids[i]]
	}
	return out, err
}

// decide judges c by p, with all steps if they are wanted.
func (h *Handler) decide(c *storedCall, p *permission.Policy, id string, steps bool) {
	call := &permission.Call{Tool: c.Tool, Input: c.input}
	if h.opts.Call != nil {
		if known := h.opts.Call(id, c.Tool, c.input); known != nil {
			call = known
		}
	}
	c.Known = call.Checker != nil || call.ReadOnly || call.Control
	e := permission.Explain(p, call)
	c.Now, c.Cause = e.Behavior, escape(e.Reason)
	if !steps {
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
