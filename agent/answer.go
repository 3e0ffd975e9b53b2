package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/internal/denial"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
)

// checkInputs rejects inputs that do not fit the state, before any of them has an effect, so that a host that
// made a mistake can correct it and try again.
func (r *run) checkInputs(inputs []Input) error {
	var answered []string // ids of calls
	afterInterrupt := false
	for i, in := range inputs {
		if err := checkKind(i, in); err != nil {
			return err
		}
		if call, want := answeredCall(in); want != "" {
			if afterInterrupt {
				return errors.New("answer follows Interrupt; put answers first")
			}
			if err := r.checkAnswer(in); err != nil {
				return err
			}
			if slices.Contains(answered, call) {
				return fmt.Errorf("call %q is answered twice; give one answer", call)
			}
			answered = append(answered, call)
		}
		switch in := in.(type) {
		case say:
			if !afterInterrupt && len(r.st.Pending()) > 0 {
				return r.st.waiting("answer with Confirm or Result, or end the calls with Interrupt, before saying more")
			}
			if err := checkSaid(in.msg); err != nil {
				return err
			}
		case Interrupt:
			afterInterrupt = true
		case Compact:
			if !afterInterrupt && len(r.st.Pending()) > 0 {
				return r.st.waiting("answer with Confirm or Result, or end the calls with Interrupt, before compacting")
			}
		}
	}
	if len(r.st.Messages) == 0 && !slices.ContainsFunc(inputs, func(in Input) bool { return !isCompact(in) }) {
		return errors.New("nothing to do: the conversation is empty; start with agent.Say")
	}
	return nil
}

// checkAnswer checks an answer to a call of this run or of a sub-agent, against the state of the one that made the call.
func (r *run) checkAnswer(in Input) error {
	call, want := answeredCall(in)
	owner, id, err := r.locate(call)
	if err != nil {
		return err
	}
	c, err := owner.st.loop.Waiting(id, want)
	if err != nil {
		return err
	}
	if in, ok := in.(event.Confirm); ok {
		return owner.checkConfirm(c, in)
	}
	return checkResult(in.(event.Result))
}

// checkSaid checks a user's message. Model APIs reject an empty message, and
// calls or results in it would be forged history.
func checkSaid(m *message.Message) error {
	if len(m.Blocks) == 0 {
		return errors.New("the message is empty; give agent.Say a text or a file")
	}
	for _, b := range m.Blocks {
		text, isText := b.(*message.Text)
		hint, isHint := b.(*message.Hint)
		switch {
		case !isTextOrData(b) && (!isHint || hint == nil):
			return fmt.Errorf("a user message contains a %T; only text, data and hints are allowed, and not nil", b)
		case isText && text.Text == "" && len(m.Blocks) == 1:
			return errors.New("the message is empty; give agent.Say a text or a file")
		}
	}
	return nil
}

// isTextOrData reports whether b is one of these and not a nil pointer.
func isTextOrData(b message.Block) bool {
	switch b := b.(type) {
	case *message.Text:
		return b != nil
	case *message.Data:
		return b != nil
	}
	return false
}

// checkConfirm checks the answer to the question about c, with its rules and edited arguments. Whether the policy
// allows those arguments is decided when the call's turn comes.
func (r *run) checkConfirm(c *openCall, in event.Confirm) error {
	if r.expired(c) {
		return fmt.Errorf("%w: approval of call %q was requested at %s and expired after %v; run without inputs to be asked again",
			ErrExpired, c.ID, c.Asked.Format(time.RFC3339), r.cfg.AnswerWithin)
	}
	if in.Question != 0 && in.Question != c.Question {
		return fmt.Errorf("%w: the answer for call %q is to an earlier question; answer the current one", ErrNotWaiting, c.ID)
	}
	if err := decide.CheckRules(in.Rules, in.Call, c.Tool); err != nil {
		return err
	}
	_, err := r.editedInput(c, in)
	return err
}

// editedInput returns the arguments as the user edited them, validated by [tool.Arguments]; nil if they are unchanged.
func (r *run) editedInput(c *openCall, in event.Confirm) (json.RawMessage, error) {
	if in.Input == nil || !in.Allow || bytes.Equal(in.Input, c.Input) {
		return nil, nil
	}
	if redact.Has(string(in.Input)) && !redact.Has(string(c.Input)) {
		return nil, fmt.Errorf("the edited arguments of call %q contain a placeholder for a secret; insert the secret, or do not edit them", c.ID)
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, err
	}
	args, err := tool.Arguments(t, in.Input)
	if err != nil {
		return nil, fmt.Errorf("the edited arguments of call %q: %w", c.ID, err)
	}
	return args.JSON, nil
}

// expired reports whether the question about c, a call of this run, may no longer be answered: the preview that the
// user was shown may be outdated. For calls of sub-agents see tooLate.
func (r *run) expired(c *openCall) bool { return c.Expired(r.cfg.AnswerWithin, r.cfg.Now()) }

