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

// vouching is a tool that judges itself whether a call may be made again.
type vouching struct {
	tool.Tool
	check func(json.RawMessage) bool
}

func (v vouching) CheckIdempotent(input json.RawMessage) bool { return v.check(input) }
func (v vouching) Unwrap() tool.Tool                          { return v.Tool }

// TestCallsThatHadBegun goes on from a State in which a call had begun when the
// program was stopped.
func TestCallsThatHadBegun(t *testing.T) {
	yes := func(json.RawMessage) bool { return true }
	for _, row := range []struct {
		name   string
		check  func(json.RawMessage) bool // nil: the tool does not say
		policy permission.Policy
		call   string
		ran    string
		result string
	}{
		{"nothing is known", nil, bypass, `"status":"running"`, "", "c1 interrupted: Outcome unknown"},
		{"it may be made again", yes, bypass, `"status":"running"`, "note:a", "c1 success"},
		{"it was made again already", yes, bypass, `"status":"running","again":true`, "", "c1 interrupted: Outcome unknown"},
		{"the tool cannot tell", func(json.RawMessage) bool { panic("cannot") }, bypass, `"status":"running"`, "", "c1 interrupted: Outcome unknown"},
		{"not with these arguments", func(in json.RawMessage) bool { return !strings.Contains(string(in), "a") }, bypass, `"status":"running"`, "", "c1 interrupted: Outcome unknown"},
		{"it is denied by now", yes, permission.Policy{Mode: permission.ModeExplore}, `"status":"running"`, "", "c1 denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			note := noting(&j, "note", tool.Options{})
			if row.check != nil {
				note = tool.With(vouching{note, row.check}) // whatever wraps it
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

// TestIdempotencyKeys are there for tools that say so, and differ between calls.
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
		t.Errorf("keys %q, want one that is empty and three others", seen)
	}
}
