// Package groupcase reads the scenarios of other systems that group tools, and makes toolkits with their rules. Tests of
// package toolkit check them with calls, and tests of package mcpserver over the wire.
package groupcase

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"
)

// A Scenario is a row of groups_scenarios.jsonl.
type Scenario struct {
	ID     string
	System string
	Groups []Group
	Config Config
	Steps  []Step
}

// A Group is a group of a scenario.
type Group struct {
	Name, Title, Description, Instructions string
	Parent                                 *string
	Parents                                []string
	Tools                                  []ToolSpec
	Skills                                 []string
	Hooks                                  map[string]string
	ShowDeactivator                        *bool `json:"show_deactivator"`
}

// All returns the names of the parents, in either form.
func (g Group) All() []string {
	if g.Parent != nil && *g.Parent != "" {
		return append(slices.Clone(g.Parents), *g.Parent)
	}
	return g.Parents
}

// A Config holds what is specific to one of the systems.
type Config struct {
	Variant string

	Upstream      []string            // wags
	MetaGroups    map[string][]string `json:"meta_groups"`
	Handlers      map[string][]string
	InitialGroups []string `json:"initial_groups"`
	MaxTools      int      `json:"max_tools"`

	RootTools  []ToolSpec        `json:"root_tools"` // tmcp
	Tools      []json.RawMessage // and trustgraph
	Exclusions [][]string

	SkipValidation bool `json:"skip_validation"` // trustgraph

	BasicTools  []ToolSpec `json:"basic_tools"` // agentscope
	BasicSkills []string   `json:"basic_skills"`
	StateActive []string   `json:"state_activated_groups"`

	UngroupedTools []ToolSpec                 `json:"ungrouped_tools"` // mcp
	RawMeta        map[string]json.RawMessage `json:"raw_meta"`
	Prompts        map[string][]string
	Resources      map[string][]string
	PageSize       int   `json:"page_size"`
	ListChanged    *bool `json:"listChanged"` // whether the server declares notifications of changes
}

// A Step is an operation of a scenario with its expected result.
type Step struct {
	Op     string
	Args   map[string]json.RawMessage
	Expect map[string]json.RawMessage
}

// A ToolSpec is a tool in a row: its name, or an object with its output.
type ToolSpec struct{ Name, Output string }

func (s *ToolSpec) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, &s.Name)
	}
	type plain ToolSpec
	return json.Unmarshal(data, (*plain)(s))
}

// A Row is a scenario that is not decoded yet, so that an invalid one fails only its own test.
type Row struct {
	ID  string
	raw json.RawMessage
}

// Rows returns all scenarios.
func Rows(tb testing.TB) []Row {
	tb.Helper()
	var rows []Row
	for _, raw := range casetest.Rows[json.RawMessage](tb, "groups_scenarios.jsonl") {
		row := Row{raw: raw}
		Decode(tb, raw, &row)
		rows = append(rows, row)
	}
	return rows
}

// Scenario decodes the row.
func (r Row) Scenario(tb testing.TB) (sc Scenario) {
	tb.Helper()
	Decode(tb, r.raw, &sc)
	return sc
}

// Number returns the stable part of an id, such as wags-001.
func Number(id string) string {
	parts := strings.SplitN(id, "-", 3)
	return strings.Join(parts[:min(2, len(parts))], "-")
}

// Deviations returns, by number, the reasons why scenarios are decided differently. The scenarios need not be in the
// folder of case files.
func Deviations(tb testing.TB, file string) map[string]string {
	tb.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var m map[string]string
	Decode(tb, raw, &m)
	return m
}

// Arg decodes the first argument that is present, else returns the zero value.
func Arg[T any](t testing.TB, s Step, names ...string) T {
	t.Helper()
	var v T
	for _, name := range names {
		if raw, ok := s.Args[name]; ok {
			Decode(t, raw, &v)
			break
		}
	}
	return v
}

// Decode reads JSON or fails the test.
func Decode(tb testing.TB, raw json.RawMessage, v any) {
	tb.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		tb.Fatalf("%s: %v", raw, err)
	}
}
