package toolkit

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool"
)

// Discover returns the control that opens no groups: search_tools finds tools, describe_tools shows their schemas,
// and call_tool calls them. The model's list has these three tools and those of the basic group. It never changes, so
// the provider's cache stays valid. A tool can be called through call_tool while its group is closed, if nothing
// else hides it. The call is validated, permitted and run under the real tool's name.
//
// Sources of groups are contacted at the first search, or at the first call of an unknown tool.
func Discover() *Control {
	var d discover
	return &Control{Tools: d.tools, Hint: d.hint, Static: true, Caller: callTool, Forward: callArguments}
}

// WithSearch returns a control with the tools of c and search_tools, which also finds tools of closed groups, and
// tells the model how to open the group of the best match. [Discover] already has search_tools.
func (c *Control) WithSearch() *Control {
	if c.Caller != "" || c.Tools == nil {
		return c
	}
	out := *c
	out.Tools = func(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
		return append(c.Tools(tk, s, groups), newSearchTool(tk, s, searchOpenText))
	}
	return &out
}

const (
	searchTool   = "search_tools"
	describeTool = "describe_tools"
	callTool     = "call_tool"
)

const searchLimit = 10 // maximum number of tools in an answer of search_tools

//go:embed text/search_tools.txt
var searchText string // with Discover

//go:embed text/search_open.txt
var searchOpenText string // with WithSearch

//go:embed text/describe_tools.txt
var describeText string

//go:embed text/call_tool.txt
var callText string

// discover has no state: the results of searches are in the conversation.
type discover struct{}

func (discover) hint(name string, _, _ []string) string {
	return fmt.Sprintf(`call it with %s: {"name":%s,"arguments":{…}}`, callTool, mustJSON(name))
}

func (discover) tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	var outline strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&outline, "- %s: %s\n", g.Name, firstLine(g.Description))
	}
	return []tool.Tool{
		newSearchTool(tk, s, searchText+outline.String()),
		&controlTool{
			info: tool.Info{Name: describeTool, Description: describeText, ReadOnly: true, Control: true,
				Input: schema([]string{"names"}, prop("names", `"type":"array","items":{"type":"string"}`, "Names of tools."))},
			scope: s, run: tk.describeTools,
		},
		&controlTool{
			info: tool.Info{Name: callTool, Description: callText, Control: true,
				Input: schema([]string{"name", "arguments"},
					prop("name", `"type":"string"`, "The tool's name."),
					prop("arguments", `"type":"object"`, "The tool's arguments, as its schema describes them."))},
			run: func(context.Context, *Scope, json.RawMessage) (answer, error) {
				return answer{}, fmt.Errorf("%s was run directly; call View.Resolve and run the tool it returns", callTool)
			},
		},
	}
}

func newSearchTool(tk *Toolkit, s *Scope, description string) tool.Tool {
	return &controlTool{
		info: tool.Info{Name: searchTool, Description: description, ReadOnly: true, Control: true,
			Input: schema([]string{"query"},
				prop("query", `"type":"string"`, "What the tool should do, in a few words."),
				prop("group", `"type":"string"`, "Search only in this group."))},
		scope: s, run: tk.searchTools,
	}
}

// allOpen returns the state as if every group were open.
func (c *catalogue) allOpen(r *scopeState) *scopeState {
	all := *r
	all.open = make([]bool, len(c.groups))
	all.order = make([]int, len(c.groups))
	for i := range c.groups {
		all.open[i], all.order[i] = true, i
	}
	return &all
}

// callState returns the state in which a called tool is looked up: with a [Control.Caller] every group counts as open.
func (c *catalogue) callState(r *scopeState) *scopeState {
	if c.control.Caller != "" {
		return c.allOpen(r)
	}
	return r
}

// loadAll returns the catalogue with the lists of all sources of granted groups, and the
// state as if every group were open.
func (tk *Toolkit) loadAll(ctx context.Context, s *Scope) (*catalogue, *scopeState, error) {
	c := tk.current.Load()
	st, _ := s.snapshot(c)
	sources := slices.Clone(c.basic.sources)
	for i, g := range c.groups {
		if c.grantsGroup(i, st.ceiling) {
			sources = append(sources, g.sources...)
		}
	}
	c, err := tk.load(ctx, c, sources)
	if err != nil {
		return nil, nil, err
	}
	r := c.resolve(st)
	c.evalPredicates(r)
	return c, c.allOpen(r), nil
}

