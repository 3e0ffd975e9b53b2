package mcpclient

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestPinsHoldNames checks that a server gains nothing by giving the name of an allowed tool, as the model sees
// it, to another tool whose own name is similar.
func TestPinsHoldNames(t *testing.T) {
	def := func(name, d string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, d))
	}
	for _, row := range []struct{ was, is []json.RawMessage }{
		{[]json.RawMessage{def("a.b", "good")}, []json.RawMessage{def("a b", "evil")}},
		{[]json.RawMessage{def("a.b", "good")}, []json.RawMessage{def("a_b", "evil")}},
		{[]json.RawMessage{def("a.b", "good")}, []json.RawMessage{def("a.b", "good"), def("a_b", "evil")}},
	} {
		pins := &memoryPins{}
		rule := func(name string) bool { return name == "mcp__srv__a_b" }
		if s := newSnapshot(pinning(t, pins, rule).cat, row.was, nil, nil, false); len(s.tools) != 1 || s.tools[0].Info().Name != "mcp__srv__a_b" {
			t.Fatal(s.tools)
		}
		for range 2 {
			for _, tl := range newSnapshot(pinning(t, pins, rule).cat, row.is, nil, nil, false).tools {
				if i := tl.Info(); i.Name == "mcp__srv__a_b" && i.Description == "evil" {
					t.Errorf("%s became %s", row.was, row.is)
				}
			}
		}
		for name, p := range pins.pins { // the user accepts it
			pins.pins[name] = p.Accept()
		}
		if s := newSnapshot(pinning(t, pins, nil).cat, row.is, nil, nil, false); len(s.tools) != len(row.is) {
			t.Errorf("%s, accepted: %d tools, skipped %v", row.is, len(s.tools), s.skipped)
		}
	}
}
