package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// What the model is told when its last answer is of no use.
const (
	hintEmpty  = "Your last answer was empty. Answer the user, or call a tool."
	hintLoop   = "You have made the same calls %d times and had the same results. Do something else, or say what stops you."
	hintCutOff = "Your last answer was cut off by a lost connection. Go on from where it stopped, without repeating it."
)

// maxMends is how often one question is asked again because the answer was
// empty or broke off, before the run ends with an error.
const maxMends = 2

// answer is what came of one model call.
type answer struct {
	Message *message.Message   `json:"message"`
	Raw     []rawArgs          `json:"raw,omitempty"` // the arguments of its calls, as the model sent them
	Finish  model.FinishReason `json:"finish"`
	Broken  *model.Error       `json:"broken,omitempty"` // why there is no more of it, in a record
}

// rawArgs are what a model sent as the arguments of a call. They may be no JSON at
// all, and are a string in a record.
type rawArgs json.RawMessage

func (a rawArgs) MarshalJSON() ([]byte, error) { return json.Marshal(string(a)) }

func (a *rawArgs) UnmarshalJSON(data []byte) error {
	var s string
	err := json.Unmarshal(data, &s)
	*a = rawArgs(s)
	return err
}

// ask makes one model call and adds the answer to the conversation. What must be
// told to the model before, such as a warning or what ended in the background, goes
// to the end of the history: a changed beginning costs the provider's cache of all
// that follows.
func (r *run) ask() error {
	if err := r.land(false); err != nil {
		return err
	}
	r.st.spent.Steps++
	if n := repeats(r.st.Messages); n >= loopWarn && n%loopWarn == 0 {
		if err := r.hint(fmt.Sprintf(hintLoop, n)); err != nil {
			return err
		}
	}
	r.view = nil
	v, err := r.currentView()
	if err == nil {
		err = r.fit(v)
	}
	if err != nil {
		return err
	}
	for mends := 0; ; mends++ {
		ans, err := r.generate()
		if err != nil && r.ctx.Err() != nil {
			return r.keepText(ans, "interrupted")
		}
		switch {
		case r.isRefused(err):
			err = r.relieve(v, err)
			mends-- // no answer was of no use
		case err == nil && !isEmpty(ans.Message):
			return r.accept(ans)
		case err == nil && mends == maxMends:
			return fmt.Errorf("the model returned %d empty answers in a row (finish reason %q)", mends+1, ans.Finish)
		case err == nil:
			err = r.hint(hintEmpty)
		default:
			err = r.mend(ans, err, mends < maxMends)
		}
		if err != nil {
			return err
		}
	}
}

// mend prepares for asking again after an answer broke off. It returns the
// error if that is of no use: nothing had come (then the call was tried often
// enough), the cause will not go away, or again is false.
func (r *run) mend(ans *answer, err error, again bool) error {
	if len(ans.Message.Blocks) == 0 {
		return err
	}
	shown := ans.Message.Text() != ""
	if shown {
		if err := r.keepText(ans, "cut off"); err != nil {
			return err
		}
	} else {
		r.emit(&Discard{Message: ans.Message.ID, Error: err.Error()})
	}
	if !again || !retryable(err) {
		return err
	}
	if shown {
		return r.hint(hintCutOff)
	}
	return nil
}

// isTooLong reports whether a server has found that the request does not fit, which
// it knows better than any estimate.
func isTooLong(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && e.Kind == model.ErrContextTooLong
}

// retryable reports whether the cause of err may go away by itself. An error that is
// not a model's is a fault of the program, and asking again would hide it.
func retryable(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && e.Retryable()
}

// isEmpty reports whether m neither says anything nor calls a tool. Reasoning does
// not count: nobody would read an answer.
func isEmpty(m *message.Message) bool {
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			if strings.TrimSpace(b.Text) != "" {
				return false
			}
		case *message.Thinking:
		default:
			return false
		}
	}
	return true
}

// keepText stores what was shown of an answer that broke off. Its tool calls
// are dropped: nobody knows whether they were whole.
func (r *run) keepText(ans *answer, why string) error {
	m := *ans.Message
	m.Blocks = nil
	for _, b := range ans.Message.Blocks {
		if _, ok := b.(*message.ToolCall); !ok {
			m.Blocks = append(m.Blocks, b)
		}
	}
	if isEmpty(&m) {
		return nil
	}
	return r.addMessage(&m, why)
}

// hint tells the model something in the program's name.
func (r *run) hint(text string) error {
	return r.addMessage(r.hintMessage("agent", text), "")
}

