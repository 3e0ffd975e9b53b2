package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
)

// checkInputs refuses inputs that do not fit the state, before any of them has
// an effect: a host that made a mistake can correct it and try again, instead of
// guessing which half of its answers was taken.
func (r *run) checkInputs(inputs []Input) error {
	answered := map[string]bool{}
	waiting, interrupted := len(r.st.Pending()) > 0, false
	for _, in := range inputs {
		var err error
		if interrupted && isAnswer(in) {
			return errors.New("an answer follows an Interrupt, which ends what waits; put answers first")
		}
		if c, inner := r.st.below(in); c != nil {
			if err := r.checkBelow(c, inner, answered); err != nil {
				return err
			}
			continue
		}
		switch in := in.(type) {
		case say:
			if waiting {
				err = fmt.Errorf("%w: %d calls wait; answer them with Confirm or Result, or end them with Interrupt, before saying more",
					ErrWaiting, len(r.st.Pending()))
			} else {
				err = checkSaid(in.msg)
			}
		case Confirm:
			err = r.checkConfirm(in, answered)
		case Result:
			err = r.checkResult(in, answered)
		case Interrupt:
			waiting, interrupted = false, true
		default:
			err = errors.New("nil input")
		}
		if err != nil {
			return err
		}
	}
	if len(inputs) == 0 && len(r.st.Messages) == 0 {
		return errors.New("nothing to do: the conversation is empty; begin with agent.Say")
	}
	return nil
}

func isAnswer(in Input) bool {
	switch in.(type) {
	case Confirm, Result:
		return true
	}
	return false
}

// checkSaid checks a user's message. Model APIs refuse one that says nothing, and
// calls or results in it would be history that never happened.
func checkSaid(m *message.Message) error {
	if len(m.Blocks) == 0 {
		return errors.New("an empty message: say something")
	}
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			if b.Text == "" && len(m.Blocks) == 1 {
				return errors.New("an empty message: say something")
			}
		case *message.Data, *message.Hint:
		default:
			return fmt.Errorf("a user message holds a %T; it may hold text, data and hints", b)
		}
	}
	return nil
}

// checkConfirm checks an answer with all that comes with it. Edited arguments are
// checked here for the host's sake, who learns of a mistake at once; they are judged
// when the call's turn comes.
func (r *run) checkConfirm(in Confirm, answered map[string]bool) error {
	c, err := r.st.loop.Waiting(in.Call, decide.Asking, answered)
	if err != nil {
		return err
	}
	if r.expired(c) {
		return fmt.Errorf("%w: call %q was asked about at %s, and an answer was due within %v; run without inputs to be asked again",
			ErrExpired, c.ID, c.Asked.Format(time.RFC3339), r.cfg.AnswerWithin)
	}
	if err := decide.CheckRules(in.Rules, in.Call, c.Tool); err != nil {
		return err
	}
	if in.Input == nil || !in.Allow {
		return nil
	}
	if redact.Has(string(in.Input)) && !redact.Has(string(c.Input)) {
		return fmt.Errorf("the edited arguments of call %q hold a placeholder for a secret; put the secret there, or leave the arguments as they are", c.ID)
	}
	t, err := r.tool(c)
	if err != nil {
		return err
	}
	if _, err := tool.Arguments(t, in.Input); err != nil {
		return fmt.Errorf("the edited arguments of call %q: %w", c.ID, err)
	}
	return nil
}

// expired reports whether the question about c has stood too long: what the person
// was shown may not be true any more.
func (r *run) expired(c *openCall) bool {
	return c.Expired(r.cfg.AnswerWithin, r.cfg.Now())
}

// due returns the last moment at which a question, of this run or of a
// sub-agent, may be answered. It is zero when there is none.
func (r *run) due(call string) time.Time {
	for _, c := range r.st.loop.Open {
		if c.ID == call && c.Status == decide.Asking && r.cfg.AnswerWithin > 0 {
			return c.Asked.Add(r.cfg.AnswerWithin)
		}
		if inner, ok := strings.CutPrefix(call, c.ID+"/"); ok && c.Status == decide.Nested {
			if sub, err := r.runBelow(c); err == nil {
				return sub.due(inner)
			}
		}
	}
	return time.Time{}
}

