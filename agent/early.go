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

// early are the calls of an answer that run while the rest of it still comes; see [Config.Eager].
// They are its first ones, without a gap: flights that are launched before they are committed.
//
// Nothing of them is stored or emitted until the answer is there. Then they are the calls of the
// answer, all or none of them: what a tool noted in the State cannot be taken back for one alone.
type early struct {
	run    *run
	answer string      // the id of its message
	calls  []*toolCall // that were judged; the last may not have started
	closed bool        // no further call of this answer starts early
	counts bool        // for good: nothing of them is taken back
	most   int         // how many the limits admit
	looks  int         // at the arguments of the next call

	rules int    // that people had accepted before the first one
	tools []byte // the tools' State before the first one, as JSON
}

// maxLooks is how often the arguments of a call are tried for whether they are whole. Flat ones
// take a single try; nested ones that come in many pieces could take one for each.
const maxLooks = 8

// newEarly prepares for an answer, and returns nil if none of its calls may start early: none may
// while others run in the background, since what those note in the tools' State could not be distinguished from
// what has to be taken back.
func (r *run) newEarly(answer string) *early {
	r.dropEarly()
	if r.cfg.Eager && !r.dialog.last && len(r.st.loop.Background) == 0 {
		r.early = &early{run: r, answer: answer}
	}
	return r.early
}

// look starts what can start, after something of the answer has come.
func (e *early) look(mc *modelCall) {
	for !e.closed && len(e.calls) < len(mc.calls) && e.running() < e.run.cfg.MaxParallel {
		c := &mc.calls[len(e.calls)]
		if !e.isWhole(c, mc.last() != message.Block(c.call)) {
			return
		}
		e.looks = 0
		e.closed = !e.begin(c.call, string(c.args))
	}
}

// isWhole reports whether the arguments of c have come to an end: the object that they are is
// closed. An empty one is only believed when the model has begun something else, since some
// servers send it before the arguments.
func (e *early) isWhole(c *callIntake, passed bool) bool {
	args := bytes.TrimSpace(c.args)
	if c.call.Name == "" || !bytes.HasSuffix(args, []byte("}")) || e.looks >= maxLooks ||
		!passed && len(bytes.Trim(args, "{} \t\r\n")) == 0 {
		return false
	}
	e.looks++
	return isObject(args)
}

func (tc *toolCall) started() bool { return tc.cancel != nil }

func (e *early) running() int {
	n := 0
	for _, tc := range e.calls {
		if tc.started() && !tc.ended {
			n++
		}
	}
	return n
}

// isOpen reports whether calls run early of which it is not known yet whether they count.
func (e *early) isOpen() bool {
	return e != nil && !e.counts && len(e.calls) > 0 && e.calls[0].started()
}

// begin starts a call, and reports whether it did. What keeps one from starting keeps those after
// it, too: they may be meant to see its effects.
func (e *early) begin(tc *message.ToolCall, raw string) bool {
	r := e.run
	c, t := e.open(tc, raw)
	if c == nil || r.ctx.Err() != nil || r.timeIsUp() {
		return false
	}
	pc := tool.PermissionCall(t, c.Input)
	if !pc.ReadOnly || !e.admits() {
		return false
	}
	d := r.a.judge(r.stateful(r.ctx), r.currentPolicy(), pc)
	c.Judgement = &d.Judgement
	f := r.newToolCall(c, t, e.answer)
	f.raw, f.decision = raw, &d
	e.calls = append(e.calls, f)
	if d.Behavior != permission.Allow {
		return false
	}
	r.startToolCall(f)
	return true
}

// open returns the open call that tc would be, and its tool; nil if it may never start
// early. What the model was shown of a tool is looked at first: control tools may have to find
// out what a call of theirs comes to.
func (e *early) open(tc *message.ToolCall, raw string) (*openCall, tool.Tool) {
	r := e.run
	if info := shownInfo(r.shown.view, tc.Name); info == nil || !info.Parallel || info.Control || info.External {
		return nil, nil
	}
	own := *tc // the answer's is opened when it is there
	c, repaired := r.openCall(&own, json.RawMessage(raw))
	if c.Status != decide.New || len(repaired) > 0 || c.ChangesGroups || !c.Parallel {
		return nil, nil
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, nil
	}
	if _, nested := tool.As[*subagent](t); nested { // which emits events of its own
		return nil, nil
	}
	return c, t
}

// shownInfo returns what the model was shown of the tool of that name, nil for none.
func shownInfo(v *toolkit.View, name string) *tool.Info {
	infos := v.Tools()
	for i := range infos { // which are large, and may be a thousand
		if infos[i].Name == name {
			return &infos[i]
		}
	}
	return nil
}

// admits reports whether the limits allow one more, and prepares for the first.
func (e *early) admits() bool {
	if len(e.calls) > 0 {
		return len(e.calls) < e.most
	}
	var err error
	e.tools, err = e.run.st.Tools.MarshalJSON()
	e.most, e.rules = e.run.callsLeft(), len(e.run.st.Rules)
	return err == nil && e.most > 0
}

// matchEarly finds the early calls among those of the answer, which are open now.
func (r *run) matchEarly(calls []callIntake) {
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
	e.counts = len(e.calls) == 0 || !e.calls[0].started() // then there is nothing to take back
}

// find returns the early call that the open call c is, or nil.
func (e *early) find(c *openCall) *toolCall {
	if e != nil {
		for _, tc := range e.calls {
			if tc.call == c {
				return tc
			}
		}
	}
	return nil
}

// countEarly has the early calls count, unless one of them may not run any more. What has happened
// since they were judged, such as that a person refused another call, has them judged again, as
// always; a rule that a person made, when each starts. It reports whether they are still the calls
// that may start now.
func (r *run) countEarly() (same bool, err error) {
	e := r.early
	if e == nil || e.counts {
		return true, nil
	}
	if len(r.st.Rules) != e.rules { // each is judged by them when it starts
		r.dropEarly()
		return false, nil
	}
	for _, tc := range e.calls {
		c := tc.call
		if !tc.started() { // it was only judged
			continue
		}
		for c.Status == decide.Allowed && c.Judged != r.st.loop.Ended() {
			if err := r.judge(c); err != nil {
				return false, err
			}
		}
		if c.Status != decide.Allowed || c.Edited {
			r.dropEarly()
			return false, nil
		}
	}
	e.counts = true
	return true, nil
}

// dropEarly stops the early calls that are not in the answer, waits for them, and takes back
// what tools have noted meanwhile, for the policy also.
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
	if !e.counts && e.tools != nil {
		_ = r.st.Tools.UnmarshalJSON(e.tools) // which is what it wrote
	}
}