// Search returns the tools that a model could call in the scope if every group were open: at most limit of them, the
// best matches for the query first, without those that match much worse than the best. An empty query finds all tools, in
// order of registration and without a limit. An empty group means any group. Search lists sources that
// were never listed. The error is a [*GroupError] for a group that the ceiling does not grant.
func (tk *Toolkit) Search(ctx context.Context, s *Scope, query, group string, limit int) ([]tool.Info, error) {
	c, r, err := tk.loadAll(ctx, s)
	if err != nil {
		return nil, err
	}
	hits, _, err := c.hits(r, query, group, limit)
	if err != nil {
		return nil, err
	}
	var out []tool.Info
	for _, e := range hits {
		out = append(out, e.tool.Info())
	}
	return out, nil
}

// hits returns the tools that a search finds, and the index of the named group, or -1 if group is empty. The limit
// applies only to queries with words.
func (c *catalogue) hits(r *scopeState, query, group string, limit int) (hits []*entry, groupIndex int, err error) {
	groupIndex = -1
	if group != "" {
		i, ok := c.index[group]
		if !ok || !c.grantsGroup(i, r.ceiling) {
			return nil, -1, c.unknownGroup(group, r.ceiling)
		}
		groupIndex = i
	}
	keep := func(e *entry) bool {
		return c.visible(e, r) && (groupIndex < 0 || slices.Contains(e.groups, groupIndex))
	}
	if len(words(query)) > 0 {
		return c.searchIndex().find(query, limit, keep), groupIndex, nil
	}
	for _, e := range c.entries {
		if keep(e) {
			hits = append(hits, e)
		}
	}
	return hits, groupIndex, nil
}

func (tk *Toolkit) searchTools(ctx context.Context, s *Scope, input json.RawMessage) (answer, error) {
	var in struct{ Query, Group string }
	if err := json.Unmarshal(input, &in); err != nil {
		return answer{}, fmt.Errorf("the arguments do not match the schema: %w", err)
	}
	if in.Group == "" && len(words(in.Query)) == 0 {
		return answer{}, errors.New("the query is empty; give a few words, or a group to list all its tools")
	}
	c, r, err := tk.loadAll(ctx, s)
	if err != nil {
		return answer{}, err
	}
	hits, groupIndex, err := c.hits(r, in.Query, in.Group, searchLimit)
	if err != nil {
		return answer{}, err
	}
	lines := make([]toolLine, 0, len(hits))
	for _, e := range hits {
		lines = append(lines, toolLine{e.name, c.grantedNames(e, r), firstLine(e.tool.Info().Description)})
	}
	failures := c.grantedFailures(r)
	if groupIndex >= 0 {
		failures = c.sourceFailures(c.groups[groupIndex].sources)
	}
	text := formatHits(lines, failures)
	if c.control.Caller == "" && len(hits) > 0 {
		text += c.openHint(s, hits[0])
	}
	return answer{text: text, data: map[string]any{"tools": lines}}, nil
}

// openHint says how to open the first granted group of a tool; it returns "" if any of the tool's groups is open.
func (c *catalogue) openHint(s *Scope, e *entry) string {
	r := c.stateOf(s)
	names := c.grantedNames(e, r)
	if len(names) == 0 || slices.ContainsFunc(e.groups, func(g int) bool { return r.open[g] }) {
		return ""
	}
	hint := c.control.hint(e.name, c.activeNames(r), names[:1])
	if hint == "" {
		return ""
	}
	return fmt.Sprintf("\nTo use %s, %s first.", e.name, hint)
}

// formatHits formats the answer of search_tools: a line for each tool, and a line for the sources that could not be listed.
func formatHits(lines []toolLine, failures []string) string {
	var b strings.Builder
	if len(lines) == 0 {
		b.WriteString("No tool was found. Try other words, or search in one of the groups with an empty query.\n")
	}
	for _, t := range lines {
		b.WriteString("- " + t.Name)
		if len(t.Groups) > 0 {
			b.WriteString(" (" + strings.Join(t.Groups, ", ") + ")")
		}
		if t.Line != "" {
			b.WriteString(": " + t.Line)
		}
		b.WriteByte('\n')
	}
	if len(failures) > 0 {
		b.WriteString("Not searched, because their tools cannot be listed now: " + strings.Join(failures, "; ") + "\n")
	}
	return strings.TrimSpace(b.String())
}

