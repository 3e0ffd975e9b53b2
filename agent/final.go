package agent

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// The tool with which a model gives a typed answer.
const (
	finalName        = "final_answer"
	finalDescription = "Gives your final answer. Call it once, alone, when you are done; nothing you say after it is read."
)

// finalHint reminds a model that has not given the typed answer.
const finalHint = "Your answer was not a call of " + finalName + ", so it cannot be used. Give it by calling " + finalName + "."

// A finalAnswer is the typed answer that a run must end with.
type finalAnswer struct {
	tool      tool.Tool
	value     json.RawMessage // the valid answer; nil until it arrives
	reminders int             // how often remind has sent finalHint
}

// A valueArgument makes arguments, which must be an object, of a T that does not encode to an object.
type valueArgument[T any] struct {
	Value T `json:"value"`
}

func isString[T any]() bool { return reflect.TypeFor[T]() == reflect.TypeFor[string]() }

// encodesToObject reports whether T is a struct that encodes to an object, unlike a time.Time.
func encodesToObject[T any]() bool {
	data, err := json.Marshal(new(T))
	return reflect.TypeFor[T]().Kind() == reflect.Struct && (err != nil || data[0] == '{') // tool.New reports the error
}

func newFinal[T any]() (*finalAnswer, error) {
	if encodesToObject[T]() {
		return newFinalWith[T]()
	}
	return newFinalWith[valueArgument[T]]()
}

// newFinalWith is newFinal for a tool with the arguments In.
func newFinalWith[In any]() (*finalAnswer, error) {
	t, err := tool.New(finalName, finalDescription,
		func(context.Context, In) (string, error) { return "Done.", nil }, tool.Options{Control: true})
	return &finalAnswer{tool: t}, err
}

// decodeFinal returns the answer from the arguments of final_answer.
func decodeFinal[T any](raw json.RawMessage) (T, error) {
	if encodesToObject[T]() {
		var v T
		err := json.Unmarshal(raw, &v)
		return v, err
	}
	var arg valueArgument[T]
	err := json.Unmarshal(raw, &arg)
	return arg.Value, err
}

// finalCall returns the call of final_answer that the conversation ends with, nil if there is none.
func (st *State) finalCall() *message.ToolCall {
	n := len(st.Messages)
	if len(st.loop.Open) > 0 || n < 2 {
		return nil
	}
	for i, res := range st.Messages[n-1].ToolResults() { // in the order of the calls
		if res.Name == finalName && res.Outcome == message.OutcomeSuccess {
			return st.Messages[n-2].ToolCalls()[i]
		}
	}
	return nil
}

// reuseFinal sets the typed answer if the conversation already has it.
func (r *run) reuseFinal() {
	c := r.st.finalCall()
	if r.final == nil || c == nil {
		return
	}
	if args, err := tool.Arguments(r.final.tool, c.Input); err == nil { // it fails if the answer is of another type
		r.final.value = args.JSON
	}
}

const maxReminders = 3 // after the second, requests force the call of final_answer

// remind asks again for the typed answer after the model has answered without it.
func (r *run) remind() error {
	if r.final.reminders++; r.final.reminders > maxReminders {
		return errors.New("the model did not call " + finalName + ", although the request required it")
	}
	return r.addHint(finalHint)
}

// acceptFinal accepts the call of final_answer in an answer at a limit, or keeps the text if there is no such call. Other
// calls may not run at a limit, and a call without a result cannot be stored.
func (r *run) acceptFinal(mc *modelCall) error {
	i := slices.IndexFunc(mc.calls, func(c partialCall) bool { return c.call.Name == finalName })
	if i < 0 {
		return r.keepText(mc.msg, string(mc.finishReason()))
	}
	mc.calls = mc.calls[i : i+1]
	mc.msg.Blocks = message.Blocks{mc.calls[0].call}
	return r.accept(mc)
}

// lastAnswer asks for a last answer without tools, and keeps it unless it is empty. If the model call fails, the run
// ends because of the limit anyway, and the event.End reports the limit and the error.
func (r *run) lastAnswer(limit string) error {
	if err := join(r.awaitBackground(), r.addBackgroundResults()); err != nil {
		return err
	}
	r.st.loop.Spent.Stopped = limit
	hint := "Summarize what you have found and what is left to do, without calling a tool."
	if r.final != nil {
		hint = finalHint
	}
	if err := r.addHint("This is your last answer: " + limit + " was reached. " + hint); err != nil {
		return err
	}
	if left, limited := r.timeLeft(); limited && left <= 0 {
		r.cancelCallsAfter(r.limits().LastAnswerTime())
	}
	r.dialog.lastAnswer = true
	defer func() { r.dialog.lastAnswer = false }()
	mc := &modelCall{msg: new(message.Message)} // no answer, if there is an error before the model call
	v, err := r.currentView()
	if err == nil {
		err = r.fitWindow(v)
	}
	for err == nil {
		if mc, err = r.generate(); !r.isRepairable(err) {
			break
		}
		err = r.repairConversation(v, err)
	}
	if err == nil {
		r.answerErr = nil
		if r.final != nil {
			return r.acceptFinal(mc)
		}
	} else if !errors.Is(err, errTimeUp) { // when the time is up, exchange has set answerErr
		r.answerErr = err
	}
	return r.keepText(mc.msg, string(mc.finishReason()))
}
