package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The controls below are copies of the package's own, written with its exported names. They run in the
// same tests, which shows that another package can write equal controls.

// outsideTool is a control tool that calls a function.
type outsideTool struct {
	info tool.Info
	run  func(ctx context.Context, input json.RawMessage) (*tool.Result, error)
}

func (t outsideTool) Info() tool.Info { return t.info }

func (t outsideTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		res, err := t.run(ctx, call.Input)
		if err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		for _, b := range res.Blocks {
			yield(tool.Chunk{Block: b}, nil)
		}
	}
}

func outsideText(text string) *tool.Result {
	return &tool.Result{Blocks: []message.Block{&message.Text{Text: strings.TrimSpace(text)}}}
}

// outsideReset returns a copy of [toolkit.ResetTools].
func outsideReset() *toolkit.Control {
	const name = "reset_tools"
	wanted := func(tk *toolkit.Toolkit, s *toolkit.Scope, input json.RawMessage) ([]string, error) {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(input, &members); err != nil {
			return nil, err
		}
		var open []string
		for _, g := range tk.Groups(s) {
			var on bool
			if v, ok := members[g.Name]; ok && json.Unmarshal(v, &on) != nil {
				return nil, fmt.Errorf("group %q: the value must be true or false", g.Name)
			}
			if on {
				open = append(open, g.Name)
			}
			delete(members, g.Name)
		}
		for unknown := range members {
			open = []string{unknown} // the error of Set lists the groups
		}
		return open, nil
	}
	return &toolkit.Control{
		Static: true,
		Tools: func(tk *toolkit.Toolkit, s *toolkit.Scope, groups []toolkit.GroupInfo) []tool.Tool {
			properties := map[string]any{}
			for _, g := range groups {
				properties[g.Name] = map[string]any{"type": "boolean", "description": g.Description}
			}
			info := tool.Info{Name: name, Description: "Opens groups.", Control: true,
				Input: mustJSON(map[string]any{"type": "object", "properties": properties})}
			return []tool.Tool{outsideTool{info, func(ctx context.Context, input json.RawMessage) (*tool.Result, error) {
				open, err := wanted(tk, s, input)
				if err != nil {
					return nil, err
				}
				out, err := tk.Set(ctx, s, open...)
				if err != nil {
					return nil, err
				}
				return tk.ReportAll(ctx, s, out)
			}}}
		},
		Opens: func(tk *toolkit.Toolkit, s *toolkit.Scope, _ string, input json.RawMessage) []string {
			open, _ := wanted(tk, s, input)
			return open
		},
		Hint: func(_ string, active, want []string) string {
			return fmt.Sprintf(`call %s with {"%s":true}`, name, strings.Join(append(slices.Clone(active), want...), `":true,"`))
		},
	}
}

// outsideDiscover returns a copy of [toolkit.Discover].
func outsideDiscover() *toolkit.Control {
	control := func(name string, required []string, readOnly bool) tool.Info {
		return tool.Info{Name: name, Description: name, Control: true, ReadOnly: readOnly,
			Input: mustJSON(map[string]any{"type": "object", "required": required})}
	}
	return &toolkit.Control{
		Static: true,
		Caller: "call_tool",
		Tools: func(tk *toolkit.Toolkit, s *toolkit.Scope, groups []toolkit.GroupInfo) []tool.Tool {
			never := func(context.Context, json.RawMessage) (*tool.Result, error) {
				return nil, errors.New("call_tool was run")
			}
			return []tool.Tool{
				outsideTool{control("search_tools", []string{"query"}, true), func(ctx context.Context, input json.RawMessage) (*tool.Result, error) {
					return outsideSearch(ctx, tk, s, input)
				}},
				outsideTool{control("describe_tools", []string{"names"}, true), func(ctx context.Context, input json.RawMessage) (*tool.Result, error) {
					return outsideDescribe(ctx, tk, s, input)
				}},
				outsideTool{control("call_tool", []string{"name", "arguments"}, false), never},
			}
		},
		Hint: func(name string, _, _ []string) string {
			return fmt.Sprintf(`call it with call_tool: {"name":%q,"arguments":{…}}`, name)
		},
		Forward: func(input json.RawMessage) (string, json.RawMessage, error) {
			var in struct {
				Name      string
				Arguments json.RawMessage
			}
			if err := json.Unmarshal(input, &in); err != nil {
				return "", nil, fmt.Errorf("the arguments must be an object: %w", err)
			}
			if in.Name == "" {
				return "", nil, errors.New("call_tool needs the name of a tool")
			}
			return in.Name, in.Arguments, nil
		},
	}
}

func outsideSearch(ctx context.Context, tk *toolkit.Toolkit, s *toolkit.Scope, input json.RawMessage) (*tool.Result, error) {
	var in struct{ Query, Group string }
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	found, err := tk.Search(ctx, s, in.Query, in.Group, 10)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	if len(found) == 0 {
		b.WriteString("No tool was found. Try other words, or search in one of the groups with an empty query.\n")
	}
	for _, i := range found {
		var of []string
		for _, g := range tk.Groups(s) {
			if slices.Contains(g.Tools, i.Name) {
				of = append(of, g.Name)
			}
		}
		fmt.Fprintf(&b, "- %s (%s): %s\n", i.Name, strings.Join(of, ", "), i.Description)
	}
	return outsideText(b.String()), nil
}

func outsideDescribe(ctx context.Context, tk *toolkit.Toolkit, s *toolkit.Scope, input json.RawMessage) (*tool.Result, error) {
	var in struct{ Names []string }
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	all, err := tk.Search(ctx, s, "", "", 0)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, name := range in.Names {
		i := slices.IndexFunc(all, func(i tool.Info) bool { return i.Name == name })
		if i < 0 {
			v, err := tk.View(ctx, s)
			if err != nil {
				return nil, err
			}
			_, _, err = v.Resolve(ctx, "call_tool", mustJSON(map[string]any{"name": name}))
			fmt.Fprintf(&b, "%v\n", err)
			continue
		}
		fmt.Fprintf(&b, "%s: %s\nArguments: %s\n", name, all[i].Description, all[i].Input)
		for _, g := range tk.Groups(s) {
			if slices.Contains(g.Tools, name) && g.Instructions != "" {
				fmt.Fprintf(&b, "%s\n", g.Instructions)
			}
		}
	}
	return outsideText(b.String()), nil
}
