package agent

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// finalName is the tool by which a model gives an answer of a given type.
const finalName = "final_answer"

const (
	finalDescription = "Gives your final answer. Call it once, alone, when you are done; nothing you say after it is read."
	hintFinal        = "Give your answer by calling " + finalName + "."
)

// A final is the typed answer that a run is to end with.
type final struct {
	tool  tool.Tool
	value json.RawMessage // the valid answer; nil until it came
	asked int             // how often the model was reminded
}

// ReplyAs is [Agent.Reply] for an answer of type T: the model gives it by
// calling a tool whose argument is a T, checked like every argument, and is
// reminded, then forced, if it does not. T is best a struct with descriptions;
// any type that encodes to JSON will do. Other tools stay usable meanwhile; none
// may be named final_answer. The answer is taken even when no more tool calls are
// allowed.
//
// When the run has to wait for a person, call ReplyAs again with the answers
// and the same T.
func ReplyAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) (T, error) {
	var out T
	f, decode, err := newFinal[T]()
	if err != nil {
		return out, fmt.Errorf("agent.ReplyAs: %w", err)
	}
	end, err := drain(a.start(ctx, st, f, inputs))
	if err != nil {
		return out, err
	}
	if err := end.failure(); err != nil {
		return out, err
	}
	return decode(f.value)
}

// newFinal makes the tool for T. A T that is no struct is wrapped in one.
func newFinal[T any]() (*final, func(json.RawMessage) (T, error), error) {
	f := &final{}
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Struct {
		tl, err := tool.New(finalName, finalDescription, func(context.Context, T) (string, error) { return "Done.", nil }, tool.Options{Control: true})
		f.tool = tl
		return f, func(raw json.RawMessage) (out T, err error) { return out, json.Unmarshal(raw, &out) }, err
	}
	type wrapped struct {
		Value T `json:"value"`
	}
	tl, err := tool.New(finalName, finalDescription, func(context.Context, wrapped) (string, error) { return "Done.", nil }, tool.Options{Control: true})
	f.tool = tl
	return f, func(raw json.RawMessage) (T, error) {
		var w wrapped
		err := json.Unmarshal(raw, &w)
		return w.Value, err
	}, err
}

// resolve finds the tool for a call among those that the model was shown.
func (r *run) resolve(name string, input json.RawMessage) (tool.Tool, json.RawMessage, error) {
	if r.final != nil && name == finalName {
		return r.final.tool, input, nil
	}
	v, err := r.currentView()
	if err != nil {
		return nil, nil, err
	}
	return v.Resolve(r.ctx, name, input)
}

// isFinal reports whether c gives the typed answer that is wanted.
func (r *run) isFinal(c *openCall) bool { return r.final != nil && c.Tool == finalName }

// addFinal puts the tool for the typed answer behind the others.
func (r *run) addFinal(req *model.Request) {
	info := r.final.tool.Info()
	req.Tools = append(req.Tools[:len(req.Tools):len(req.Tools)], info)
	req.Digest += "+" + string(info.Input)
	if r.lastAnswer || r.final.asked > 1 {
		req.Choice = model.ToolChoice{Mode: model.ChoiceNamed, Name: finalName}
	}
}

// remind asks again for a typed answer after the model said something else.
func (r *run) remind() error {
	if r.final.asked++; r.final.asked > 3 {
		return errors.New("the model did not call " + finalName + ", though it was forced to")
	}
	return r.hint(hintFinal)
}

// keepFinal keeps of the last answer at a limit nothing but the typed answer.
func (r *run) keepFinal(ans *answer) error {
	m := *ans.Message
	m.Blocks = nil
	kept := &answer{Message: &m, Finish: ans.Finish}
	for i, c := range ans.Message.ToolCalls() {
		if c.Name == finalName && len(m.Blocks) == 0 {
			m.Blocks, kept.Raw = message.Blocks{c}, []string{ans.Raw[i]}
		}
	}
	if len(m.Blocks) == 0 {
		return r.keepText(ans, string(ans.Finish))
	}
	return r.accept(kept)
}

// failure returns the error for an end that is no answer.
func (e *End) failure() error {
	switch e.Reason {
	case EndCompleted:
		return nil
	case EndWaiting:
		return ErrWaiting
	case EndLimit:
		return fmt.Errorf("%w: %s", ErrLimit, strings.TrimSpace(e.Detail))
	default:
		return ErrInterrupted
	}
}
