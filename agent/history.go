package agent

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/message"
)

// CheckHistory returns an error for the first violation of the rules of model APIs in a conversation:
//
//   - an assistant message that calls tools is followed by one tool message,
//     with exactly one result for each call, in call order, of the same name;
//   - there are no other tool messages, and no results in other messages;
//   - call ids are unique in the conversation; ids and names are not empty;
//   - arguments are valid JSON objects.
//
// While calls run or wait for an answer, a conversation violates the first rule.
func CheckHistory(msgs []*message.Message) error {
	ids := map[string]bool{}
	var open []*message.ToolCall // calls whose results must come in the next message
	for i, m := range msgs {
		if m == nil {
			return fmt.Errorf("message %d is nil", i)
		}
		if m.Role == message.RoleTool {
			if err := checkResults(m, open); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			open = nil
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: role %s, want a tool message with the results of %d calls", i, m.Role, len(open))
		}
		if len(m.ToolResults()) > 0 {
			return fmt.Errorf("message %d: role %s has tool results", i, m.Role)
		}
		open = m.ToolCalls()
		if len(open) > 0 && m.Role != message.RoleAssistant {
			return fmt.Errorf("message %d: role %s calls tools", i, m.Role)
		}
		for _, c := range open {
			if c.ID == "" || ids[c.ID] {
				return fmt.Errorf("message %d: call id %q is empty or not unique", i, c.ID)
			}
			ids[c.ID] = true
			if c.Name == "" {
				return fmt.Errorf("message %d: call %s has no name", i, c.ID)
			}
			if !isObject(c.Input) {
				return fmt.Errorf("message %d: the arguments of call %s are not a JSON object: %.60q", i, c.ID, c.Input)
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the last message has %d calls without results", len(open))
	}
	return nil
}

func checkResults(m *message.Message, open []*message.ToolCall) error {
	results := m.ToolResults()
	if len(results) != len(m.Blocks) {
		return fmt.Errorf("a tool message has blocks that are not results")
	}
	if len(results) != len(open) || len(open) == 0 {
		return fmt.Errorf("a tool message with %d results follows a message with %d calls", len(results), len(open))
	}
	for i, res := range results {
		if res.ID != open[i].ID || res.Name != open[i].Name {
			return fmt.Errorf("result %d is for call %s (%s), not %s (%s)", i, res.ID, res.Name, open[i].ID, open[i].Name)
		}
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}
