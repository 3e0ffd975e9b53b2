package agent

import (
	"bytes"
	"encoding/json"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// earlyCalls are the calls of an answer that run before the answer is complete; see [Config.Eager].
// They are the first calls of the answer, without a gap. Their flights are in stage launched until commit.
//
// Nothing of these calls is stored or emitted until the answer is complete. Then either all or none of them
// become calls of the answer: changes of the tools' State cannot be undone for a single call.
type earlyCalls struct {
	run       *run
	answerID  string      // the id of the message
	calls     []*toolCall // calls that were judged; the last may not have started
	closed    bool        // no further call of this answer starts early
	accepted  bool        // the calls are part of the answer and will not be dropped
	callLimit int         // the number of calls that the limits allow
	checks    int         // how often isWhole has parsed the arguments of the next call

	// Before the first call:
	ruleCount int    // number of rules that the user had accepted
	tools     []byte // the tools' State as JSON
}

// maxChecks limits how often the arguments of a call are parsed to see whether they are complete: nested objects that
// arrive in many pieces may end in a brace each time. Arguments without nested objects are parsed once.
const maxChecks = 8

// newEarly drops the early calls of the last answer, and prepares for those of the next one. It returns nil if no call
// may start early, for example while background calls run: they may change the tools' State, which dropEarly restores.
func (r *run) newEarly(answerID string) *earlyCalls {
	r.dropEarly()
	if r.cfg.Eager && !r.dialog.lastAnswer && len(r.st.loop.Background) == 0 {
		r.early = &earlyCalls{run: r, answerID: answerID}
	}
	return r.early
}

// startReady starts the calls whose arguments are complete, after a piece of the answer has arrived.
func (e *earlyCalls) startReady(mc *modelCall) {
	for !e.closed && len(e.calls) < len(mc.calls) && e.running() < e.run.cfg.MaxParallel {
		c := &mc.calls[len(e.calls)]
		if !e.isWhole(c, mc.lastBlock() != message.Block(c.call)) {
			return
		}
		e.checks = 0
		e.closed = !e.begin(c.call, string(c.args))
	}
}

// isWhole reports whether the arguments of c are a complete object. An empty object is complete only if the model has
// started the next block, since some servers send {} before the arguments.
func (e *earlyCalls) isWhole(c *partialCall, nextStarted bool) bool {
	args := bytes.TrimSpace(c.args)
	if c.call.Name == "" || !bytes.HasSuffix(args, []byte("}")) || e.checks >= maxChecks ||
		!nextStarted && len(bytes.Trim(args, "{} \t\r\n")) == 0 {
		return false
	}
	e.checks++
	return isObject(args)
}

func (tc *toolCall) started() bool { return tc.cancel != nil }

func (e *earlyCalls) running() int {
	n := 0
	for _, tc := range e.calls {
		if tc.started() && !tc.ended {
			n++
		}
	}
	return n
}

// mayDrop reports whether there are early calls that may still be dropped.
func (e *earlyCalls) mayDrop() bool {
	return e != nil && !e.accepted && len(e.calls) > 0 && e.calls[0].started()
}

// begin starts a call with the arguments raw, and reports whether it did. If a call cannot start, the calls after it do
// not start either: they may depend on its effects.
func (e *earlyCalls) begin(sent *message.ToolCall, raw string) bool {
	r := e.run
	c, t := e.open(sent, raw)
	if c == nil || r.ctx.Err() != nil || r.timeIsUp() {
		return false
	}
	pc := tool.PermissionCall(t, c.Input)
	if !pc.ReadOnly || !e.admitNext() {
		return false
	}
	d := r.agent.judge(r.withToolState(r.ctx), r.currentPolicy(), pc)
	c.Judgement = &d.Judgement
	tc := r.newToolCall(c, t, e.answerID)
	tc.raw, tc.decision, tc.begun = raw, &d, r.cfg.Now()
	e.calls = append(e.calls, tc)
	if d.Behavior != permission.Allow {
		return false
	}
	r.startToolCall(tc)
	return true
}

// open returns the open call that sent would become, and its tool; nil if it may not start early. It checks the tool's
// definition first, since resolving calls of control tools may be expensive.
func (e *earlyCalls) open(sent *message.ToolCall, raw string) (*openCall, tool.Tool) {
	r := e.run
	if info := shownInfo(r.cache.view, sent.Name); info == nil || !info.Parallel || info.Control || info.External {
		return nil, nil
	}
	clone := *sent // openCall changes it; sent itself is opened when the answer is complete
	c, repaired := r.openCall(&clone, json.RawMessage(raw))
	if c.Status != decide.New || len(repaired) > 0 || c.ChangesGroups || !c.Parallel {
		return nil, nil
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, nil
	}
	if _, nested := tool.As[*subagent](t); nested { // sub-agents emit events of their own
		return nil, nil
	}
	return c, t
}

// shownInfo returns the definition of a tool that the model was shown, or nil.
func shownInfo(v *toolkit.View, name string) *tool.Info {
	infos := v.Tools()
	for i := range infos { // by index, as Infos are large and may be many
		if infos[i].Name == name {
			return &infos[i]
		}
	}
	return nil
}

// admitNext reports whether the limits allow another call. For the first call it records what dropEarly restores.
func (e *earlyCalls) admitNext() bool {
	if len(e.calls) > 0 {
		return len(e.calls) < e.callLimit
	}
	var err error
	e.tools, err = e.run.st.Tools.MarshalJSON()
	e.callLimit, e.ruleCount = e.run.callsLeft(), len(e.run.st.Rules)
	return err == nil && e.callLimit > 0
}

// matchEarly connects the early calls with the open calls of the complete answer, or drops them if they differ.
func (r *run) matchEarly(calls []partialCall) {
	e := r.early
	if e == nil {
		return
	}
	for i, tc := range e.calls {
		c := r.st.loop.Open[i]
		if c.Status != decide.New || c.ID != tc.call.ID || c.Name != tc.call.Name || string(calls[i].args) != tc.raw {
			r.dropEarly()
			return
		}
		tc.call = c
	}
	e.accepted = len(e.calls) == 0 || !e.calls[0].started() // nothing has run that may have to be dropped
}

// find returns the early call for the open call c, or nil.
func (e *earlyCalls) find(c *openCall) *toolCall {
	if e != nil {
		for _, tc := range e.calls {
			if tc.call == c {
				return tc
			}
		}
	}
	return nil
}

// acceptEarly makes the early calls part of the answer, or drops them if one of them may no longer run. If another
// call has ended since they were judged, they are judged again. It reports whether the calls that may start now
// are unchanged.
func (r *run) acceptEarly() (same bool, err error) {
	e := r.early
	if e == nil || e.accepted {
		return true, nil
	}
	if len(r.st.Rules) != e.ruleCount { // the new rules must judge the calls before they start
		r.dropEarly()
		return false, nil
	}
	for _, tc := range e.calls {
		c := tc.call
		if !tc.started() {
			continue
		}
		for c.Status == decide.Allowed && c.Judged != r.st.loop.EndedCalls() { // more than once if Config.Approve edits c
			if err := r.judge(c); err != nil {
				return false, err
			}
		}
		if c.Status != decide.Allowed || c.Edited {
			r.dropEarly()
			return false, nil
		}
	}
	e.accepted = true
	return true, nil
}

// dropEarly stops the early calls that were not accepted, waits for them, and restores the tools' State.
func (r *run) dropEarly() {
	e := r.early
	if e == nil {
		return
	}
	var dropped []*flight
	for _, tc := range e.calls {
		if tc.started() && tc.stage == launched {
			dropped = append(dropped, &tc.flight)
		}
	}
	r.drop(dropped)
	r.early = nil
	if !e.accepted && e.tools != nil {
		_ = r.st.Tools.UnmarshalJSON(e.tools) // cannot fail: MarshalJSON wrote it
	}
}
