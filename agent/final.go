package agent

import (
	"errors"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// findFinal finds the typed answer of a conversation that has it already.
func (r *run) findFinal() {
	n := len(r.st.Messages)
	if r.final == nil || len(r.st.loop.Open) > 0 || n < 2 {
		return
	}
	for i, res := range r.st.Messages[n-1].ToolResults() {
		c := r.st.Messages[n-2].ToolCalls()[i] // each has its result, in this order
		if c.Name != finalName || res.Outcome != message.OutcomeSuccess {
			continue
		}
		if args, err := tool.Arguments(r.final.tool, c.Input); err == nil { // else it was an answer of another type
			r.final.value = args.JSON
		}
	}
}

// remind asks again for a typed answer after the model said something else.
func (r *run) remind() error {
	if r.final.asked++; r.final.asked > 3 {
		return errors.New("the model did not call " + finalName + ", though it was forced to")
	}
	return r.hint(hintFinal)
}

// keepFinal keeps of the last answer at a limit nothing but the typed answer: no other call may run
// any more, and one that is stored must have a result.
func (r *run) keepFinal(mc *modelCall) error {
	i := slices.IndexFunc(mc.calls, func(c callIntake) bool { return c.call.Name == finalName })
	if i < 0 {
		return r.keepText(mc.msg, string(mc.reason()))
	}
	mc.calls = mc.calls[i : i+1]
	mc.msg.Blocks = message.Blocks{mc.calls[0].call}
	return r.accept(mc)
}

// lastAnswer asks for a last answer without tools. What comes of it is kept unless it is empty; a
// failure changes nothing but what the End says, the run is over anyway.
func (r *run) lastAnswer(limit string) error {
	if err := join(r.collectAll(), r.addBackgroundResults()); err != nil {
		return err
	}
	r.st.loop.Spent.Stopped = limit
	hint := "Say what you have found and what is left to do, without calling a tool."
	if r.final != nil {
		hint = hintFinal
	}
	if err := r.hint("This is the end: " + limit + " was reached. " + hint); err != nil {
		return err
	}
	if left, limited := r.timeLeft(); limited && left <= 0 {
		r.watchTime(r.limits().LastWords())
	}
	r.dialog.last = true
	defer func() { r.dialog.last = false }()
	mc := &modelCall{msg: new(message.Message)}
	v, err := r.currentView()
	if err == nil {
		err = r.fit(v)
	}
	for err == nil {
		if mc, err = r.generate(); !r.isRefused(err) {
			break
		}
		err = r.relieve(v, err)
	}
	if err == nil && r.final != nil {
		r.unanswered = nil
		return r.keepFinal(mc)
	}
	switch {
	case err == nil:
		r.unanswered = nil
		r.spend(mc.msg)
	case !errors.Is(err, errTimeUp):
		r.unanswered = err
	}
	return r.keepText(mc.msg, string(mc.reason()))
}
