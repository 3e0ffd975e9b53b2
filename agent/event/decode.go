package event

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxNested is how many sub-agents within each other Decode follows: each level costs one more pass
// over all that is below it.
const maxNested = 32

// Decode reads an event that was encoded to JSON, in a file for instance or by a server that sends
// events. An event of a type that this version does not know is an error.
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

// decode reads an event of a sub-agent, and the event in it, which encoding/json cannot: it does not
// know which type to make.
func (s *Sub) decode(data []byte, nested int) error {
	if nested == 0 {
		return fmt.Errorf("more than %d sub-agents within each other", maxNested)
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
