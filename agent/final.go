package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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
// and the same T. [StreamAs] shows the answer while it comes.
func ReplyAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) (T, error) {
	return replyAs[T](ctx, a, st, inputs, func(*ToolCallDelta) bool { return true })
}

// StreamAs is [ReplyAs] that shows the answer while it comes. It yields values
// of T decoded from what has come: the text of strings grows, and a number, or a
// field, is there when it has ended. These values are not checked, and one may
// hold less than the one before where the model begins its answer anew. The last
// value, after which the sequence ends without an error, is the answer, checked.
//
// Once an answer is longer than a few kilobytes a value is yielded only when it
// has grown by a sixteenth, so that the cost stays in proportion. The sequence
// may be ranged once; breaking off cancels the run.
func StreamAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var p partial
		gone := false
		answer, err := replyAs[T](ctx, a, st, inputs, func(ev *ToolCallDelta) bool {
			var v T
			isNew := p.add(ev, func(raw json.RawMessage) (err error) {
				v, err = decodeFinal[T](raw)
				return err
			})
			gone = isNew && !yield(v, nil)
			return !gone
		})
		if !gone {
			yield(answer, err)
		}
	}
}

// replyAs runs to the typed answer. show is told of the pieces of calls as they
// come, and returns false to break off.
func replyAs[T any](ctx context.Context, a *Agent, st *State, inputs []Input, show func(*ToolCallDelta) bool) (T, error) {
	var none T
	f, err := newFinal[T]()
	if err != nil {
		return none, fmt.Errorf("agent: an answer of type %T: %w", none, err)
	}
	end, err := drain(func(yield func(Event, error) bool) {
		for ev, err := range a.start(ctx, st, f, inputs) {
			if delta, ok := ev.(*ToolCallDelta); ok && !show(delta) || !yield(ev, err) {
				return
			}
		}
	})
	if err == nil {
		err = end.failure(ctx)
	}
	if err != nil {
		return none, err
	}
	return decodeFinal[T](f.value)
}

// wrapped is a T that is no struct: arguments are an object.
type wrapped[T any] struct {
	Value T `json:"value"`
}

func isStruct[T any]() bool { return reflect.TypeFor[T]().Kind() == reflect.Struct }

// newFinal makes the tool for T.
func newFinal[T any]() (*final, error) {
	if isStruct[T]() {
		return finalOf[T]()
	}
	return finalOf[wrapped[T]]()
}

func finalOf[In any]() (*final, error) {
	t, err := tool.New(finalName, finalDescription,
		func(context.Context, In) (string, error) { return "Done.", nil }, tool.Options{Control: true})
	return &final{tool: t}, err
}

func decodeFinal[T any](raw json.RawMessage) (T, error) {
	if isStruct[T]() {
		var v T
		err := json.Unmarshal(raw, &v)
		return v, err
	}
	var w wrapped[T]
	err := json.Unmarshal(raw, &w)
	return w.Value, err
}

// resolve finds the tool for a call among those that the model was shown.
// Opening are groups that its answer opens.
func (r *run) resolve(name string, input json.RawMessage, opening ...string) (tool.Tool, json.RawMessage, error) {
	if r.final != nil && name == finalName {
		return r.final.tool, input, nil
	}
	if r.a.background != nil && name == backgroundName {
		return r.a.background, input, nil
	}
	v, err := r.currentView()
	if err != nil {
		return nil, nil, err
	}
	return v.Resolve(r.ctx, name, input, opening...)
}

// isFinal reports whether c gives the typed answer that is wanted.
func (r *run) isFinal(c *openCall) bool { return r.final != nil && c.Tool == finalName }

// addFinal puts the tool for the typed answer behind the others.
func (r *run) addFinal(req *model.Request) {
	info := r.final.tool.Info()
	req.Tools = append(req.Tools[:len(req.Tools):len(req.Tools)], info)
	req.Digest += "+" + string(info.Input) // another T is another list of tools
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

// keepFinal keeps of the last answer at a limit nothing but the typed answer: no
// other call may run any more, and one that is stored must have a result.
func (r *run) keepFinal(ans *answer) error {
	m := *ans.Message
	m.Blocks = nil
	kept := &answer{Message: &m, Finish: ans.Finish}
	for i, c := range ans.Message.ToolCalls() {
		if c.Name == finalName && len(m.Blocks) == 0 {
			m.Blocks, kept.Raw = message.Blocks{c}, []rawArgs{ans.Raw[i]}
		}
	}
	if len(m.Blocks) == 0 {
		return r.keepText(ans, string(ans.Finish))
	}
	return r.accept(kept)
}

// failure returns the error for an end that is no answer, of a run with the context.
func (e *End) failure(ctx context.Context) error {
	switch e.Reason {
	case EndCompleted:
		return nil
	case EndWaiting:
		return fmt.Errorf("%w: calls wait, which State.Pending lists; answer them with Confirm or Result, "+
			"or have Config.Approve or a rule of Config.Policy answer", ErrWaiting)
	case EndLimit:
		return fmt.Errorf("%w: %s", ErrLimit, strings.TrimSpace(e.Detail))
	default:
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("%w: %w", ErrInterrupted, cause)
		}
		return ErrInterrupted
	}
}
