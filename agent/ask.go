package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// ask makes a model call and adds the answer to the conversation. First it appends the results of background calls that
// have ended, and the hint if there is one: a change at the beginning would invalidate the provider's cache.
func (r *run) ask(hint string) error {
	if err := r.addEndedBackground(); err != nil {
		return err
	}
	r.st.loop.Spent.Steps++
	if hint != "" {
		if err := r.addHint(hint); err != nil {
			return err
		}
	}
	r.cache.view = nil // list the tools anew
	v, err := r.currentView()
	if err == nil {
		err = r.fitWindow(v)
	}
	for attempts := new(decide.Attempts); err == nil; {
		if left, limited := r.timeLeft(); limited && left <= 0 && attempts.Answers() > 0 {
			return nil // the next step asks for the final answer
		}
		mc, failure := r.generate()
		switch {
		case failure != nil && r.failed != nil: // the run ends with r.failed
			return nil
		case failure != nil && r.ctx.Err() != nil:
			return r.keepText(mc.msg, "interrupted")
		case errors.Is(failure, errTimeUp):
			r.st.loop.Spent.Stopped = r.limits().TimeLimit()
			return r.keepText(mc.msg, "limit")
		}
		var done bool
		if done, err = r.react(attempts, v, mc, failure); done {
			return err
		}
	}
	if errors.Is(err, errTimeUp) { // while a summary was being made: the next step asks for the final answer
		return nil
	}
	return err
}

// react handles an answer or a failure, and reports whether ask is done. If not, ask makes the model call again.
func (r *run) react(attempts *decide.Attempts, v *toolkit.View, mc *modelCall, failure error) (done bool, err error) {
	// An error that is not a model.Error is a bug, which another attempt would hide.
	e, isModelError := errors.AsType[*model.Error](failure)
	answer := decide.Answer{Failed: failure != nil, Refused: r.isRepairable(failure), Retryable: isModelError && e.Retryable(),
		HasBlocks: len(mc.msg.Blocks) > 0, HasText: mc.msg.Text() != "", Empty: isEmpty(mc.msg)}
	reaction := attempts.React(answer)
	switch {
	case reaction.Fix:
		return false, r.repairConversation(v, failure)
	case failure == nil && !answer.Empty:
		return true, r.accept(mc)
	case reaction.Discard:
		r.emit(&event.Discard{Message: mc.msg.ID, Error: failure.Error()})
	case reaction.KeepText:
		err = r.keepText(mc.msg, finishCutOff)
	}
	switch {
	case err != nil:
		return true, err
	case !reaction.Again && failure == nil:
		return true, fmt.Errorf("the model returned %d empty answers in a row (finish reason %q)", attempts.Answers(), mc.finishReason())
	case !reaction.Again:
		return true, failure
	case reaction.Hint != "":
		err = r.addHint(reaction.Hint)
	}
	return false, err
}

// kindOf returns the kind of a model.Error, "" for other errors.
func kindOf(err error) model.ErrorKind {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Kind
	}
	return ""
}

// isEmpty reports whether m has neither text nor tool calls. Reasoning does not count: it is not an answer.
func isEmpty(m *message.Message) bool {
	return !slices.ContainsFunc(m.Blocks, func(b message.Block) bool {
		switch b := b.(type) {
		case *message.Text:
			return strings.TrimSpace(b.Text) != ""
		case *message.Thinking:
			return false
		}
		return true
	})
}

// finishCutOff is the finish reason of a message that the next one continues.
const finishCutOff = "cut off"

// keepText stores the text of an answer that broke off. Its tool calls are dropped, since they may be incomplete.
func (r *run) keepText(answer *message.Message, finish string) error {
	m := *answer
	m.Blocks = slices.DeleteFunc(slices.Clone(answer.Blocks), func(b message.Block) bool {
		_, isCall := b.(*message.ToolCall)
		return isCall
	})
	if isEmpty(&m) {
		return nil
	}
	return r.addMessage(&m, finish)
}

// request returns a request with messages. The slice is clipped, so that a middleware that appends to it does not write
// into the State.
func (r *run) request(v *toolkit.View, messages []*message.Message) *model.Request {
	req := &model.Request{
		System:   r.system(v.Prompt()),
		Messages: slices.Clip(messages),

		MaxTokens:   r.cfg.MaxTokens,
		Temperature: r.cfg.Temperature,
	}
	if r.dialog.lastAnswer { // forbid tools, but list them, so that the provider's cache stays valid
		req.Choice.Mode = model.ChoiceNone
	}
	if r.final != nil && (r.dialog.lastAnswer || r.final.reminders > 1) { // the model has ignored the first reminder
		req.Choice = model.ToolChoice{Mode: model.ChoiceNamed, Name: finalName}
	}
	r.addTools(req, v)
	req.Reveal = r.reveal(req)
	return req
}

