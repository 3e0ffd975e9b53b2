package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// idempotentTool is a tool whose check decides whether a call is idempotent.
type idempotentTool struct {
	tool.Tool
	check func(json.RawMessage) bool
}

func (v idempotentTool) CheckIdempotent(input json.RawMessage) bool { return v.check(input) }
func (v idempotentTool) Unwrap() tool.Tool                          { return v.Tool }

// TestCallsThatHadBegun loads a State in which a call had started when the
// program was stopped, and continues.
func TestCallsThatHadBegun(t *testing.T) {
	yes := func(json.RawMessage) bool { return true }
	for _, row := range []struct {
		name   string
		check  func(json.RawMessage) bool // nil if the tool has none
		policy permission.Policy
		call   string
		ran    string
		result string
	}{
		{"no check", nil, bypass, `"status":"running"`, "", "c1 interrupted: Outcome unknown"},
		{"the check allows it", yes, bypass, `"status":"running"`, "note:a", "c1 success"},
		{"it was already made again", yes, bypass, `"status":"running","again":true`, "", "c1 interrupted: Outcome unknown"},
		{"the check panics", func(json.RawMessage) bool { panic("cannot") }, bypass, `"status":"running"`, "", "c1 interrupted: Outcome unknown"},
		{"the check rejects these arguments", func(in json.RawMessage) bool { return !strings.Contains(string(in), "a") }, bypass, `"status":"running"`, "", "c1 interrupted: Outcome unknown"},
		{"the policy now denies it", yes, permission.Policy{Mode: permission.ModeExplore}, `"status":"running"`, "", "c1 denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			note := noting(&j, "note", tool.Options{})
			if row.check != nil {
				note = tool.With(idempotentTool{note, row.check}) // also through a wrapper
			}
			a, _ := newAgent(t, Config{Policy: row.policy, Toolkit: toolkit.Of(note)}, says("done"))
			st := loadedState(t, `"input":{"path":"a"},`+row.call)
			if _, err := play(t, a, st); err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), row.ran)
			if got := results(st); len(got) != 1 || !strings.HasPrefix(got[0], row.result) {
				t.Errorf("results %q, want %q", got, row.result)
			}
		})
	}
}

// TestIdempotencyKeys: only calls of idempotent tools have a key, and keys differ between calls.
func TestIdempotencyKeys(t *testing.T) {
	var seen []string
	keyed := func(name string, o tool.Options) tool.Tool {
		return tool.Must(tool.New(name, "Keeps its key.", func(ctx context.Context, _ pathArg) (string, error) {
			seen = append(seen, tool.CallFrom(ctx).Key)
			return "", nil
		}, o))
	}
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(keyed("safe", tool.Options{Idempotent: true}), keyed("plain", tool.Options{}))},
		calls(`c1 safe {"path":"1"}`, `c2 safe {"path":"2"}`, `c3 plain {"path":"1"}`), calls(`c4 safe {"path":"1"}`), says("done"))
	if _, err := play(t, a, new(State), Say("go")); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(seen); len(slices.Compact(slices.Clone(seen))) != 4 || seen[0] != "" {
		t.Errorf("keys %q, want one empty key and three different ones", seen)
	}
}
