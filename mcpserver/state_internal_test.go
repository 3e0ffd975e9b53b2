package mcpserver

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestStateIsValues checks that a state can be stored: every field survives encoding.
func TestStateIsValues(t *testing.T) {
	want := state{
		Scope:   new(toolkit.Scope),
		Watched: map[string]bool{"file:///a": true, "file:///b": false},
		Version: "2025-11-25", Capabilities: capabilities{true, true, true, true}, Level: "info",
		Rules: []permission.Rule{{Tool: "Read", Behavior: permission.Allow}},
		Tools: "digest", Visible: visibleItems{"a", "b"},
	}
	want.Scope.SetPhase("review")
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the test does not set %s", v.Type().Field(i).Name)
		}
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got state
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(data) {
		t.Errorf("stored and read again: %s %v\nwant %s", again, err, data)
	}
	if got.Scope.Phase() != "review" || !reflect.DeepEqual(got.Watched, want.Watched) || got.Visible != want.Visible || got.Capabilities != want.Capabilities {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
