package toolkit_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/tool"
)

// specified returns a fake for each spec. A fake without an output answers with its name.
func specified(specs []groupcase.ToolSpec) []tool.Tool {
	var out []tool.Tool
	for _, s := range specs {
		out = append(out, &fake{name: s.Name, text: cmp.Or(s.Output, s.Name)})
	}
	return out
}

// TestScenarios runs scenarios of five systems, from their documents, tests and
// code, with the presets for these systems.
func TestScenarios(t *testing.T) {
	deviations := groupcase.Deviations(t, "testdata/deviations.json")
	for id, reason := range deviations {
		if !strings.Contains(reason, "C-4") && !strings.Contains(reason, "C-6") {
			t.Errorf("deviations.json: %s: the reason must name its item of C-4 or C-6", id)
		}
	}
	rows := groupcase.Rows(t)
	deviating := 0
	for _, row := range rows {
		reason, deviates := deviations[groupcase.Number(row.ID)]
		deviating += btoi(deviates)
		t.Run(row.ID, func(t *testing.T) {
			diffs := runScenario(t, row.Scenario(t))
			switch {
			case deviates && len(diffs) == 0:
				t.Errorf("passes, but is in deviations.json (%s); remove it there", reason)
			case !deviates:
				for _, d := range diffs {
					t.Error(d)
				}
			}
		})
	}
	if deviating*100 > len(rows)*8 {
		t.Errorf("%d of %d scenarios deviate; at most 8 %% may", deviating, len(rows))
	}
}

// runScenario runs a scenario and returns the differences from its expectations.
func runScenario(t *testing.T, sc groupcase.Scenario) []string {
	adapt, ok := adapters[sc.System]
	if !ok {
		return []string{"no adapter for the system " + sc.System}
	}
	w := adapt(t, sc)
	var diffs []string
	for i, step := range sc.Steps {
		do, ok := w.ops[step.Op]
		if !ok {
			return append(diffs, fmt.Sprintf("step %d: the adapter does not know the op %q", i+1, step.Op))
		}
		if w.err != nil && groupcase.Arg[string](t, step, "what") != "construct" {
			return append(diffs, fmt.Sprintf("step %d: construction failed: %v", i+1, w.err))
		}
		w.begin()
		out := do(step)
		for key, want := range step.Expect {
			check, ok := checks[key]
			if !ok {
				diffs = append(diffs, fmt.Sprintf("step %d: the runner does not know %q", i+1, key))
				continue
			}
			if d := check(w, out, want); d != "" {
				diffs = append(diffs, fmt.Sprintf("step %d, %s: %s: %s", i+1, step.Op, key, d))
			}
		}
	}
	slices.Sort(diffs)
	return diffs
}

func strsOf(raw json.RawMessage) []string {
	var out []string
	if json.Unmarshal(raw, &out) != nil {
		return []string{string(raw)}
	}
	return out
}

func sorted(s []string) []string { return append([]string{}, slices.Sorted(slices.Values(s))...) }
