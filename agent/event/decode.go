package event

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxNested is the maximum depth of nested sub-agents in Decode: each level costs one more pass over
// everything below it.
const maxNested = 32

// Decode decodes an event from JSON, for example from a file or from a server that sends events. An unknown
// type is an error.
func Decode(data []byte) (Event, error) {
	ev, err := decode(data, maxNested)
	if err != nil {
		return nil, fmt.Errorf("decode an event: %w", err)
	}
	return ev, nil
}

func decode(data []byte, nested int) (Event, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	ev := newOf(head.Type)
	switch ev := ev.(type) {
	case nil:
		return nil, fmt.Errorf("unknown type %q", head.Type)
	case *Sub:
		return ev, ev.decode(data, nested)
	}
	return ev, json.Unmarshal(data, ev)
}

// decode decodes an event of a sub-agent, and the event in it. encoding/json cannot do that, since it does
// not know which type to create.
func (s *Sub) decode(data []byte, nested int) error {
	if nested == 0 {
		return fmt.Errorf("more than %d nested sub-agents", maxNested)
	}
	in := struct {
		*Header
		Call  *string         `json:"call"`
		Event json.RawMessage `json:"event"`
	}{Header: &s.Header, Call: &s.Call}
	err := json.Unmarshal(data, &in)
	if err != nil {
		return err
	}
	if in.Event == nil {
		return errors.New(`an event of type sub needs a member "event"`)
	}
	s.Event, err = decode(in.Event, nested-1)
	return err
}

// newOf returns an empty event of a type, nil if there is none.
func newOf(kind string) Event {
	switch kind {
	case "run_start":
		return new(RunStart)
	case "model_start":
		return new(ModelStart)
	case "text_delta":
		return new(TextDelta)
	case "thinking_delta":
		return new(ThinkingDelta)
	case "tool_call_delta":
		return new(ToolCallDelta)
	case "discard":
		return new(Discard)
	case "retry":
		return new(Retry)
	case "message":
		return new(Message)
	case "tool_call":
		return new(ToolCall)
	case "tool_start":
		return new(ToolStart)
	case "tool_delta":
		return new(ToolDelta)
	case "tool_result":
		return new(ToolResult)
	case "approval":
		return new(Approval)
	case "external":
		return new(External)
	case "elicitation":
		return new(Elicitation)
	case "sampling":
		return new(Sampling)
	case "background":
		return new(Background)
	case "sub":
		return new(Sub)
	case "compaction":
		return new(Compaction)
	case "end":
		return new(End)
	}
	return nil
}