// late reports whether the question about a call has expired.
func (r *run) late(call string) bool {
	due := r.due(call)
	return !due.IsZero() && r.cfg.Now().After(due)
}

// checkResult checks what the host delivers. It goes into the history as it is, and
// so must be what a result may hold.
func (r *run) checkResult(in Result, answered map[string]bool) error {
	if _, err := r.st.loop.Waiting(in.Call, decide.External, answered); err != nil {
		return err
	}
	if in.Structured != nil && !json.Valid(in.Structured) {
		return fmt.Errorf("the structured result of call %q is not JSON: %.60q", in.Call, in.Structured)
	}
	for _, b := range in.Blocks {
		switch b.(type) {
		case *message.Text, *message.Data:
		default:
			return fmt.Errorf("the result of call %q holds a %T; it may hold text and data", in.Call, b)
		}
	}
	return nil
}

// apply carries out inputs that were checked. It reports whether the run is to
// end at once.
func (r *run) apply(inputs []Input) (interrupt bool, err error) {
	for _, in := range inputs {
		if c, inner := r.st.below(in); c != nil {
			// The sub-agent takes the answer when it runs again. A rule is for the
			// outer conversation too, whose policy is asked about each of its calls.
			r.people.answers[c.ID] = append(r.people.answers[c.ID], inner)
			if confirm, ok := inner.(Confirm); ok {
				r.addRules(confirm.Rules)
			}
			continue
		}
		switch in := in.(type) {
		case say:
			err = r.addUserMessage(in.msg)
		// Since the check reopen may have ended the call, or its question may have
		// expired, a sub-agent's too: then it is asked about again.
		case Confirm:
			if c := r.st.loop.Find(in.Call); c != nil && c.Status == decide.Asking {
				err = r.confirm(c, in)
			}
		case Result:
			if c := r.st.loop.Find(in.Call); c != nil && c.Status == decide.External {
				err = r.deliver(c, in)
			}
		case Interrupt:
			interrupt = true
			err = r.closeOpen("interrupted by a person")
		}
		if err != nil {
			return interrupt, err
		}
		if _, ok := in.(say); ok {
			interrupt = false // words behind an Interrupt begin something new
		}
	}
	for _, c := range r.st.loop.Open {
		if len(r.people.answers[c.ID]) > 0 {
			r.st.loop.Resume(c)
		}
	}
	return interrupt, nil
}

// addUserMessage takes a user's words. Nothing waits, or they would have been refused: what is open
// was cut off by a crash, and the person has moved on.
func (r *run) addUserMessage(said *message.Message) error {
	if err := r.closeOpen("The program was stopped before this call ran."); err != nil {
		return err
	}
	m := *said
	m.ID, m.Created, m.Blocks = r.cfg.NewID("msg"), r.cfg.Now(), withoutDamaged(m.Blocks)
	r.st.loop.Said(m.Created)
	return r.addMessage(&m, "")
}

// confirm takes a person's answer.
func (r *run) confirm(c *openCall, in Confirm) error {
	r.addRules(in.Rules)
	if !in.Allow {
		return r.record(r.st.loop.Refuse(c, in.Reason))
	}
	var edited json.RawMessage
	if in.Input != nil && !bytes.Equal(in.Input, c.Input) {
		t, err := r.tool(c)
		if err != nil {
			return err
		}
		args, err := tool.Arguments(t, in.Input)
		if err != nil {
			return err
		}
		edited = args.JSON
	}
	r.st.loop.Allow(c, edited)
	return nil
}

// addRules adds rules to the conversation. They outlive this run and are saved, and so say where
// they come from. A call that was allowed and waits may not run by these.
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
	r.shown.policy = nil
}

// deliver takes the result of a call that the host has run. It is clipped like any other: a host
// may return a whole web page.
func (r *run) deliver(c *openCall, in Result) error {
	res := &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: message.OutcomeSuccess,
		Blocks: slices.Clone(in.Blocks), Structured: in.Structured}
	if in.Failed {
		res.Outcome = message.OutcomeError
	}
	return r.finish(c, res)
}
