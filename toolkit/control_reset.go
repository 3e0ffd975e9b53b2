package toolkit

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/kitbag-go/kitbag/tool"
)

//go:embed text/*.tmpl text/reset_tools.txt
var texts embed.FS

// templates has the text of reset_tools, and those of control tools' answers and of reminders.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.ParseFS(texts, "text/*.tmpl", "text/reset_tools.txt"))
})

// ResetTools returns the control of AgentScope: one tool, reset_tools, whose
// arguments are the full desired state, one boolean per group. A group that is left out is
// closed. An unknown name or a value that is not a boolean is an error and changes
// nothing. Nil options mean the zero ResetOptions.
func ResetTools(options *ResetOptions) *Control {
	var r resetTools
	if options != nil {
		r.ResetOptions = *options
	}
	return &Control{Tools: r.tools, Hint: r.hint, Opens: r.opens, Static: !r.ShowActive}
}

// ResetOptions configure [ResetTools].
type ResetOptions struct {
	// ShowActive marks open groups in the field descriptions of reset_tools. The start
	// of the list then changes with every transition, which invalidates the provider's
	// cache of the whole conversation.
	ShowActive bool

	// Cached says that the provider caches the beginning of requests. The model is then told to leave groups open:
	// closing one changes the list of tools, which comes first, so that the whole conversation is read
	// anew at the full price. See [View.Closing].
	Cached bool

	// NewOnly limits the instructions in an answer to the groups that the call
	// opened, instead of all open groups.
	NewOnly bool
}

const resetTool = "reset_tools"

type resetTools struct{ ResetOptions }

func (resetTools) hint(_ string, active, want []string) string {
	var args []string
	for _, name := range append(slices.Clone(active), want...) {
		if arg := string(mustJSON(name)) + ":true"; !slices.Contains(args, arg) {
			args = append(args, arg)
		}
	}
	return fmt.Sprintf("call %s with {%s}", resetTool, strings.Join(args, ","))
}

func (resetTools) opens(tk *Toolkit, s *Scope, name string, input json.RawMessage) []string {
	if name != resetTool {
		return nil
	}
	names, _ := wanted(tk, s, input) // the call itself reports the error
	return names
}

func (r resetTools) tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	props := make([]property, len(groups))
	for i, g := range groups {
		desc := g.Description
		if len(g.Parents) > 0 {
			desc += " (needs " + strings.Join(g.Parents, " and ") + ")"
		}
		if r.ShowActive && g.Active {
			desc += " (open now)"
		}
		props[i] = prop(g.Name, `"type":"boolean"`, desc)
	}
	return []tool.Tool{&controlTool{
		info: tool.Info{Name: resetTool, Description: render("reset_tools.txt", r.ResetOptions), Input: schema(nil, props...), Control: true},
		run: func(ctx context.Context, input json.RawMessage) (answer, error) {
			names, err := wanted(tk, s, input)
			if err != nil {
				return answer{}, err
			}
			out, err := tk.Set(ctx, s, names...)
			if err != nil {
				return answer{}, err
			}
			return tk.report(ctx, s, out, wording{newOnly: r.NewOnly && out.Changed(), leftOut: true, again: !out.Changed()})
		},
	}}
}

// wanted returns the names of the groups that the arguments of reset_tools set to true,
// in the order of the arguments. It checks all names before the values.
func wanted(tk *Toolkit, s *Scope, input json.RawMessage) ([]string, error) {
	var exist []string
	for _, g := range tk.Groups(s) {
		exist = append(exist, g.Name)
	}
	members, err := object(input)
	if err != nil {
		return nil, err
	}
	var unknown, names []string
	for _, m := range members {
		if !slices.Contains(exist, m.name) {
			unknown = append(unknown, m.name)
		}
	}
	if len(unknown) > 0 {
		return nil, &GroupError{Group: strings.Join(unknown, ", "), Reason: ReasonUnknownGroup, Others: exist}
	}
	for _, m := range members {
		switch string(m.value) {
		case "true":
			names = append(names, m.name)
		case "false":
			names = slices.DeleteFunc(names, func(n string) bool { return n == m.name })
		default:
			return nil, fmt.Errorf("group %q: the value must be true or false, not %s; nothing was changed", m.name, m.value)
		}
	}
	return names, nil
}

// A member is a member of a JSON object. Their order determines which error comes first.
type member struct {
	name  string
	value json.RawMessage
}

// object returns the members of a JSON object, in order.
func object(input json.RawMessage) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(input))
	if len(bytes.TrimSpace(input)) == 0 {
		return nil, nil
	}
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("the arguments must be a JSON object of group names and booleans")
	}
	var out []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("the arguments are not valid JSON: %w", err)
		}
		m := member{name: name.(string)}
		if err := dec.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("the arguments are not valid JSON: %w", err)
		}
		out = append(out, m)
	}
	return out, nil
}

