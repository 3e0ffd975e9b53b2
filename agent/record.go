package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A run is one call of Run. The goroutine of the consumer, which ranges over the events, owns it and
// the State: all methods run there. Running calls (flights) only write to the inbox.
type run struct {
	entry *Agent  // the agent that is run
	a     *Agent  // the agent that has the conversation; see Handoff
	cfg   *Config // of a
	st    *State

	runCtx context.Context // of the run: ends with the caller's, and when the consumer stops
	ctx    context.Context // runCtx or, within a step, the context from Middleware.Step

	consumer consumer
	inbox    inbox
	flights  []*flight   // that are not completely handled
	early    *earlyCalls // calls of the current or last answer; usually nil
	failed   error       // ends the run

	answerErr error // why the last model call has no answer; reported with the reason that ends the run

	cache       requestCache
	final       *finalAnswer // the requested typed answer, or nil
	dialog      dialog
	windowGauge window.Gauge // use gauge, which sets its configuration
	questions   questionState
	consumed    []string // the ids of inputs that no save contains yet
}

// A consumer receives the events of a run.
type consumer struct {
	yield   func(event.Event, error) bool
	cancel  context.CancelCauseFunc
	stopped bool          // the consumer has stopped: nothing more is yielded
	queue   []event.Event // numbered but not yielded
	paused  bool          // Config.Approve is being called: nothing is yielded until it returns
	unsent  []event.Event // without numbers yet; the next store holds them
	held    []event.Event // numbered, yielded after the next successful save
	unsaved []event.Event // numbered, passed to the next save; no deltas

	redactor eventRedactor
}

// A requestCache has the view and the policy of the last request to the model, for its calls. Each is nil when it
// must be recreated.
type requestCache struct {
	view   *toolkit.View
	policy *permission.Policy // Config.Policy with the State's rules
}

// A dialog is a run's state of the conversation with the model.
type dialog struct {
	ids   map[string]bool // of all calls in the conversation
	usage message.Usage
	last  bool        // the next answer is the final one: no tool may be called
	model model.Model // the agent's, with retries that emit events; created for the first request
}

// A questionState has what a run needs to ask the user.
type questionState struct {
	asking   chan struct{}      // holds a token while a question is open
	sampling chan struct{}      // holds a token while a server uses the model
	host     *callHost          // of all calls
	answers  map[string][]Input // for sub-agents, by the id of their call
}

// Why flights are cancelled.
var (
	errLeft    = errors.New("the consumer has stopped")
	errTimeUp  = errors.New("out of time") // Limits.Time has passed; watchTime adds the limit to the text
	errTooSlow = errors.New("the call took too long")
)

