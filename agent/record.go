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

// run is one call of Run. The goroutine of the consumer, who ranges over the events, owns it and
// the State: every method runs there. Flights write to the inbox, and touch neither.
type run struct {
	entry *Agent  // the one that is run
	a     *Agent  // the one that has the conversation; see Handoff
	cfg   *Config // its
	st    *State

	runCtx context.Context // of the run: ends with the caller's, and when the consumer leaves
	ctx    context.Context // the same, or within a step what a Middleware.Step has made of it

	consumer consumer
	inbox    inbox
	flights  []*flight // that something still has to be done about
	early    *early    // calls of the answer that is coming, or came last; mostly nil
	failed   error     // ends the run

	unanswered error // why the last call of the model has no answer, where something else ends the run

	shown  shown
	final  *final // the typed answer that is wanted, or nil
	dialog dialog
	full   window.Gauge // see gauge
	people people
	took   []string // the ids of inputs that the State holds, and no save yet
}

// A consumer is where events go.
type consumer struct {
	yield   func(event.Event, error) bool
	cancel  context.CancelCauseFunc
	stopped bool          // the consumer has left: nothing more is yielded
	queue   []event.Event // that were numbered, and not yielded
	paused  bool          // Config.Approve is being called: nothing is yielded until it returns
	unsent  []event.Event // that wait for a save, and for their numbers
	held    []event.Event // that were numbered, and wait for a save that succeeds
	unsaved []event.Event // that were numbered, but for deltas, and are for the next save

	redactor eventRedactor
}

// shown is what the last answer of the model was made with, and its calls are judged by. Each part
// is nil when it must be made.
type shown struct {
	view   *toolkit.View
	policy *permission.Policy // Config.Policy with the State's rules
}

// dialog is what a run knows of its talk with the model.
type dialog struct {
	ids   map[string]bool // of all calls of the conversation
	usage message.Usage
	last  bool        // the next answer is the last: no tool may be called
	model model.Model // the agent's, with retries that the run emits; made with the first request
}

// people are whom a run asks.
type people struct {
	asking   chan struct{}      // holds a token while a person is asked in the process
	sampling chan struct{}      // holds a token while the model answers a server
	host     *callHost          // of all calls
	answers  map[string][]Input // for the sub-agents that work on these calls
}

// Why flights are cancelled.
var (
	errLeft    = errors.New("the consumer has left")
	errTimeUp  = errors.New("out of time") // see Limits.Time; the limit follows
	errTooSlow = errors.New("the call took too long")
)

