package toolkit

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
)

// EnableDisable returns the control of wags: enable_tools and disable_tools, which take names of groups. Each name
// is a separate transition: a refused name does not stop the others. The descriptions list the groups without
// a parent, and below every open group its children. So every transition changes the start of the list of tools.
func EnableDisable() *Control {
	var e enableDisable
	return &Control{Tools: e.tools, Hint: e.hint, Opens: e.opens}
}

const (
	enableTool  = "enable_tools"
	disableTool = "disable_tools"
)

//go:embed text/enable_tools.txt
var enableText string

//go:embed text/disable_tools.txt
var disableText string

// enableDisable is not a static control: the descriptions say which groups are open.
type enableDisable struct{}

func (enableDisable) hint(_ string, _, want []string) string {
	return fmt.Sprintf(`call %s with {"groups":%s}`, enableTool, mustJSON(want))
}

func (enableDisable) opens(tk *Toolkit, s *Scope, name string, input json.RawMessage) []string {
	if name != enableTool {
		return nil
	}
	names, _ := tk.groupList(s, input) // the call itself reports the error
	return names
}

func (enableDisable) tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	args := schema(nil, prop("groups", `"type":"array","items":{"type":"string"}`, "Names of groups.")) // as in wags
	if !tk.current.Load().rules.quietRefusals {
		names := []string{} // of all groups, as one call may open a group and then its child
		for _, g := range groups {
			names = append(names, g.Name)
		}
		args = schema([]string{"groups"}, property{"groups", fmt.Appendf(nil, `{"type":"array","items":{"type":"string","enum":%s}}`, mustJSON(names))})
	}
	return []tool.Tool{
		&controlTool{
			info:  tool.Info{Name: enableTool, Description: enableText + tk.outline(groups), Input: args, Control: true},
			scope: s, run: tk.enableEach,
		},
		&controlTool{
			info:  tool.Info{Name: disableTool, Description: disableText + enabledList(groups), Input: args, Control: true},
			scope: s, run: tk.disableEach,
		},
	}
}

// enableResult and disableResult have the members of wags' answers; Instructions is
// an addition. Lists are never null.
type enableResult struct {
	Enabled         []string `json:"enabled"`
	EnabledGroups   []string `json:"enabled_groups"`
	AvailableTools  []string `json:"available_tools"`
	AvailableGroups []string `json:"available_groups"`
	Errors          []string `json:"errors"`
	Instructions    string   `json:"instructions,omitempty"` // of the groups that were enabled
}

type disableResult struct {
	Disabled       []string `json:"disabled"`
	EnabledGroups  []string `json:"enabled_groups"`
	AvailableTools []string `json:"available_tools"`
	Errors         []string `json:"errors"`
}

// enableEach runs enable_tools. For a name that is refused or already open it adds an entry
// to errors, and continues with the next name.
func (tk *Toolkit) enableEach(ctx context.Context, s *Scope, input json.RawMessage) (answer, error) {
	names, err := tk.groupList(s, input)
	if err != nil {
		return answer{}, err
	}
	steps, err := tk.runTransitions(ctx, s, enable, slices.Collect(slices.Chunk(names, 1))...)
	if err != nil {
		return answer{}, err
	}
	res := enableResult{Enabled: []string{}, Errors: []string{}}
	groups := tk.Groups(s) // after the transitions
	for _, st := range steps {
		res.Enabled = append(res.Enabled, st.Opened...)
		switch {
		case st.refused != nil:
			res.Errors = append(res.Errors, refusal(st.refused, groups))
		case !st.Changed():
			res.Errors = append(res.Errors, fmt.Sprintf("group %q is already enabled", st.groups[0]))
		}
	}
	c := tk.current.Load()
	for _, name := range res.Enabled {
		if i, ok := c.index[name]; ok {
			for _, f := range c.sourceFailures(c.groups[i].sources) {
				res.Errors = append(res.Errors, fmt.Sprintf("group %q: its tools could not be listed, so some may be missing: %s; tell the user if the task needs them", name, f))
			}
		}
	}
	res.EnabledGroups, res.AvailableTools = tk.enabled(s)
	res.AvailableGroups = availableGroups(groups)
	if res.Instructions, err = tk.aboutOpened(ctx, s, res.Enabled); err != nil {
		return answer{}, err
	}
	return answer{data: res, failed: tk.isFailure(steps)}, nil
}

// isFailure reports whether a call failed: every step was refused, and the preset has no quietRefusals.
func (tk *Toolkit) isFailure(steps []step) bool {
	return !tk.current.Load().rules.quietRefusals && !slices.ContainsFunc(steps, func(st step) bool { return st.refused == nil })
}

// disableEach runs disable_tools. It reports a child that was closed with its parent earlier in the
// call as not enabled.
func (tk *Toolkit) disableEach(ctx context.Context, s *Scope, input json.RawMessage) (answer, error) {
	names, err := tk.groupList(s, input)
	if err != nil {
		return answer{}, err
	}
	steps, err := tk.runTransitions(ctx, s, disable, slices.Collect(slices.Chunk(names, 1))...)
	if err != nil {
		return answer{}, err
	}
	res := disableResult{Disabled: []string{}, Errors: []string{}}
	groups := tk.Groups(s) // after the transitions
	for _, st := range steps {
		closed := slices.Sorted(slices.Values(st.Closed))
		res.Disabled = append(res.Disabled, tk.current.Load().onlyGranted(closed, s.Ceiling())...)
		switch {
		case st.refused != nil:
			res.Errors = append(res.Errors, refusal(st.refused, groups))
		case !st.Changed():
			res.Errors = append(res.Errors, fmt.Sprintf("group %q is not enabled", st.groups[0]))
		}
	}
	res.EnabledGroups, res.AvailableTools = tk.enabled(s)
	return answer{data: res, failed: tk.isFailure(steps)}, nil
}

