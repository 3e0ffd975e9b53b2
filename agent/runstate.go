package agent

import (
	"context"
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

// A run is one call of [Agent.Run]. The goroutine of the consumer, which ranges over the events, owns the run and
// the State: all methods run there. Flights only write to the inbox.
type run struct {
	entry *Agent  // the agent whose Run was called
	agent *Agent  // the agent that has the conversation; see Handoff
	cfg   *Config // of agent
	st    *State

	runCtx context.Context // ends with the caller's context, and when the consumer stops
	ctx    context.Context // runCtx or, within a step, the context from Middleware.Step

	consumer consumer
	inbox    inbox
	flights  []*flight // flights whose reports are not all handled, and background calls
	failed   error     // ends the run

	answerErr error // why the last model call has no answer; reported with the reason that ends the run

	cache       requestCache
	final       *finalAnswer // the requested typed answer, or nil
	dialog      dialog
	windowGauge window.Gauge // use the method gauge, which sets the configuration
	questions   questionState
	consumed    []string // the ids of inputs whose effects no save contains yet
}

// A consumer receives the events of a run. An event that reports a change passes through unsent, held and queue, other
// events only through queue.
type consumer struct {
	yield   func(event.Event, error) bool
	cancel  context.CancelCauseFunc
	stopped bool // the consumer has stopped: nothing more is yielded
	paused  bool // Config.Approve is being called: nothing is yielded until Approve returns

	unsent  []event.Event // not numbered; the next store moves them to held
	held    []event.Event // numbered; the next successful save moves them to queue
	queue   []event.Event // numbered; flush yields them
	unsaved []event.Event // numbered, of any kind but deltas; passed to the next save

	redactor eventRedactor
}

// A requestCache has the view and the policy of the last request to the model, for the calls in the answer. A
// field is nil when it must be recreated.
type requestCache struct {
	view   *toolkit.View
	policy *permission.Policy // Config.Policy with the State's rules
}

// A dialog is a run's state of the conversation with the model.
type dialog struct {
	ids   map[string]bool // of all calls in the conversation
	usage message.Usage   // of this run
	model model.Model     // the agent's, with retries that emit events; created for the first request

	lastAnswer bool // the next answer is the last one, because of a limit: no tool may be called
}

// A questionState has what a run needs to ask the user.
type questionState struct {
	asking   chan struct{}      // holds a token while a question is open
	sampling chan struct{}      // holds a token while a server uses the model
	host     *callHost          // of the calls of the current agent; nil until one is needed
	answers  map[string][]Input // for sub-agents, by the id of the call that a sub-agent works on
}

// Why flights are cancelled.
var (
	errLeft    = errors.New("the consumer has stopped")
	errTimeUp  = errors.New("out of time") // Limits.Time has passed; cancelCallsAfter adds the limit to the text
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
		if many, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(many.Unwrap()...).Error() == err.Error() { // made by errors.Join
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

// emit yields an event that needs no save. If the consumer stops, the run is cancelled.
func (r *run) emit(ev event.Event) {
	out := &r.consumer
	if len(out.held) > 0 { // the held events come first
		r.emitAfterSave(ev)
		return
	}
	out.queue = r.prepare(out.queue, ev)
	r.flush()
}

// emitAfterSave holds an event until a save has succeeded.
func (r *run) emitAfterSave(ev event.Event) { r.consumer.held = r.prepare(r.consumer.held, ev) }

// release yields the held events.
func (r *run) release() {
	out := &r.consumer
	out.queue = append(out.queue, out.held...)
	clear(out.held)
	out.held = out.held[:0]
	r.flush()
}

// discardAfter drops the events numbered after seq, whose save failed, so that no later save or release has them.
func (c *consumer) discardAfter(seq int64) {
	isLater := func(ev event.Event) bool { return ev.Head().Seq > seq }
	c.held = slices.DeleteFunc(c.held, isLater)
	c.unsaved = slices.DeleteFunc(c.unsaved, isLater)
}

// prepare appends to list, numbered, what [eventRedactor.redact] returns for ev.
func (r *run) prepare(list []event.Event, ev event.Event) []event.Event {
	n := len(list)
	if r.cfg.Redact == nil {
		list = append(list, ev)
	} else {
		list = append(list, r.consumer.redactor.redact(ev)...)
	}
	for _, clean := range list[n:] {
		r.number(clean)
		*ev.Head() = *clean.Head() // for callers that need the number or the time
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
		out.stopped = true // a consumer that panics is not called again
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

// store saves the State together with the unsent and the given events, and then yields these events. If the save fails,
// its error ends the run, and the events stay held: a later save, while the run closes its open calls, may yield them.
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

// save saves the State and the unsaved events, and yields the held events.
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
	if err := r.cfg.Save(context.WithoutCancel(r.ctx), r.st); err != nil { // a cancelled run still saves how it ended
		return fmt.Errorf("save the session: %w", err)
	}
	return nil
}

func (r *run) addMessage(m *message.Message, finish string) error {
	r.st.Messages = append(r.st.Messages, m)
	r.consumer.unsent = append(r.consumer.unsent, &event.Message{Message: m, Finish: finish})
	return r.store()
}

func (r *run) addHint(text string) error {
	return r.addMessage(r.newHint(decide.HintSource, text), "")
}

func (r *run) newHint(source, text string) *message.Message {
	return &message.Message{ID: r.cfg.NewID("msg"), Role: message.RoleUser, Created: r.cfg.Now(),
		Blocks: message.Blocks{&message.Hint{Source: source, Text: text}}}
}

// currentView returns the toolkit's view for the open calls, or for the next model call.
func (r *run) currentView() (*toolkit.View, error) {
	if r.cache.view == nil {
		v, err := r.cfg.Toolkit.View(r.ctx, &r.st.Scope)
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w", err)
		}
		for _, t := range v.Tools() {
			if t.Name == finalName && r.final != nil || t.Name == backgroundName && r.agent.background != nil {
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

// withToolState returns ctx with State.Tools. The context of every step has it, unless a middleware has passed on another
// context.
func (r *run) withToolState(ctx context.Context) context.Context {
	if toolstate.From(ctx) == &r.st.Tools {
		return ctx
	}
	return toolstate.With(ctx, &r.st.Tools)
}