// addTools adds the tools of a view, and the agent's own.
func (r *run) addTools(req *model.Request, v *toolkit.View) {
	req.Tools, req.Digest = slices.Clip(v.Tools()), v.Digest()
	if r.agent.background != nil {
		req.Tools = append(req.Tools, r.agent.background.Info())
		req.Digest += "+" + backgroundName
	}
	if r.final != nil {
		info := r.final.tool.Info()
		req.Tools = append(req.Tools, info)
		req.Digest += "+" + string(info.Input) // the schema of the typed answer; each run may have another type
	}
}

// system joins the agent's instructions and the toolkit's prompt. Neither changes from step
// to step, unless a Middleware.Instructions changes its result.
func (r *run) system(prompt string) string {
	instructions := r.agent.instructions(r.ctx)
	if instructions == "" || prompt == "" {
		return instructions + prompt
	}
	return instructions + "\n\n" + prompt
}

func (r *run) newAnswer() *message.Message {
	return &message.Message{ID: r.cfg.NewID("msg"), Role: message.RoleAssistant, Created: r.cfg.Now()}
}

// generate makes the next model call. If the call fails, the result has the part of the answer before the error.
func (r *run) generate() (*modelCall, error) {
	mc := &modelCall{run: r, msg: r.newAnswer()}
	v, err := r.currentView()
	if err != nil {
		return mc, err
	}
	start := &event.ModelStart{Message: mc.msg.ID, Step: r.st.loop.Spent.Steps, Model: modelName(r.agent.model), Tools: len(v.Tools()), Digest: v.Digest()}
	req := r.request(v, r.st.Messages)
	r.recordRequest(req, start)
	r.emit(start)
	mc.started = start.Time
	estimated := window.Fixed(req.System, req.Tools) + r.closedToolTokens() + r.gauge().Count(r.st.Messages).Tokens
	if err := r.exchange(req, mc); err != nil {
		return mc, err
	}
	if ratio, ok := window.Ratio(estimated, mc.msg.Usage.Input); ok {
		r.st.tokenRatio = ratio // the reported usage corrects later estimates
	}
	return mc, nil
}

// exchange makes a model call and joins the deltas into a message, emitting each.
func (r *run) exchange(req *model.Request, mc *modelCall) error {
	mc.task = mc
	var ctx context.Context
	ctx, mc.cancel = context.WithCancel(r.ctx)
	original, retrying, inbox := r.agent.model, r.modelWithRetries(), &r.inbox
	r.launch(&mc.flight, func() {
		// Call the iterator instead of ranging over it: a loop body would take four more allocations.
		retrying.Generate(ctx, req)(func(ch model.Chunk, err error) bool {
			switch {
			case mc.err != nil:
				return false
			case err != nil:
				mc.err = err
				return false
			case ch == nil:
				return true
			case mc.sawFinish:
				mc.err = fmt.Errorf("the model (%T %s) yielded a %T after its Finish, which must be the last chunk of an answer", original, modelName(original), ch)
				return false
			case !validExtra(ch):
				mc.err = fmt.Errorf("the model (%T %s) yielded a %T whose Extra is not JSON", original, modelName(original), ch)
				return false
			}
			_, mc.sawFinish = ch.(*model.Finish)
			return inbox.put(report{from: &mc.flight, piece: ch}) && context.Cause(ctx) != errLeft
		})
	})
	r.await(&mc.flight)
	mc.complete()
	if mc.cancelCause() != nil || r.ctx.Err() != nil {
		r.answerErr = mc.err // the End reports it beside the reason that ends the run
	}
	switch {
	case mc.cancelCause() != nil && mc.finish == nil:
		return mc.cancelCause()
	case mc.err != nil:
		return mc.err
	case r.consumer.stopped: // onReport has dropped the rest of the answer
		return context.Canceled
	case mc.finish == nil && r.ctx.Err() != nil:
		return r.ctx.Err()
	case mc.finish == nil:
		return &model.Error{Kind: model.KindUpstream, Message: "the answer ended without a finish"}
	}
	mc.msg.Model, mc.msg.Usage = mc.finish.Model, &mc.finish.Usage
	r.spend(mc.msg) // even if the answer cannot be used
	return nil
}

// validExtra reports whether the Extra of ch, if it has one, can be saved with the State.
func validExtra(ch model.Chunk) bool {
	switch ch := ch.(type) {
	case *model.ThinkingDelta:
		return ch.Extra == nil || json.Valid(ch.Extra)
	case *model.ToolCallDelta:
		return ch.Extra == nil || json.Valid(ch.Extra)
	}
	return true
}