// join is [errors.Join], but that what was said before is not repeated: a store that is full says
// so each time.
func join(errs ...error) error {
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	var all []error
	for _, err := range errs {
		list := []error{err}
		if many, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(many.Unwrap()...).Error() == err.Error() {
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

// emit yields an event that says nothing of the State, or what was stored. When the consumer has left
// it only cancels the run, which then ends as if its context had.
func (r *run) emit(ev event.Event) {
	out := &r.consumer
	if len(out.held) > 0 { // which come first
		r.hold(ev)
		return
	}
	out.queue = r.prepare(out.queue, ev)
	r.yieldQueue()
}

// hold keeps an event back until a save has succeeded: what is yielded is stored.
func (r *run) hold(ev event.Event) { r.consumer.held = r.prepare(r.consumer.held, ev) }

// release yields the events that were held back.
func (r *run) release() {
	out := &r.consumer
	out.queue = append(out.queue, out.held...)
	clear(out.held)
	out.held = out.held[:0]
	r.yieldQueue()
}

// forget drops what was held back since the State's events had the number seq.
func (c *consumer) forget(seq int64) {
	late := func(ev event.Event) bool { return ev.Head().Seq > seq }
	c.held = slices.DeleteFunc(c.held, late)
	c.unsaved = slices.DeleteFunc(c.unsaved, late)
}

// prepare appends to list what is yielded for an event, without secrets and with numbers.
func (r *run) prepare(list []event.Event, ev event.Event) []event.Event {
	n := len(list)
	if r.cfg.Redact == nil {
		list = append(list, ev)
	} else {
		list = append(list, r.consumer.redactor.redact(ev)...)
	}
	for _, clean := range list[n:] {
		r.number(clean)
		*ev.Head() = *clean.Head() // for callers that need the number of what was emitted
	}
	return list
}

func (r *run) yieldQueue() {
	if !r.consumer.paused {
		r.flush()
	}
}

// flush yields the events that wait.
func (r *run) flush() {
	out := &r.consumer
	for _, ev := range out.queue {
		if out.stopped {
			break
		}
		out.stopped = true // should the consumer panic, it is not called again
		out.stopped = !out.yield(ev, nil)
		if out.stopped {
			out.cancel(errLeft)
		}
	}
	clear(out.queue)
	out.queue = out.queue[:0]
}

// number gives an event its place in the conversation, and in the next save.
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

// isDelta reports whether all that ev says comes again when it is whole.
func isDelta(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.TextDelta, *event.ThinkingDelta, *event.ToolCallDelta, *event.ToolDelta:
		return true
	case *event.Sub:
		return isDelta(ev.Event)
	}
	return false
}

// store stores the State, with the events about what is new in it, and then yields them. When that
// fails they wait until a later save succeeds. The run ends with the error in any case, so that this
// can only be one of the saves that close what is open.
func (r *run) store(events ...event.Event) error {
	out := &r.consumer
	for _, ev := range append(out.unsent, events...) {
		r.hold(ev)
	}
	clear(out.unsent)
	out.unsent = out.unsent[:0]
	return r.save()
}

// save stores the State and the events that no save has stored, and yields those that were held
// back. A run that was cancelled still stores how it ended.
func (r *run) save() error {
	if err := r.saveState(); err != nil {
		return err
	}
	r.consumer.unsaved, r.took = nil, nil // and not cut short: they are Config.Save's now
	r.release()
	return nil
}

func (r *run) saveState() error {
	if len(r.cfg.Key) == 0 && r.cfg.Save == nil {
		return nil
	}
	var err error
	if r.st.frozen, err = r.st.encodeMoving(); err != nil {
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
	r.st.saving = Saving{r.consumer.unsaved, r.took}
	if err := r.cfg.Save(context.WithoutCancel(r.ctx), r.st); err != nil {
		return fmt.Errorf("save the session: %w", err)
	}
	return nil
}

// addMessage adds m to the conversation, stores it, and emits it and the events that come with it.
func (r *run) addMessage(m *message.Message, finish string, more ...event.Event) error {
	r.st.Messages = append(r.st.Messages, m)
	r.consumer.unsent = append(r.consumer.unsent, &event.Message{Message: m, Finish: finish})
	return r.store(more...)
}

// hint adds a hint of the program's to the conversation.
func (r *run) hint(text string) error {
	return r.addMessage(r.hintMessage(decide.HintSource, text), "")
}

func (r *run) hintMessage(source, text string) *message.Message {
	return &message.Message{ID: r.cfg.NewID("msg"), Role: message.RoleUser, Created: r.cfg.Now(),
		Blocks: message.Blocks{&message.Hint{Source: source, Text: text}}}
}

// currentView returns the view that the open calls, or the next question, see.
func (r *run) currentView() (*toolkit.View, error) {
	if r.shown.view == nil {
		v, err := r.cfg.Toolkit.View(r.ctx, &r.st.Scope)
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w", err)
		}
		for _, t := range v.Tools() {
			if t.Name == finalName && r.final != nil || t.Name == backgroundName && r.a.background != nil {
				return nil, fmt.Errorf("the toolkit has a tool named %s, which is what the agent calls one of its own; rename it", t.Name)
			}
		}
		r.shown.view = v
	}
	return r.shown.view, nil
}

// currentPolicy returns Config.Policy with the rules of this conversation.
func (r *run) currentPolicy() *permission.Policy {
	if r.shown.policy == nil {
		p := r.cfg.Policy
		p.Rules = slices.Concat(p.Rules, r.st.Rules)
		r.shown.policy = &p
	}
	return r.shown.policy
}

// stateful returns ctx with the State of tools, which a run puts into the context of every step; a
// middleware may pass on another.
func (r *run) stateful(ctx context.Context) context.Context {
	if toolstate.From(ctx) == &r.st.Tools {
		return ctx
	}
	return toolstate.With(ctx, &r.st.Tools)
}

// A nest is what a run gives a sub-agent, through the context.
type nest struct {
	state  json.RawMessage // of the sub-agent's conversation; nil for a new one
	inputs []Input         // answers for it
	judge  JudgeFunc       // of the outer run, with its policy
	outer  *Config         // of the outer run; nil for none

	// do has the outer run do something, on its own goroutine, for the call that
	// the sub-agent works on. It returns what fn does, and an error when the
	// outer run has gone.
	do func(fn func(outer *run, c *openCall) error) error

	waits bool // for a person, at its end

	seq int64 // of the last event of the sub-agent that the outer run has emitted, or holds
}

// isNew reports whether the outer run has not emitted ev yet: those that a save stores come with it.
func (n *nest) isNew(ev event.Event) bool {
	if ev.Head().Seq <= n.seq {
		return false
	}
	n.seq = ev.Head().Seq
	return true
}

type nestKey struct{}
