package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// maxNested is the maximum depth of nested sub-agents in Decode: the event of a sub-agent is parsed once more for each
// agent around it.
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

// decode decodes an event with at most depth nested sub-agents.
func decode(data []byte, depth int) (Event, error) {
	kind, err := typeOf(data)
	if err != nil {
		return nil, err
	}
	ev := newEvent(kind)
	switch ev := ev.(type) {
	case nil:
		return nil, fmt.Errorf("unknown type %q", kind)
	case *Sub:
		return ev, ev.decode(data, depth)
	}
	return ev, json.Unmarshal(data, ev)
}

// typeOf returns the type of an event. It parses the whole event, which may be long, only if the event does not begin
// with "seq" and "type", as every event does that this package has encoded.
func typeOf(data []byte) (string, error) {
	afterSeq, _ := bytes.CutPrefix(data, []byte(`{"seq":`))
	if rest, ok := bytes.CutPrefix(bytes.TrimLeft(afterSeq, "0123456789"), []byte(`,"type":"`)); ok {
		if kind, _, ok := bytes.Cut(rest, []byte(`"`)); ok {
			return string(kind), nil
		}
	}
	var head struct {
		Type string `json:"type"`
	}
	err := json.Unmarshal(data, &head)
	return head.Type, err
}

// decode decodes s with the event that it contains. encoding/json cannot decode an Event, since it does not know which
// type to create.
func (s *Sub) decode(data []byte, depth int) error {
	if depth == 0 {
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
		return errors.New(`an event of type "sub" needs a member "event"`)
	}
	s.Event, err = decode(in.Event, depth-1)
	return err
}

// types has a nil pointer for each type of event.
var types = []Event{
	(*RunStart)(nil), (*ModelStart)(nil), (*TextDelta)(nil), (*ThinkingDelta)(nil), (*ToolCallDelta)(nil), (*Discard)(nil), (*Retry)(nil),
	(*Message)(nil), (*ToolCall)(nil), (*ToolStart)(nil), (*ToolDelta)(nil), (*ToolResult)(nil), (*Approval)(nil), (*External)(nil),
	(*Elicitation)(nil), (*Sampling)(nil), (*Background)(nil), (*Sub)(nil), (*Compaction)(nil), (*End)(nil),
}

// newEvent returns an empty event of the named type, nil if the type is unknown.
func newEvent(kind string) Event {
	for _, ev := range types {
		if ev.kind() == kind {
			return reflect.New(reflect.TypeOf(ev).Elem()).Interface().(Event)
		}
	}
	return nil
}