// modelWithRetries returns the agent's model with Config.Retry. Each retry emits an event.
func (r *run) modelWithRetries() model.Model {
	if r.dialog.model != nil {
		return r.dialog.model
	}
	retry, inbox := r.cfg.Retry, &r.inbox
	sender := new(flight) // not the flight of a model call: the function serves all model calls of the run
	onRetry := retry.OnRetry
	retry.OnRetry = func(attempt int, wait time.Duration, err error) {
		// An error of inbox.ask means that the run has ended.
		_ = inbox.ask(sender, func() error {
			r.emit(&event.Retry{Attempt: attempt, Wait: wait, Error: err.Error()})
			return nil
		})
		if onRetry != nil {
			onRetry(attempt, wait, err)
		}
	}
	r.dialog.model = middleware.Retry(r.agent.model, retry)
	return r.dialog.model
}

// accept adds a complete answer to the conversation and opens its calls. Calls that cannot run get their results
// before the answer is saved, so that after a crash a bad call does not look like an interrupted one.
func (r *run) accept(mc *modelCall) error {
	m := mc.msg
	v, err := r.currentView()
	if err != nil {
		return err
	}
	var events, ended []event.Event
	var opening []string // the groups that calls of this answer open; their tools can be called in the next answer
	calls := m.ToolCalls()
	for i, tc := range calls {
		opening = append(opening, v.Opens(tc.Name, mc.calls[i].args)...)
	}
	r.st.loop.Open = make([]*openCall, 0, len(calls))
	for i, tc := range calls {
		raw := mc.calls[i].args
		c, repaired := r.openCall(tc, raw, opening...)
		limit := ""
		if !r.countCall() {
			limit = cmp.Or(r.sharedLimit(), "a limit") // the outer run, which knows the limit, may have ended
		}
		// The last arguments of an answer that was too long are cut off unless they are a whole object.
		cutOff := mc.finishReason() == model.FinishLength && i == len(calls)-1 && !isObject(raw)
		r.st.loop.AddCall(c, decide.Opening{CutOff: cutOff, Final: r.isFinal(c), LimitReached: limit})
		events = append(events, &event.ToolCall{Message: m.ID, Call: tc.ID, Name: tc.Name, Input: tc.Input, Repaired: repaired})
		if c.Status == decide.Done {
			ended = append(ended, newToolResult(c))
		}
	}
	r.st.Messages = append(r.st.Messages, m)
	r.consumer.unsent = append(r.consumer.unsent, &event.Message{Message: m, Finish: string(mc.finishReason()), FirstToken: mc.firstToken})
	return r.store(append(events, ended...)...)
}

var errNameless = errors.New("the call does not name a tool, so nothing was run; make it again with a name from your list")

// openCall returns the open call for tc, a call of the model with the arguments raw, and the repairs of the arguments.
// It puts valid arguments into tc. A call that cannot run already has its result. For opening see [toolkit.View.Resolve].
func (r *run) openCall(tc *message.ToolCall, raw json.RawMessage, opening ...string) (c *openCall, repaired []string) {
	nameless := tc.Name == ""
	if nameless {
		tc.Name = "unnamed" // APIs reject a call without a name
	}
	c = &openCall{ID: tc.ID, Name: tc.Name, Tool: tc.Name, Status: decide.New}
	tc.Input = json.RawMessage("{}")
	if isObject(raw) {
		tc.Input = strictjson.Plain(raw)
	}
	reject := func(err error) (*openCall, []string) {
		c.Status, c.Result = decide.Done, notRun(c, err)
		return c, nil
	}
	if nameless {
		return reject(errNameless)
	}
	t, input, err := r.resolve(tc.Name, raw, opening...)
	if err != nil {
		return reject(err)
	}
	args, err := tool.Arguments(t, input)
	if err != nil {
		return reject(err)
	}
	if h, ok := tool.As[*handoff](t); ok {
		if err := r.checkHandoff(h); err != nil {
			return reject(err)
		}
		c.Handoff = decide.HandoffTo
		if h.to == nil {
			c.Handoff = decide.HandoffBack
		}
	}
	info := t.Info()
	c.Tool, c.Input = info.Name, strictjson.Plain(args.JSON)
	c.Parallel, c.ChangesGroups = info.Parallel, r.cache.view.ChangesGroups(info.Name)
	if c.Tool == c.Name { // else tc is a call of call_tool, whose arguments contain c.Input
		tc.Input = c.Input
	}
	return c, args.Repaired
}
