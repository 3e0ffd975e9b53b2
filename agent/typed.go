package agent

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/kitbag-go/kitbag/tool"
)

// finalName is the tool with which a model gives an answer of a given type.
const finalName = "final_answer"

const (
	finalDescription = "Gives your final answer. Call it once, alone, when you are done; nothing you say after it is read."
	hintFinal        = "Your answer was not a call of " + finalName + ", so it cannot be used. Give it by calling " + finalName + "."
)

// A finalAnswer is the typed answer that a run must end with.
type finalAnswer struct {
	tool      tool.Tool
	value     json.RawMessage // the valid answer; nil until it arrives
	reminders int             // hints to the model that it must still give the answer
}

// valueArgument has a T that is not a struct as a member, because arguments are an object.
type valueArgument[T any] struct {
	Value T `json:"value"`
}

func isString[T any]() bool { return reflect.TypeFor[T]() == reflect.TypeFor[string]() }

func isStruct[T any]() bool { return reflect.TypeFor[T]().Kind() == reflect.Struct }

func newFinal[T any]() (*finalAnswer, error) {
	if isStruct[T]() {
		return finalOf[T]()
	}
	return finalOf[valueArgument[T]]()
}

func finalOf[In any]() (*finalAnswer, error) {
	t, err := tool.New(finalName, finalDescription,
		func(context.Context, In) (string, error) { return "Done.", nil }, tool.Options{Control: true})
	return &finalAnswer{tool: t}, err
}

func decodeFinal[T any](raw json.RawMessage) (T, error) {
	if isStruct[T]() {
		var v T
		err := json.Unmarshal(raw, &v)
		return v, err
	}
	var w valueArgument[T]
	err := json.Unmarshal(raw, &w)
	return w.Value, err
}