func (r *run) hintMessage(source, text string) *message.Message {
	return &message.Message{ID: r.cfg.NewID("msg"), Role: message.RoleUser, Created: r.cfg.Now(),
		Blocks: message.Blocks{&message.Hint{Source: source, Text: text}}}
}

// request returns the next request of the conversation. The messages are a slice of
// its own capacity, so that whoever appends to them, a middleware for instance, does
// not write into the State.
func (r *run) request(v *toolkit.View) *model.Request {
	req := &model.Request{
		System:   r.system(v.Prompt()),
		Messages: r.st.Messages[:len(r.st.Messages):len(r.st.Messages)],
		Tools:    v.Tools(),
		Digest:   v.Digest(),
		Choice:   r.choice(),
	}
	if r.a.background != nil {
		req.Tools = append(req.Tools[:len(req.Tools):len(req.Tools)], r.a.background.Info())
		req.Digest += "+" + backgroundName
	}
	if r.final != nil {
		r.addFinal(req)
	}
	return req
}

// system joins the agent's instructions and what the toolkit has to say. Neither
// changes from step to step, unless a Middleware.Instructions makes it.
func (r *run) system(prompt string) string {
	own := r.a.instructions(r.ctx)
	if own == "" || prompt == "" {
		return own + prompt
	}
	return own + "\n\n" + prompt
}

func (r *run) newAnswer() *message.Message {
	return &message.Message{ID: r.cfg.NewID("msg"), Role: message.RoleAssistant, Created: r.cfg.Now()}
}

// generate makes the next model call. The answer is never nil: with an error it
// holds what came before it.
func (r *run) generate() (*answer, error) {
	m := r.newAnswer()
	v, err := r.currentView()
	if err != nil {
		return &answer{Message: m}, err
	}
	start := &ModelStart{Message: m.ID, Step: r.st.spent.Steps, Tools: len(v.Tools()), Digest: v.Digest()}
	if n, ok := model.As[model.Named](r.a.model); ok {
		start.Model = n.Name()
	}
	r.emit(start)
	ans, err := r.exchange(r.request(v), &intake{run: r, msg: m, early: r.newEarly(m.ID)})
	if err != nil {
		r.dropEarly()
	}
	return ans, err
}

// exchange makes a model call and learns from what it cost.
func (r *run) exchange(req *model.Request, in *intake) (*answer, error) {
	estimated := window.Fixed(req.System, req.Tools) + r.gauge().Count(r.st.Messages).Tokens
	ans, err := r.exchangeOnce(req, in)
	if err == nil {
		r.learn(estimated, ans.Message.Usage)
	}
	return ans, err
}

// exchangeOnce makes a model call through Config.Step. What a replayed one does
// not do, such as take in deltas, must not change what comes after it.
//
// A failure that the run does something about is a record, too: else a replay would
// ask the model where the run has gone on with half an answer, or a shorter
// conversation. Any other is the engine's to try again, and nothing was shown of it.
func (r *run) exchangeOnce(req *model.Request, in *intake) (*answer, error) {
	if r.cfg.Step == nil {
		return r.exchangeNow(r.ctx, req, in)
	}
	id := r.st.run + "/" + in.msg.ID
	ans := &answer{Message: in.msg}
	raw, err := r.cfg.Step(r.ctx, id, func(ctx context.Context) (json.RawMessage, error) {
		var err error
		ans, err = r.exchangeNow(ctx, req, in)
		if err != nil {
			if r.ctx.Err() != nil || ctx.Err() != nil || len(ans.Message.Blocks) == 0 && !r.isRefused(err) {
				return nil, err
			}
			ans.Broken = recordable(err)
		}
		return json.Marshal(ans)
	})
	if err != nil {
		return ans, err
	}
	return replayed(id, raw)
}

// recordable returns err as a record can hold it, without its cause.
func recordable(err error) *model.Error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return &model.Error{Kind: model.ErrUnknown, Message: err.Error()}
	}
	cp := *e
	cp.Err = nil
	return &cp
}

// replayed returns the answer, or what came of it and why no more, that the record
// of a step holds.
func replayed(id string, raw json.RawMessage) (*answer, error) {
	ans := new(answer)
	err := json.Unmarshal(raw, ans)
	switch {
	case err != nil:
	case ans.Message == nil || len(ans.Message.ToolCalls()) != len(ans.Raw):
		err = errors.New("it is no answer of a model; was it recorded by another version of kitbag?")
	case ans.Broken != nil:
		return ans, ans.Broken
	default:
		return ans, nil
	}
	return &answer{Message: new(message.Message)}, fmt.Errorf("the record of step %s: %w", id, err)
}