// join is like [errors.Join], but does not repeat an error with the same text: a full disk fails each save.
func join(errs ...error) error {
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	var all []error
	for _, err := range errs {
		list := []error{err}
		if many, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(many.Unwrap()...).Error() == err.Error() { // made by join
			list = many.Unwrap()
		}
		for _, err := range list {
			if err != nil && !slices.ContainsFunc(all, func(e error) bool { return e.Error() == err.Error() }) {
				all = append(all, err)
			}
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// emit yields an event that needs no save, or was saved. When the consumer stops
// it only cancels the run, which then ends as if its context had ended.
func (r *run) emit(ev event.Event) {
	out := &r.consumer
	if len(out.held) > 0 { // they come first
		r.emitAfterSave(ev)
		return
	}
	out.queue = r.prepare(out.queue, ev)
	r.flush()
}

// emitAfterSave keeps an event back until a save has succeeded.
func (r *run) emitAfterSave(ev event.Event) { r.consumer.held = r.prepare(r.consumer.held, ev) }

// release yields the events that were held back.
func (r *run) release() {
	out := &r.consumer
	out.queue = append(out.queue, out.held...)
	clear(out.held)
	out.held = out.held[:0]
	r.flush()
}

// forget drops the events numbered after seq, whose save failed, so that no later save or release has them.
func (c *consumer) forget(seq int64) {
	isLater := func(ev event.Event) bool { return ev.Head().Seq > seq }
	c.held = slices.DeleteFunc(c.held, isLater)
	c.unsaved = slices.DeleteFunc(c.unsaved, isLater)
}

// prepare appends to list the events to yield for ev, redacted and numbered.
func (r *run) prepare(list []event.Event, ev event.Event) []event.Event {
	n := len(list)
	if r.cfg.Redact == nil {
		list = append(list, ev)
	} else {
		list = append(list, r.consumer.redactor.redact(ev)...)
	}
	for _, clean := range list[n:] {
		r.number(clean)
		*ev.Head() = *clean.Head() // for callers that need the number
	}
	return list
}

// flush yields the queue, unless Config.Approve is being called.
func (r *run) flush() {
	out := &r.consumer
	if out.paused {
		return
	}
	for _, ev := range out.queue {
		if out.stopped {
			break
		}
		out.stopped = true // if the consumer panics it is not called again
		out.stopped = !out.yield(ev, nil)
		if out.stopped {
			out.cancel(errLeft)
		}
	}
	clear(out.queue)
	out.queue = out.queue[:0]
}

// number gives an event its number in the conversation, and adds it to the next save.
func (r *run) number(ev event.Event) {
	st := &r.st.loop
	st.Seq++
	h := ev.Head()
	h.Seq, h.Type, h.Time = st.Seq, event.TypeOf(ev), r.cfg.Now()
	if h.Run == "" {
		h.Run = st.Run
	}
	if r.cfg.Save != nil && !isDelta(ev) {
		r.consumer.unsaved = append(r.consumer.unsaved, ev)
	}
}

// isDelta reports whether the content of ev comes again in a complete event.
func isDelta(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.TextDelta, *event.ThinkingDelta, *event.ToolCallDelta, *event.ToolDelta:
		return true
	case *event.Sub:
		return isDelta(ev.Event)
	}
	return false
}

// store saves the State together with new events, and then yields them. If the save fails the run ends with its error.
// The events stay held: a later save, while the run closes its open calls, may still succeed and yield them.
func (r *run) store(events ...event.Event) error {
	out := &r.consumer
	for _, ev := range out.unsent {
		r.emitAfterSave(ev)
	}
	for _, ev := range events {
		r.emitAfterSave(ev)
	}
	clear(out.unsent)
	out.unsent = out.unsent[:0]
	return r.save()
}

// save saves the State and the events that no save has yet, and yields those that were held
// back. A cancelled run still saves how it ended.
func (r *run) save() error {
	if err := r.saveState(); err != nil {
		return err
	}
	r.consumer.unsaved, r.consumed = nil, nil // not reused: Config.Save may keep them
	r.release()
	return nil
}

func (r *run) saveState() error {
	if len(r.cfg.Key) == 0 && r.cfg.Save == nil {
		return nil
	}
	var err error
	if r.st.frozen, err = r.st.encodeMutable(); err != nil {
		return fmt.Errorf("encode the session: %w", err)
	}
	defer func() { r.st.frozen, r.st.saving = nil, Saving{} }()
	if len(r.cfg.Key) > 0 {
		if r.st.seal, err = r.sealOf(); err != nil {
			return fmt.Errorf("seal the session: %w", err)
		}
	}
	if r.cfg.Save == nil {
		return nil
	}
	r.st.saving = Saving{r.consumer.unsaved, r.consumed}
	if err := r.cfg.Save(context.WithoutCancel(r.ctx), r.st); err != nil {
		return fmt.Errorf("save the session: %w", err)
	}
	return nil
}

func (r *run) addMessage(m *message.Message, finish string) error {
	r.st.Messages = append(r.st.Messages, m)
	r.consumer.unsent = append(r.consumer.unsent, &event.Message{Message: m, Finish: finish})
	return r.store()
}

func (r *run) hint(text string) error {
	return r.addMessage(r.hintMessage(decide.HintSource, text), "")
}

func (r *run) hintMessage(source, text string) *message.Message {
	return &message.Message{ID: r.cfg.NewID("msg"), Role: message.RoleUser, Created: r.cfg.Now(),
		Blocks: message.Blocks{&message.Hint{Source: source, Text: text}}}
}

// currentView returns the view for the open calls, or for the next model call.
func (r *run) currentView() (*toolkit.View, error) {
	if r.cache.view == nil {
		v, err := r.cfg.Toolkit.View(r.ctx, &r.st.Scope)
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w", err)
		}
		for _, t := range v.Tools() {
			if t.Name == finalName && r.final != nil || t.Name == backgroundName && r.a.background != nil {
				return nil, fmt.Errorf("the toolkit has a tool named %s, which is the name of a tool of the agent; rename it", t.Name)
			}
		}
		r.cache.view = v
	}
	return r.cache.view, nil
}

// currentPolicy returns Config.Policy with the rules of this conversation.
func (r *run) currentPolicy() *permission.Policy {
	if r.cache.policy == nil {
		p := r.cfg.Policy
		p.Rules = slices.Concat(p.Rules, r.st.Rules)
		r.cache.policy = &p
	}
	return r.cache.policy
}

// withToolState returns ctx with the tools' State. A run puts it into the context of every step, but a
// middleware may pass on another context.
func (r *run) withToolState(ctx context.Context) context.Context {
	if toolstate.From(ctx) == &r.st.Tools {
		return ctx
	}
	return toolstate.With(ctx, &r.st.Tools)
}

// A subLink connects a sub-agent with its outer run, through the context.
type subLink struct {
	state      json.RawMessage // of the sub-agent's conversation; nil for a new one
	unverified bool            // state comes from a State whose seal was not checked
	inputs     []Input         // answers for the sub-agent
	judge      JudgeFunc       // of the outer run, with its policy
	outer      *Config         // of the outer run; may be nil

	// do calls fn on the outer run's goroutine, with the call that the sub-agent works on. It returns the result of
	// fn, or an error if the outer run has ended.
	do func(fn func(outer *run, c *openCall) error) error

	waits bool // the sub-agent has ended, waiting for an answer

	seq int64 // of the sub-agent's last event that the outer run has emitted or held
}

// isNew reports whether the outer run has yet to emit ev, and records that it will.
func (n *subLink) isNew(ev event.Event) bool {
	if ev.Head().Seq <= n.seq {
		return false
	}
	n.seq = ev.Head().Seq
	return true
}

type subLinkKey struct{}
