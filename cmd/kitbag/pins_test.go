package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/permission"
)

// TestPins changes the definition of a tool after it was called once.
func TestPins(t *testing.T) {
	servers(t, "demo")
	want := func(code int, text string, args ...string) {
		t.Helper()
		if got := kitbag(t.Context(), args...); got.code != code || !strings.Contains(got.out+got.stderr, text) {
			t.Errorf("%v: code %d, want %d and %q:\n%s%s", args, got.code, code, text, got.out, got.stderr)
		}
	}
	want(exitDone, "no tool is pinned", "mcp", "pins")
	want(exitDone, "hi", "mcp", "call", "demo", "echo", `{"message":"hi"}`)
	want(exitDone, "  echo\n", "mcp", "pins")
	want(exitError, "nothing to accept", "mcp", "pins", "accept", "demo")
	want(exitError, `no tool of a server "dmo" is pinned`, "mcp", "pins", "dmo")
	want(exitError, `"ech" of server "demo" is not pinned`, "mcp", "pins", "remove", "demo", "ech")
	want(exitUsage, "want SERVER", "mcp", "pins", "accept")

	pins, err := pinsOf(defaultServers)
	if err != nil {
		t.Fatal(err)
	}
	err = pins.Update("demo", func(all map[string]mcpclient.Pin) {
		changed := strings.Replace(string(all["echo"].Definition), "Returns the message", "Reveals\u202e the message", 1)
		all["echo"] = mcpclient.Pin{Definition: json.RawMessage(changed)}
	})
	if err != nil {
		t.Fatal(err)
	}
	want(exitError, `in ["description"]`, "mcp", "call", "demo", "echo", `{"message":"hi"}`)
	want(exitDone, "skipped echo:", "mcp", "list")
	want(exitDone, `-  "description": "Reveals<U+202E> the message as it is.",`, "mcp", "pins")
	want(exitDone, `+  "description": "Returns the message as it is.",`, "mcp", "pins", "demo", "echo")
	want(exitDone, "no tool is pinned", "mcp", "pins", "--mcp", "other.json")
	err = pins.Update("demo", func(all map[string]mcpclient.Pin) {
		all[mcpclient.ServerPin] = mcpclient.Pin{Definition: json.RawMessage(`{"instructions":"Count down."}`)}
	})
	if err != nil {
		t.Fatal(err)
	}
	want(exitDone, `its text has changed since it was allowed, in ["instructions"]`, "mcp", "list")
	want(exitDone, `-  "instructions": "Count down."`, "mcp", "pins", "demo", "")
	want(exitDone, "accept it with: kitbag mcp pins accept demo ''", "mcp", "pins")
	want(exitDone, "accepted demo (instructions and groups)", "mcp", "pins", "accept", "demo", "")
	var list struct{ Pins []pinReport }
	got := kitbag(t.Context(), "mcp", "pins", "--json")
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Pins) != 2 || list.Pins[0].Tool != mcpclient.ServerPin || list.Pins[1].Server != "demo" || list.Pins[1].Changed == nil || list.Pins[1].Diff == "" {
		t.Errorf("%v: %s", err, got.out)
	}
	want(exitDone, "accepted demo echo", "mcp", "pins", "accept", "demo", "echo")
	want(exitDone, "hi", "mcp", "call", "demo", "echo", `{"message":"hi"}`)
	want(exitDone, "removed demo echo", "mcp", "pins", "remove", "demo")
	want(exitDone, "no tool is pinned", "mcp", "pins")
}

// TestApplyPolicy checks which tools are pinned without a call, and which servers are trusted.
func TestApplyPolicy(t *testing.T) {
	configs := []mcpclient.Server{{Name: "a"}, {Name: "b", Options: mcpclient.Options{TrustReadOnly: true}}}
	applyPolicy(nil, configs)
	applyPolicy(&permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{
		{Tool: "mcp__a__*", Behavior: permission.Allow}, {Tool: "mcp__a__pay", Behavior: permission.Deny}, {Tool: "mcp__b__x", Behavior: permission.Ask},
	}}, configs)
	for tool, want := range map[string]bool{"mcp__a__x": true, "mcp__a__pay": false, "mcp__b__x": false, "mcp__b__y": false} {
		if got := configs[0].Options.PinListed(tool); got != want {
			t.Errorf("%s: %t", tool, got)
		}
	}
	if configs[0].Options.TrustReadOnly || !configs[1].Options.TrustReadOnly {
		t.Errorf("%+v", configs)
	}
	applyPolicy(&permission.Policy{TrustReadOnly: true}, configs)
	if !configs[0].Options.TrustReadOnly {
		t.Error("trustReadOnly of the permissions trusts no server")
	}
}