// groupList returns the names in the arguments {"groups": […]}.
func (tk *Toolkit) groupList(s *Scope, input json.RawMessage) ([]string, error) {
	members, err := parseObject(input)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range members {
		if m.name != "groups" {
			return nil, fmt.Errorf("unknown argument %q; give groups, a list of names", m.name)
		}
		if bytes.Equal(m.value, []byte("null")) || json.Unmarshal(m.value, &names) != nil {
			return nil, errors.New("groups must be a list of names")
		}
	}
	if len(names) == 0 && !tk.current.Load().rules.quietRefusals {
		return nil, fmt.Errorf("no group was named; give groups, a list of names out of: %s", strings.Join(shownGroups(tk.Groups(s)), ", "))
	}
	return names, nil
}

// refusal returns the text of an error for the model. It names only groups that the description of
// enable_tools shows.
func refusal(e *GroupError, groups []GroupInfo) string {
	if e.Reason != ReasonUnknownGroup {
		return e.Error()
	}
	shown := *e
	shown.Others = shownGroups(groups)
	return shown.Error()
}

// enabled returns the open groups that are granted, and their visible tools, both sorted.
func (tk *Toolkit) enabled(s *Scope) (groups, tools []string) {
	c := tk.current.Load()
	r := c.stateOf(s)
	c.evalPredicates(r)
	groups, tools = []string{}, []string{}
	for _, g := range r.order {
		if c.grantsGroup(g, r.ceiling) {
			groups = append(groups, c.groups[g].Name)
		}
		for _, e := range c.groups[g].entries {
			if c.visible(e, r) {
				tools = append(tools, e.name)
			}
		}
	}
	slices.Sort(groups)
	slices.Sort(tools)
	return groups, slices.Compact(tools)
}

// aboutOpened returns the instructions and skills of the named groups.
func (tk *Toolkit) aboutOpened(ctx context.Context, s *Scope, names []string) (string, error) {
	c := tk.current.Load()
	groups, _, err := c.openGroups(ctx, c.stateOf(s))
	if err != nil {
		return "", err
	}
	groups = slices.DeleteFunc(groups, func(g openGroup) bool {
		return !slices.Contains(names, g.Name) || g.Instructions == "" && len(g.Skills) == 0
	})
	return reminder(groups), nil
}

// availableGroups returns the closed groups that have an open parent, sorted.
func availableGroups(groups []GroupInfo) []string {
	out := []string{}
	for _, g := range groups {
		if !g.Active && slices.ContainsFunc(groups, func(p GroupInfo) bool { return p.Active && slices.Contains(g.Parents, p.Name) }) {
			out = append(out, g.Name)
		}
	}
	slices.Sort(out)
	return out
}

// shownGroups returns the names that the description of enable_tools shows.
func shownGroups(groups []GroupInfo) []string {
	var out []string
	visitShown(groups, func(_ int, g GroupInfo) { out = append(out, g.Name) })
	return out
}

// visitShown visits the groups without a parent, sorted by name, and after each open group its children, one level
// deeper. A group with several open parents is visited once, below the first of these parents.
func visitShown(groups []GroupInfo, visit func(depth int, g GroupInfo)) {
	sorted := slices.SortedFunc(slices.Values(groups), func(a, b GroupInfo) int { return strings.Compare(a.Name, b.Name) })
	seen := map[string]bool{}
	var walk func(depth int, parent string)
	walk = func(depth int, parent string) {
		for _, g := range sorted {
			belongsHere := depth == 0 && len(g.Parents) == 0 || depth > 0 && slices.Contains(g.Parents, parent)
			if !belongsHere || seen[g.Name] {
				continue
			}
			seen[g.Name] = true
			visit(depth, g)
			if g.Active {
				walk(depth+1, g.Name)
			}
		}
	}
	walk(0, "")
}

// outline returns the part of the description of enable_tools that changes: the groups
// that can be chosen now, and the tool quota.
func (tk *Toolkit) outline(groups []GroupInfo) string {
	var b strings.Builder
	b.WriteString("\nGroups:\n")
	visitShown(groups, func(depth int, g GroupInfo) {
		fmt.Fprintf(&b, "%s- %s: %s", strings.Repeat("  ", depth), g.Name, g.Description)
		if g.Active {
			b.WriteString(" (enabled)")
		}
		b.WriteByte('\n')
	})
	if limit, count := tk.toolQuota(groups); limit > 0 {
		fmt.Fprintf(&b, "\nAt most %d tools may be enabled at a time; %d are enabled now.\n", limit, count)
	}
	return b.String()
}

// toolQuota returns the limit on tools, or 0 if there is none, and the number of tools in open groups.
func (tk *Toolkit) toolQuota(groups []GroupInfo) (limit, count int) {
	c := tk.current.Load()
	if c.cfg.MaxTools == 0 {
		return 0, 0
	}
	var open []int
	for _, g := range groups {
		if i, ok := c.index[g.Name]; ok && g.Active {
			open = append(open, i)
		}
	}
	return c.cfg.MaxTools, c.usageOf(open).tools
}

// enabledList returns the part of the description of disable_tools that changes.
func enabledList(groups []GroupInfo) string {
	var b strings.Builder
	for _, g := range slices.SortedFunc(slices.Values(groups), func(a, b GroupInfo) int { return strings.Compare(a.Name, b.Name) }) {
		if g.Active {
			fmt.Fprintf(&b, "- %s: %s\n", g.Name, g.Description)
		}
	}
	if b.Len() == 0 {
		return "\nNo group is enabled.\n"
	}
	return "\nEnabled now:\n" + b.String()
}