// An openGroup describes an open group to the model.
type openGroup struct {
	Name         string      `json:"name"`
	Opened       bool        `json:"opened,omitempty"` // by this call
	Tools        []toolLine  `json:"tools,omitempty"`  // of a group that was opened
	Failed       []string    `json:"failed,omitempty"` // its sources that could not be listed
	Instructions string      `json:"instructions,omitempty"`
	Skills       []skillLine `json:"skills,omitempty"`

	empty bool // its sources failed, and it has nothing else
}

// A toolLine is a tool in an answer; its schema comes with the next step.
type toolLine struct {
	Name string `json:"name"`
	Line string `json:"description,omitempty"`
}

// A skillLine is a skill in an answer.
type skillLine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// A wording says what the answer of a control tool includes.
type wording struct {
	newOnly bool // instructions and skills only of groups that were opened
	leftOut bool // groups were closed because the call left them out
	again   bool // tools of all open groups, not only of those that were opened
}

// report returns the answer of a control tool: what was opened, with a line for each
// tool, what failed, what was closed, and the instructions and skills of open groups.
// They are in this answer and not in the system prompt because the end of a conversation can
// change without invalidating the provider's cache. A group whose sources failed and
// that has nothing else is reported as unavailable, although it is open in the scope: its
// tools appear once a source can be listed.
func (tk *Toolkit) report(ctx context.Context, s *Scope, out Outcome, how wording) (answer, error) {
	c := tk.now.Load()
	st, _ := s.snapshot(c)
	r := c.resolve(st)
	c.evalPredicates(r)
	groups, _, err := c.openGroups(ctx, r)
	if err != nil {
		return answer{}, err
	}
	type failedGroup struct {
		Name   string   `json:"name"`
		Failed []string `json:"failed"`
	}
	data := struct {
		Active      []openGroup   `json:"active"`
		Unavailable []failedGroup `json:"unavailable,omitempty"`
		Closed      []string      `json:"closed,omitempty"`
		LeftOut     bool          `json:"-"`
	}{Active: []openGroup{}, Closed: c.grantedOf(out.Closed, r.ceiling), LeftOut: how.leftOut}
	for _, g := range groups {
		g.Opened = slices.Contains(out.Opened, g.Name)
		switch {
		case g.empty:
			data.Unavailable = append(data.Unavailable, failedGroup{g.Name, g.Failed})
			continue
		case g.Opened || how.again:
			g.Tools = c.toolLines(c.index[g.Name], r)
		default:
			g.Failed = nil
		}
		if how.newOnly && !g.Opened {
			g.Instructions, g.Skills = "", nil
		}
		data.Active = append(data.Active, g)
	}
	return answer{text: render("opened.tmpl", data), data: data}, nil
}

// render executes a template. It panics on an error, which plain values cannot cause.
func render(name string, data any) string {
	var b strings.Builder
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// openGroups describes the groups that are open and granted, in order of registration,
// and returns the skills that could not be loaded.
func (c *catalogue) openGroups(ctx context.Context, r *resolved) (out []openGroup, skipped []Skipped, err error) {
	for i, g := range c.groups {
		if !r.open[i] || !c.grantsGroup(i, r.ceiling) {
			continue
		}
		skills, broken, err := c.loadSkills(ctx, g)
		if err != nil {
			return nil, skipped, err
		}
		skipped = append(skipped, broken...)
		o := openGroup{Name: g.Name, Instructions: c.instructions(g), Failed: c.failed(g.sources)}
		o.empty = len(o.Failed) > 0 && len(g.entries)+len(skills) == 0
		for _, s := range skills {
			o.Skills = append(o.Skills, skillLine{s.Name, strings.Join(strings.Fields(s.Description), " ")})
		}
		out = append(out, o)
	}
	return out, skipped, nil
}

// toolLines returns the visible tools of the group, with the first line of
// their descriptions.
func (c *catalogue) toolLines(g int, r *resolved) []toolLine {
	var out []toolLine
	for _, e := range c.groups[g].entries {
		if c.visible(e, r) {
			out = append(out, toolLine{e.name, firstLine(e.tool.Info().Description)})
		}
	}
	return out
}

// firstLine returns the first line or sentence, of at most about 120 bytes.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if before, _, ok := strings.Cut(s, ". "); ok {
		s = before + "."
	}
	const limit = 120
	if len(s) <= limit {
		return s
	}
	cut := strings.LastIndexByte(s[:limit], ' ')
	if cut <= 0 {
		cut = limit
	}
	return strings.ToValidUTF8(s[:cut], "") + " …"
}
