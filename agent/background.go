package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// endedInBackground introduces what a call in the background has returned.
const endedInBackground = "Call %s of %s, which continued in the background, has ended (%s). What it returned is between the tags; it does not come from the user.\n" +
	"<result>\n%s\n</result>"

// resultEnd is what a model might take for the end of the tag in endedInBackground.
var resultEnd = lazy.Regexp(`(?i)<\s*/\s*(result)`)

// patience returns after how long c continues in the background, negative for never.
//
// A sub-agent never does: it may have to ask a person, whose answer must find it. Nor does a call
// that changes what is visible, or steers the agent: what follows depends on it. Any other tool
// that is not marked Parallel counts on being alone, unless it says itself that it need not be.
func (r *run) patience(t tool.Tool, c *openCall) time.Duration {
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

// leave lets a call continue in the background, if there is room and it has not ended.
func (r *run) leave(tc *toolCall) error {
	if tc.background || tc.stage == finished || !r.st.loop.MayLeave(r.cfg.MaxParallel) {
		return nil
	}
	tc.background = true
	tc.unbind()
	c := tc.call
	r.st.loop.Leave(c)
	return r.store(&event.Background{Call: c.ID, Name: c.Tool}, newToolResult(c))
}

// backgroundFlight returns the flight of a call that went on in the background in this run, or may yet.
func (r *run) backgroundFlight(id string) *toolCall {
	for _, f := range r.flights {
		if tc, ok := f.task.(*toolCall); ok && tc.call.ID == id && tc.done != nil {
			return tc
		}
	}
	return nil
}

// forgetBackground gives up the calls that went on in the background when an earlier run was cut off.
func (r *run) forgetBackground() {
	for _, a := range r.st.loop.InBackground() {
		r.returned(a, decide.ResultLost())
	}
}

func (r *run) returned(a *backgroundCall, res *message.ToolResult) {
	a.Result = r.tidy(a.ID, a.Tool, res)
	r.consumer.unsent = append(r.consumer.unsent, &event.Background{Call: a.ID, Name: a.Tool, Result: a.Result})
}

// collect takes the results of the calls in the background that have ended, or of all, and waits
// for them. The error is one that ends the run.
func (r *run) collect(all bool) (err error) {
	for _, a := range r.st.loop.InBackground() {
		tc := r.backgroundFlight(a.ID)
		if !all && !tc.ended {
			continue
		}
		r.await(&tc.flight)
		r.forget(&tc.flight)
		r.returned(a, tc.res)
		err = join(err, tc.err)
	}
	return err
}

// addEnded adds the results of the calls in the background that have ended to the conversation.
func (r *run) addEnded() error {
	if len(r.st.loop.Background) == 0 {
		return nil
	}
	return join(r.collect(false), r.addBackgroundResults())
}

// waitForBackground waits until a call in the background has ended, and adds its result to the conversation. When the time is up
// all are cancelled.
func (r *run) waitForBackground() error {
	defer context.AfterFunc(r.ctx, r.inbox.wake)()
	ended := func(a *backgroundCall) bool { return r.backgroundFlight(a.ID).ended }
	// None runs if a crash, or the wait for a person, left only results that the model has not read.
	running := r.st.loop.InBackground()
	for len(running) > 0 && r.failed == nil && r.ctx.Err() == nil && !slices.ContainsFunc(running, ended) {
		r.receive()
	}
	return r.addEnded()
}

// collectAll waits until nothing runs in the background any more, and stores the results. It adds no
// message for the model: calls may be open, whose results must come next.
func (r *run) collectAll() error {
	if len(r.st.loop.InBackground()) == 0 {
		return nil
	}
	return join(r.collect(true), r.store())
}

// stopBackground ends what runs in the background, and waits for it: no goroutine outlives a run but
// that of a tool that does not stop when it is cancelled.
func (r *run) stopBackground() error {
	for _, a := range r.st.loop.InBackground() {
		r.backgroundFlight(a.ID).end(context.Canceled)
	}
	return r.collect(true)
}

// addBackgroundResults adds what became of calls in the background to the conversation: in the program's
// words, since a call has one result and that is there already. To APIs that is a user's message,
// and so it says who speaks.
func (r *run) addBackgroundResults() error {
	if len(r.st.loop.Background) == len(r.st.loop.InBackground()) {
		return nil
	}
	v, cancelled := r.currentView()
	m := r.hintMessage("", "")
	// From here on nothing panics that others have written: what has ended would be lost.
	var told, data message.Blocks
	var succeeded []string
	for _, a := range r.st.loop.Report() {
		// What the tool returned must not end the tag by itself.
		text := resultEnd().ReplaceAllString(a.Result.Text(), `<\/$1`)
		told = append(told, &message.Hint{Source: backgroundName, Text: fmt.Sprintf(endedInBackground, a.ID, a.Tool, a.Result.Outcome, text)})
		for _, d := range window.DataIn(a.Result.Blocks) {
			data = append(data, d)
		}
		if a.Result.Outcome == message.OutcomeSuccess {
			succeeded = append(succeeded, a.Tool)
		}
	}
	if cancelled == nil {
		v.Advance(succeeded...)
	}
	r.shown.view = nil
	m.Blocks = append(told, data...)
	return r.addMessage(m, "")
}

// backgroundName is the tool by which a model looks after its calls in the background.
// It is listed whether there are any or not: a list that changes costs the provider's cache of
// everything that was said.
const backgroundName = "background"

const backgroundDescription = "Looks after a tool call that continues in the background: shows how far it is, waits for it, or stops it. " +
	"You get what it returns when it ends, without asking."

type backgroundIn struct {
	Call    string `json:"call" jsonschema_description:"the id of the call"`
	Action  string `json:"action,omitempty" jsonschema:"enum=look,enum=wait,enum=stop,default=look"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"default=60,minimum=1,maximum=3600" jsonschema_description:"how long to wait at most"`
}

func newBackground() (tool.Tool, error) {
	return tool.New(backgroundName, backgroundDescription, lookAfter, tool.Options{Parallel: true, Control: true})
}

func lookAfter(ctx context.Context, in backgroundIn) (string, error) {
	own := callIn(ctx)
	if own == nil {
		return "", fmt.Errorf("no call %q runs in the background", in.Call)
	}
	text, done, err := own.look(in)
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
	text, _, err = own.look(in)
	return text, err
}

// look has the run look at another call, or stop it. done is closed when that has ended.
func (tc *toolCall) look(in backgroundIn) (text string, done <-chan struct{}, err error) {
	var other *toolCall
	err = tc.run.inbox.ask(&tc.flight, func() error {
		if other = tc.run.backgroundFlight(in.Call); other == nil {
			return nil
		}
		done = other.done
		switch {
		case in.Action == "stop":
			other.end(context.Canceled)
			text = "Call " + in.Call + " was cancelled. You will get its result when it has stopped."
		case other.ended:
			text = "Call " + in.Call + " has ended. You get its result next."
		case other.tail == "":
			text = "Call " + in.Call + " is still running and has said nothing yet."
		default:
			text = "Call " + in.Call + " is still running. The end of what it has said so far:\n" + other.tail
		}
		return nil
	})
	if err == nil && other == nil {
		err = fmt.Errorf("no call %q runs in the background; if one did, you have its result already", in.Call)
	}
	return text, done, err
}
