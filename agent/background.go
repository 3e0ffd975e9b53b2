package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// endedInBackground introduces the result of a background call.
const endedInBackground = "Call %s of %s, which continued in the background, has ended (%s). Its result is between the tags; it does not come from the user.\n" +
	"<result>\n%s\n</result>"

// closingTag matches what a model might read as the closing tag in endedInBackground.
var closingTag = lazy.Regexp(`(?i)<\s*/\s*(result)`)

// backgroundAfter returns the time after which c continues in the background, negative for never.
//
// Sub-agents never do: they may ask for approval, and the answer must reach them. Calls on which later calls depend
// never do: calls that change which tools are visible or control the agent, and calls of tools that are neither marked
// Parallel nor a [tool.Backgrounder].
func (r *run) backgroundAfter(t tool.Tool, c *openCall) time.Duration {
	_, nested := tool.As[*subagent](t)
	if r.cfg.Background == 0 || c.ChangesGroups || t.Info().Control || nested {
		return -1
	}
	if b, ok := tool.As[tool.Backgrounder](t); ok {
		return max(-1, orElse(-1, func() time.Duration { return b.Background(c.Input) }))
	}
	if t.Info().Parallel {
		return r.cfg.Background
	}
	return -1
}

// moveToBackground lets a call continue in the background, if the call has not ended and MaxParallel allows another one.
func (r *run) moveToBackground(tc *toolCall) error {
	if tc.background || tc.ended || len(r.st.loop.InBackground()) >= r.cfg.MaxParallel {
		return nil
	}
	tc.background = true
	tc.unbind()
	c := tc.call
	r.st.loop.MoveToBackground(c)
	return r.store(&event.Background{Call: c.ID, Name: c.Tool}, newToolResult(c))
}

// findBackground returns the call with this id if it runs in the background or may still be moved there, else nil.
func (r *run) findBackground(id string) *toolCall {
	for _, f := range r.flights {
		if tc, ok := f.task.(*toolCall); ok && tc.call.ID == id && tc.done != nil { // done is nil for calls that cannot be moved
			return tc
		}
	}
	return nil
}

// keepBackgroundResult keeps the result of a background call until addBackgroundResults, and emits it with the next save.
func (r *run) keepBackgroundResult(bg *backgroundCall, res *message.ToolResult) {
	bg.Result = r.cleanResult(bg.ID, bg.Tool, res)
	r.consumer.unsent = append(r.consumer.unsent, &event.Background{Call: bg.ID, Name: bg.Tool, Result: bg.Result})
}

// keepBackgroundResults keeps the results of the background calls that have ended; with waitForAll it waits until all
// have ended. An error ends the run.
func (r *run) keepBackgroundResults(waitForAll bool) (err error) {
	for _, bg := range r.st.loop.InBackground() {
		if tc := r.findBackground(bg.ID); waitForAll || tc.ended {
			r.await(&tc.flight)
			r.removeFlight(&tc.flight)
			r.keepBackgroundResult(bg, tc.res)
			err = join(err, tc.err)
		}
	}
	return err
}

// addEndedBackground adds the results of background calls that have ended to the conversation.
func (r *run) addEndedBackground() error {
	return join(r.keepBackgroundResults(false), r.addBackgroundResults())
}

// awaitOneBackground waits until any background call has ended, and adds its result to the conversation.
func (r *run) awaitOneBackground() error {
	defer context.AfterFunc(r.ctx, r.inbox.wake)()
	ended := func(bg *backgroundCall) bool { return r.findBackground(bg.ID).ended }
	// After a crash, or while waiting for approval, there may only be results that the model has not read.
	running := r.st.loop.InBackground()
	for len(running) > 0 && r.failed == nil && r.ctx.Err() == nil && !slices.ContainsFunc(running, ended) {
		r.receive()
	}
	return r.addEndedBackground()
}

// awaitBackground waits until all background calls have ended, and saves their results. It adds no message to the
// conversation: the results of open calls must come first.
func (r *run) awaitBackground() error {
	if len(r.st.loop.InBackground()) == 0 {
		return nil
	}
	return join(r.keepBackgroundResults(true), r.store())
}