// answerDeadline returns the last moment at which the question about a call, of this run or of a sub-agent, may be
// answered; the zero time if the question does not expire. It fails if the sub-agent no longer exists.
func (r *run) answerDeadline(call string) (time.Time, error) {
	owner, id, err := r.locate(call)
	if err != nil {
		return time.Time{}, err
	}
	if c := owner.st.loop.Find(id); c != nil && c.Status == decide.Asking && owner.cfg.AnswerWithin > 0 {
		return c.Asked.Add(owner.cfg.AnswerWithin), nil
	}
	return time.Time{}, nil
}

// tooLate reports whether an answer about a call, of this run or of a sub-agent, would be refused now.
func (r *run) tooLate(call string) bool {
	deadline, err := r.answerDeadline(call)
	return err != nil || !deadline.IsZero() && r.cfg.Now().After(deadline)
}

// checkResult checks a result from the host, which enters the history unchanged.
func checkResult(in event.Result) error {
	if in.Structured != nil && !json.Valid(in.Structured) {
		return fmt.Errorf("the structured result of call %q is not valid JSON: %.60q", in.Call, in.Structured)
	}
	for _, b := range in.Blocks {
		if !isTextOrData(b) {
			return fmt.Errorf("the result of call %q contains a %T; only text and data are allowed, and not nil", in.Call, b)
		}
	}
	return nil
}

// apply applies checked inputs. It reports whether the run should end at once.
func (r *run) apply(inputs []Input) (interrupt bool, err error) {
	for _, in := range inputs {
		switch in := in.(type) {
		case say:
			interrupt = false // a message after an Interrupt starts a new turn
			err = r.addUserMessage(in)
		case Interrupt:
			interrupt = true
			if err = r.closeOpen("interrupted by the user"); err == nil {
				r.consume(in)
			}
		case Compact: // begin compacts after apply
			r.consume(in)
			r.st.loop.NewInput(r.cfg.Now())
		default:
			err = r.applyAnswer(in)
		}
		if err != nil {
			return interrupt, err
		}
	}
	for _, c := range r.st.loop.Open {
		if len(r.questions.answers[c.ID]) > 0 { // c is a sub-agent that has got answers
			r.st.loop.Resume(c)
		}
	}
	return interrupt, nil
}

// applyAnswer applies an answer to a call. An answer to a sub-agent's call is kept until the sub-agent runs again; its
// rules also apply to the outer conversation, whose policy judges each call of the sub-agent.
func (r *run) applyAnswer(in Input) error {
	call, want := answeredCall(in)
	if c, inner := r.st.outerCall(call); c != nil {
		switch v := in.(type) {
		case event.Confirm:
			v.Call = inner
			in = v
			r.addRules(v.Rules)
		case event.Result:
			v.Call = inner
			in = v
		}
		r.questions.answers[c.ID] = append(r.questions.answers[c.ID], in)
		return nil
	}
	r.consume(in)
	c, err := r.st.loop.Waiting(call, want)
	if err != nil { // since checkInputs, reopen has ended the call or its question has expired: the answer has no effect
		return nil
	}
	if confirm, ok := in.(event.Confirm); ok {
		return r.applyConfirm(c, confirm)
	}
	given := in.(event.Result)
	res := &message.ToolResult{Outcome: message.OutcomeSuccess, Blocks: slices.Clone(given.Blocks), Structured: given.Structured}
	if given.Failed {
		res.Outcome = message.OutcomeError
	}
	return r.recordResult(c, res)
}

// addUserMessage adds a user's message. A call that is still open was interrupted by a crash: if it waited for an
// answer, checkInputs would have rejected the message.
func (r *run) addUserMessage(in say) error {
	if err := r.closeOpen("The program was stopped before this call ran."); err != nil {
		return err
	}
	r.consume(in)
	m := *in.msg
	m.ID, m.Created, m.Blocks = cmp.Or(in.id, r.cfg.NewID("msg")), r.cfg.Now(), withoutDamaged(m.Blocks)
	r.st.loop.NewInput(m.Created)
	return r.addMessage(&m, "")
}

func (r *run) applyConfirm(c *openCall, in event.Confirm) error {
	by := cmp.Or(in.By, "the user")
	r.addRules(in.Rules)
	if !in.Allow {
		r.st.loop.Refuse(c, denial.Refused(c.Tool, in.Reason))
		ev := newToolResult(c)
		ev.By = by
		return r.store(ev)
	}
	edited, err := r.editedInput(c, in)
	if err == nil {
		r.st.loop.Allow(c, by, edited)
	}
	return err
}

// addRules adds rules to the conversation; a rule without a Source gets "session". Calls that were
// allowed but have not started are judged again by the new rules.
func (r *run) addRules(rules []permission.Rule) {
	for _, rule := range rules {
		if rule.Source == "" {
			rule.Source = "session"
		}
		if !slices.Contains(r.st.Rules, rule) {
			r.st.Rules = append(r.st.Rules, rule)
			r.st.loop.JudgeAgain()
		}
	}
	r.cache.policy = nil
}
