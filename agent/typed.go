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
	hintFinal        = "Give your answer by calling " + finalName + "."
)

// A final is the typed answer that a run must end with.
type final struct {
	tool  tool.Tool
	value json.RawMessage // the valid answer; nil until it arrives
	asked int             // how often the model was reminded
}

// wrapped contains a T that is not a struct, because arguments are an object.
type wrapped[T any] struct {
	Value T `json:"value"`
}

func isString[T any]() bool { return reflect.TypeFor[T]() == reflect.TypeFor[string]() }

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
