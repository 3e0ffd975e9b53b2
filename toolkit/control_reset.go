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

//go:embed text/reset_tools.txt
var resetText string

// ResetTools returns the control of AgentScope: one tool, reset_tools, whose arguments are the full desired state,
// one boolean per group. A group that is left out, or null, is closed. An unknown name or any other value that is not a
// boolean is an error and changes nothing. The boolean has the name of the group, but characters that model APIs refuse are
// replaced. Nil options mean the zero ResetOptions.
func ResetTools(options *ResetOptions) *Control {
	var r resetTools
	if options != nil {
		r.ResetOptions = *options
	}
	return &Control{Tools: r.tools, Hint: r.hint, Opens: r.opens, Static: !r.ShowActive}
}

// ResetOptions configure [ResetTools].
type ResetOptions struct {
	// ShowActive marks open groups in the field descriptions of reset_tools. The start of the list then changes
	// with every transition, which invalidates the provider's cache of the whole conversation.
	ShowActive bool

	// Cached says that the provider caches the beginning of requests. The model is then told to leave groups open:
	// closing a group changes the list of tools, which comes first, so that the provider reads the whole
	// conversation again at the full price. See [View.Closing].
	Cached bool

	// NewOnly limits the instructions in an answer to the groups that the call opened, instead of all open groups.
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
	names, _ := requestedGroups(tk, s, input) // the call itself reports the error
	return names
}

func (r resetTools) description() string {
	closing := " and close it when it no longer does; open groups take space in your context"
	if r.Cached {
		closing = ", and leave it open as long as you may need it again: closing one makes the whole conversation be read anew"
	}
	return strings.Replace(strings.TrimSpace(resetText), "{closing}", closing, 1)
}

func (r resetTools) tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	props := make([]property, len(groups))
	names := propertyNames(groups)
	for i, g := range groups {
		desc := g.Description
		if len(g.Parents) > 0 {
			desc += " (needs " + strings.Join(g.Parents, " and ") + ")"
		}
		if r.ShowActive && g.Active {
			desc += " (open now)"
		}
		props[i] = prop(names[i], `"type":"boolean"`, desc)
	}
	return []tool.Tool{&controlTool{
		info:  tool.Info{Name: resetTool, Description: r.description(), Input: schema(nil, props...), Control: true},
		scope: s, run: func(ctx context.Context, s *Scope, input json.RawMessage) (answer, error) {
			names, err := requestedGroups(tk, s, input)
			if err != nil {
				return answer{}, err
			}
			out, err := tk.Set(ctx, s, names...)
			if err != nil {
				return answer{}, err
			}
			return tk.report(ctx, s, out, reportOptions{newOnly: r.NewOnly && out.Changed(), closesOmitted: true, allTools: !out.Changed()})
		},
	}}
}

// propertyNames returns the name of each group's property: the name of the group, cut to the 64 characters that some
// model APIs allow there, and without characters that these APIs refuse.
func propertyNames(groups []GroupInfo) []string {
	used := map[string]bool{}
	for _, g := range groups {
		used[g.Name] = true
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		legal := strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.-", r) {
				return r
			}
			return '_'
		}, g.Name)
		legal = legal[:min(len(legal), 64)]
		name := legal
		for n := 2; name != g.Name && used[name]; n++ {
			name = fmt.Sprintf("%.60s_%d", legal, n) // 60, to stay within 64
		}
		names[i], used[name] = name, true
	}
	return names
}

// requestedGroups returns the names of the groups that the arguments of reset_tools set to true,
// in the order of the arguments. It checks all names before the values, so that one error names all unknown groups.
func requestedGroups(tk *Toolkit, s *Scope, input json.RawMessage) ([]string, error) {
	groups := tk.Groups(s)
	var known []string
	for _, g := range groups {
		known = append(known, g.Name)
	}
	members, err := parseObject(input)
	if err != nil {
		return nil, err
	}
	properties := propertyNames(groups)
	var unknown error
	for i, m := range members {
		if slices.Contains(known, m.name) { // models also take names from hints and answers
			continue
		}
		if at := slices.Index(properties, m.name); at >= 0 {
			members[i].name = known[at]
			continue
		}
		var err error = &GroupError{Group: m.name, Reason: ReasonUnknownGroup, Others: known}
		if unknown != nil {
			err = fmt.Errorf("%w; %w", unknown, err)
		}
		unknown = err
	}
	if unknown != nil {
		return nil, fmt.Errorf("%w; nothing was changed", unknown)
	}
	var names []string
	for _, m := range members {
		switch string(m.value) {
		case "true":
			names = append(names, m.name)
		case "false":
			names = slices.DeleteFunc(names, func(n string) bool { return n == m.name }) // a repeated name: the last value counts
		default:
			return nil, fmt.Errorf("group %q: the value must be true or false, not %s; nothing was changed", m.name, m.value)
		}
	}
	return names, nil
}

// A member is a name and value of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// parseObject returns the members of a JSON object in their order, so that the first wrong member gives the first error.
func parseObject(input json.RawMessage) ([]member, error) {
	if len(bytes.TrimSpace(input)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(input))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') || !json.Valid(input) {
		return nil, errors.New("the arguments must be a JSON object")
	}
	var out []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)}
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