// grantedNames returns the names of the tool's groups that the ceiling grants.
func (c *catalogue) grantedNames(e *entry, r *scopeState) []string {
	var out []string
	for _, g := range e.groups {
		if c.grantsGroup(g, r.ceiling) {
			out = append(out, c.groups[g].Name)
		}
	}
	return out
}

// describeTools runs describe_tools. For an unknown name the answer has an error in place of the description. The
// answer includes the instructions of the tools' groups. Other controls give these when they open a group.
func (tk *Toolkit) describeTools(ctx context.Context, s *Scope, input json.RawMessage) (answer, error) {
	var in struct{ Names []string }
	if err := json.Unmarshal(input, &in); err != nil {
		return answer{}, fmt.Errorf("the arguments do not match the schema: %w", err)
	}
	if len(in.Names) == 0 {
		return answer{}, errors.New("names is empty; give the names of tools that " + searchTool + " found")
	}
	c, r, err := tk.loadAll(ctx, s)
	if err != nil {
		return answer{}, err
	}
	var text strings.Builder
	infos := []tool.Info{}
	var groups []int
	for _, name := range in.Names {
		e, ok := c.find(name, r)
		if !ok {
			fmt.Fprintf(&text, "%s\n\n", c.hiddenFromSearch(name, r))
			continue
		}
		info := e.tool.Info()
		infos = append(infos, info)
		fmt.Fprintf(&text, "%s: %s\nArguments: %s\n\n", info.Name, info.Description, info.Input)
		for _, g := range e.groups {
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
	}
	described := *r // in which only the groups of the described tools are open
	described.open = make([]bool, len(c.groups))
	for _, g := range groups {
		described.open[g] = true
	}
	openGroups, _, err := c.openGroups(ctx, &described)
	if err != nil {
		return answer{}, err
	}
	text.WriteString(strings.TrimSpace(aboutGroups(openGroups)))
	return answer{text: strings.TrimSpace(text.String()), data: map[string]any{"tools": infos}}, nil
}

// hiddenFromSearch returns the error for a name that call_tool and describe_tools cannot find.
func (c *catalogue) hiddenFromSearch(name string, r *scopeState) *HiddenError {
	b := &body{c: c, r: r}
	for _, e := range c.entries {
		if c.visible(e, r) {
			b.infos = append(b.infos, e.tool.Info())
		}
	}
	return b.hidden(name, nil)
}

// grantedFailures is sourceFailures for the basic group and all granted groups.
func (c *catalogue) grantedFailures(r *scopeState) []string {
	out := c.sourceFailures(c.basic.sources)
	for i, g := range c.groups {
		if c.grantsGroup(i, r.ceiling) {
			out = append(out, c.sourceFailures(g.sources)...)
		}
	}
	return out
}

// sourceFailures returns, for each source that failed to list its tools, the source's name and the reason.
func (c *catalogue) sourceFailures(sources []*source) []string {
	var out []string
	for _, s := range sources {
		if l := c.listings[s]; l != nil && l.err != nil {
			reason := reasonText(l.err)
			if !strings.Contains(reason, strconv.Quote(s.name)) {
				reason = s.name + " (" + reason + ")"
			}
			out = append(out, reason)
		}
	}
	return out
}

// reasonText returns the text of an error on one line, of at most about 300 bytes.
func reasonText(err error) string {
	const limit = 300
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	text := strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ") // a line with a colon introduces the next
	return visible.Cut(text, limit, " …")
}

// callArguments returns the call that the arguments of call_tool describe; see [Control.Forward].
func callArguments(input json.RawMessage) (name string, args json.RawMessage, err error) {
	var in struct {
		Name      string
		Arguments json.RawMessage
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return "", nil, fmt.Errorf(`the arguments of %s must be {"name": …, "arguments": {…}}: %w`, callTool, err)
	}
	args = bytes.TrimSpace(in.Arguments)
	switch {
	case in.Name == "":
		return "", nil, fmt.Errorf(`%s needs the name of a tool: {"name": …, "arguments": {…}}`, callTool)
	case len(args) == 0 || bytes.Equal(args, []byte("null")):
		args = []byte("{}")
	case args[0] == '"':
		// Models often send the arguments as a string that contains JSON.
		var s string
		if err := json.Unmarshal(args, &s); err == nil {
			args = []byte(s)
		}
	}
	return in.Name, args, nil
}
