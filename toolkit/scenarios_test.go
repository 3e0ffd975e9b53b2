package toolkit_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/tool"
)

// A scenario is a row of groups_scenarios.jsonl. What its members mean is in
// the reference on grouping systems, part D.
type scenario struct {
	ID     string
	System string
	Groups []scenarioGroup
	Config scenarioConfig
	Steps  []scenarioStep
}

type scenarioGroup struct {
	Name, Title, Description, Instructions string
	Parent                                 *string
	Parents                                []string
	Tools                                  []toolSpec
	Skills                                 []string
	Hooks                                  map[string]string
	ShowDeactivator                        *bool `json:"show_deactivator"`
}

func (g scenarioGroup) parents() []string {
	if g.Parent != nil && *g.Parent != "" {
		return append(slices.Clone(g.Parents), *g.Parent)
	}
	return g.Parents
}

type scenarioConfig struct {
	Variant string

	Upstream      []string            // wags
	MetaGroups    map[string][]string `json:"meta_groups"`
	Handlers      map[string][]string
	InitialGroups []string `json:"initial_groups"`
	MaxTools      int      `json:"max_tools"`

	RootTools  []toolSpec        `json:"root_tools"` // tmcp
	Tools      []json.RawMessage // and trustgraph
	Exclusions [][]string

	SkipValidation bool `json:"skip_validation"` // trustgraph

	BasicTools  []toolSpec `json:"basic_tools"` // agentscope
	BasicSkills []string   `json:"basic_skills"`
	StateActive []string   `json:"state_activated_groups"`

	UngroupedTools []toolSpec                 `json:"ungrouped_tools"` // mcp
	RawMeta        map[string]json.RawMessage `json:"raw_meta"`
	Prompts        map[string][]string
	Resources      map[string][]string
	PageSize       int `json:"page_size"`
}

type scenarioStep struct {
	Op     string
	Args   map[string]json.RawMessage
	Expect map[string]json.RawMessage
}

// A toolSpec is a tool in a row: its name, or an object with what it answers.
type toolSpec struct{ Name, Output string }

func (s *toolSpec) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, &s.Name)
	}
	type plain toolSpec
	return json.Unmarshal(data, (*plain)(s))
}

// tools returns a fake for each spec. Without an output it answers its name.
func specified(specs []toolSpec) []tool.Tool {
	var out []tool.Tool
	for _, s := range specs {
		out = append(out, &fake{name: s.Name, text: cmp.Or(s.Output, s.Name)})
	}
	return out
}

// arg decodes the first of the arguments that is there; absent is the zero value.
func arg[T any](t testing.TB, s scenarioStep, names ...string) T {
	t.Helper()
	var v T
	for _, name := range names {
		if raw, ok := s.Args[name]; ok {
			decode(t, raw, &v)
			break
		}
	}
	return v
}

func decode(t testing.TB, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

// TestScenarios runs what five systems do, as their documents, tests and code
// have it, against the profiles that stand for them.
func TestScenarios(t *testing.T) {
	deviations := loadDeviations(t)
	rows := casetest.Rows[json.RawMessage](t, "groups_scenarios.jsonl")
	deviating := 0
	for _, raw := range rows {
		var row struct{ ID string }
		decode(t, raw, &row)
		reason, deviates := deviations[number(row.ID)]
		deviating += btoi(deviates)
		t.Run(row.ID, func(t *testing.T) {
			var sc scenario
			decode(t, raw, &sc)
			diffs := play(t, sc)
			switch {
			case deviates && len(diffs) == 0:
				t.Errorf("passes, and is in deviations.json for %q: take it out", reason)
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

// play runs a scenario and returns what was not as expected.
func play(t *testing.T, sc scenario) []string {
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
		if w.err != nil && arg[string](t, step, "what") != "construct" {
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

// number returns the part of an id that does not change: wags-001.
func number(id string) string {
	parts := strings.SplitN(id, "-", 3)
	return strings.Join(parts[:min(2, len(parts))], "-")
}

// loadDeviations returns the reasons by number. Rows that the folder does not
// have may be among them: there are more scenarios than are kept here.
func loadDeviations(t *testing.T) map[string]string {
	raw, err := os.ReadFile("testdata/deviations.json")
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]string
	decode(t, raw, &m)
	for id, reason := range m {
		if !strings.Contains(reason, "C-4") && !strings.Contains(reason, "C-6") {
			t.Errorf("deviations.json: %s: the reason must name its item of C-4 or C-6", id)
		}
	}
	return m
}

// same compares JSON with a value of ours.
func same(got any, want json.RawMessage) string {
	data, err := json.Marshal(got)
	if err != nil {
		return err.Error()
	}
	var g, w any
	if json.Unmarshal(data, &g) != nil || json.Unmarshal(want, &w) != nil {
		return "not JSON"
	}
	if !reflect.DeepEqual(g, w) {
		return fmt.Sprintf("got %s, want %s", data, want)
	}
	return ""
}

func strsOf(raw json.RawMessage) []string {
	var out []string
	if json.Unmarshal(raw, &out) != nil {
		return []string{string(raw)}
	}
	return out
}

func sorted(s []string) []string { return append([]string{}, slices.Sorted(slices.Values(s))...) }

// A wording says which text of ours stands for a text of one of the systems:
// upstream is a pattern of theirs, ours one of ours, in which $1 and so on
// stand for what the groups of upstream matched.
type wording struct{ upstream, ours string }

// says reports whether our text says what theirs does. A text that no wording
// translates must at least name what theirs names.
func says(theirs, ours string) bool {
	for _, w := range wordings {
		re := regexp.MustCompile("^(?s:" + w.upstream + ")$")
		m := re.FindStringSubmatch(theirs)
		if m == nil {
			continue
		}
		pattern := w.ours
		for i, group := range m[1:] {
			pattern = strings.ReplaceAll(pattern, fmt.Sprintf("$%d", i+1), regexp.QuoteMeta(group))
		}
		return regexp.MustCompile(pattern).MatchString(ours)
	}
	for _, m := range regexp.MustCompile(`'([^']*)'|:([^: ]+)$`).FindAllStringSubmatch(theirs, -1) {
		if !strings.Contains(ours, m[1]+m[2]) {
			return false
		}
	}
	return true
}