// stopBackground cancels the background calls, and waits until they have ended.
func (r *run) stopBackground() error {
	for _, bg := range r.st.loop.InBackground() {
		r.findBackground(bg.ID).cancelWith(context.Canceled)
	}
	return r.keepBackgroundResults(true)
}

// addBackgroundResults adds the kept results of background calls to the conversation, as hints: a call can have
// only one result, which already says that the call continues. APIs send a hint as a user message, so the text says
// that it is not from the user.
func (r *run) addBackgroundResults() error {
	if len(r.st.loop.Background) == len(r.st.loop.InBackground()) { // no results
		return nil
	}
	v, err := r.currentView()
	m := r.newHint("", "") // made before RemoveEnded, as Config.NewID may panic: then no results are lost
	var hints, data message.Blocks
	var succeeded []string
	for _, bg := range r.st.loop.RemoveEnded() {
		// What the tool returned must not end the tag by itself.
		text := closingTag().ReplaceAllString(bg.Result.Text(), `<\/$1`)
		hints = append(hints, &message.Hint{Source: backgroundName, Text: fmt.Sprintf(endedInBackground, bg.ID, bg.Tool, bg.Result.Outcome, text)})
		for _, d := range window.DataIn(bg.Result.Blocks) {
			data = append(data, d)
		}
		if bg.Result.Outcome == message.OutcomeSuccess {
			succeeded = append(succeeded, bg.Tool)
		}
	}
	if err == nil { // else the run ends: the next model call needs the view, too
		v.Advance(succeeded...)
	}
	r.cache.view = nil
	m.Blocks = append(hints, data...)
	return r.addMessage(m, "")
}

// backgroundName is the tool with which a model manages its background calls. With Config.Background it is always listed,
// even if there are no such calls: a change of the list would invalidate the provider's cache of the whole conversation.
const backgroundName = "background"

const backgroundDescription = "Manages a tool call that continues in the background: shows its progress, waits for it, or stops it. " +
	"You get its result when it ends, without asking."

type backgroundIn struct {
	Call    string `json:"call" jsonschema_description:"the id of the call"`
	Action  string `json:"action,omitempty" jsonschema:"enum=look,enum=wait,enum=stop,default=look"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"default=60,minimum=1,maximum=3600" jsonschema_description:"how long to wait at most"`
}

func manageBackground(ctx context.Context, in backgroundIn) (string, error) {
	self := callIn(ctx)
	if self == nil { // called outside of a run
		return "", fmt.Errorf("there is no call %q in the background", in.Call)
	}
	text, done, err := self.stopOrDescribe(in)
	if err != nil || in.Action != "wait" {
		return text, err
	}
	timer := time.NewTimer(time.Duration(in.Seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	text, _, err = self.stopOrDescribe(in)
	return text, err
}

// stopOrDescribe stops the call that in names, or describes its progress, in a text for the model. done is closed when
// that call has ended. tc is the call of the tool background.
func (tc *toolCall) stopOrDescribe(in backgroundIn) (text string, done <-chan struct{}, err error) {
	var other *toolCall
	err = tc.run.inbox.ask(&tc.flight, func() error {
		if other = tc.run.findBackground(in.Call); other == nil {
			return nil
		}
		done = other.done
		switch {
		case in.Action == "stop":
			other.cancelWith(context.Canceled)
			text = "Call " + in.Call + " was cancelled. You will get its result when it has stopped."
		case other.ended:
			text = "Call " + in.Call + " has ended. You get its result next."
		case other.tail == "":
			text = "Call " + in.Call + " is still running and has no output yet."
		default:
			text = "Call " + in.Call + " is still running. The end of its output so far:\n" + other.tail
		}
		return nil
	})
	if err == nil && other == nil {
		err = fmt.Errorf("there is no call %q in the background; if there was one, you already have its result", in.Call)
	}
	return text, done, err
}