// exchangeNow asks the model and joins the deltas into a message, telling of
// each.
func (r *run) exchangeNow(ctx context.Context, req *model.Request, in *intake) (*answer, error) {
	if r.retried == nil {
		retry := r.cfg.Retry
		retry.OnRetry = func(attempt int, wait time.Duration, err error) {
			r.emit(&Retry{Attempt: attempt, Wait: wait, Error: err.Error()})
			if told := r.cfg.Retry.OnRetry; told != nil {
				told(attempt, wait, err)
			}
		}
		r.retried = model.Retry(r.a.model, retry)
	}
	// Called instead of ranged over: the body of a loop would be four allocations.
	in.finish, in.err = nil, nil
	r.retried.Generate(ctx, req)(in.take)
	if in.err != nil {
		return in.answer(""), in.err
	}
	finish := in.finish
	if finish == nil {
		if err := ctx.Err(); err != nil {
			return in.answer(""), err
		}
		return in.answer(""), &model.Error{Kind: model.ErrUpstream, Message: "the answer ended without a finish"}
	}
	in.msg.Model, in.msg.Usage = finish.Model, &finish.Usage
	return in.answer(finish.Reason), nil
}

// accept adds a whole answer to the conversation and opens its calls. Calls that
// cannot run have their results before the answer is stored, so that no crash in
// between can make a bad call look like one that was cut off.
func (r *run) accept(ans *answer) error {
	m := ans.Message
	r.spend(m)
	var told, ended []Event
	open := slices.Grow([]*openCall(nil), len(ans.Raw))
	var opening []string // groups, by calls of this answer
	for i, tc := range m.ToolCalls() {
		v, err := r.currentView()
		if err != nil {
			return err
		}
		opening = append(opening, v.Opens(tc.Name, json.RawMessage(ans.Raw[i]))...)
	}
	for _, b := range m.Blocks {
		tc, ok := b.(*message.ToolCall)
		if !ok {
			continue
		}
		i := len(open)
		raw := json.RawMessage(ans.Raw[i])
		c, repaired := r.open(tc, raw, opening...)
		if ans.Finish == model.FinishLength && i == len(ans.Raw)-1 && !isObject(raw) && c.Status != statusDone {
			// A bare value may be the beginning of a longer one: "/tmp/a" of
			// "/tmp/a/b". What was meant is not known, so nothing runs.
			c.Status, c.Result = statusDone, failed(c, message.OutcomeError,
				"Not run: your answer was cut off by the limit on its length, and the arguments with it. Make a shorter call.")
		}
		if !r.takeCall() && c.Status == statusNew && !r.isFinal(c) {
			c.Status, c.Result = statusDone, failed(c, message.OutcomeError, "Not run: "+r.sharedLimit()+" was reached.")
		}
		r.callIDs[tc.ID] = true // which the answer of a replayed step is not yet in
		open = append(open, c)
		told = append(told, &ToolCall{Message: m.ID, Call: tc.ID, Name: tc.Name, Input: tc.Input, Repaired: repaired})
		if c.Status == statusDone {
			ended = append(ended, c.resultEvent())
		}
	}
	r.st.open = open
	r.matchEarly(ans.Raw)
	return r.addMessage(m, string(ans.Finish), append(told, ended...)...)
}

// open makes the open call of what the model sent, and puts valid arguments
// into tc. A call that cannot run has its result already. Opening are the groups that
// the answer opens.
func (r *run) open(tc *message.ToolCall, raw json.RawMessage, opening ...string) (*openCall, []string) {
	if tc.Name == "" {
		tc.Name = "unnamed" // APIs refuse a call without a name
	}
	c := &openCall{ID: tc.ID, Name: tc.Name, Tool: tc.Name, Status: statusNew}
	tc.Input = json.RawMessage("{}")
	if isObject(raw) {
		tc.Input = raw
	}
	bad := func(err error) (*openCall, []string) {
		c.Status, c.Result = statusDone, failed(c, message.OutcomeError, err.Error())
		return c, nil
	}
	t, inner, err := r.resolve(tc.Name, raw, opening...)
	if err != nil {
		return bad(err)
	}
	args, err := tool.Arguments(t, inner)
	if err != nil {
		return bad(err)
	}
	info := t.Info()
	c.Tool, c.Input = info.Name, args.JSON
	c.Parallel, c.Late = info.Parallel, r.view.Late(info.Name)
	if c.Tool == c.Name {
		tc.Input = args.JSON
	}
	return c, args.Repaired
}
