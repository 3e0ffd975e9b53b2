package toolkit_test

import (
	"context"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// FuzzCalls sends arbitrary calls to every control: an error has a
// text, structured answers are valid JSON, and quotas hold.
func FuzzCalls(f *testing.F) {
	f.Add("reset_tools", []byte(`{"a":true,"a":false,"b":true}`))
	f.Add("enable_tools", []byte(`{"groups":["b","a","b"]}`))
	f.Add("a.activate", []byte(`{}`))
	f.Add("call_tool", []byte(`{"name":"x","arguments":"{"}`))
	f.Add("search_tools", []byte(`{"query":"x y \u0000","group":"a"}`))
	f.Add("describe_tools", []byte(`{"names":["x","\ud800"]}`))
	f.Add("Skill", []byte(`{"skill":"../x"}`))
	b := group("b", "y")
	b.Parents = []string{"a"}
	a := group("a", "x")
	a.Skills = loaders([]string{"one"})
	var kits []*toolkit.Toolkit
	for _, control := range []*toolkit.Control{toolkit.ResetTools(nil), toolkit.EnableDisable(), toolkit.PerGroup(), toolkit.Discover()} {
		kits = append(kits, newToolkit(f, toolkit.Config{Control: control, Groups: []toolkit.Group{a, b}, MaxTools: 1}))
	}
	f.Fuzz(func(t *testing.T, name string, input []byte) {
		for _, tk := range kits {
			s := new(toolkit.Scope)
			v := newView(t, tk, s)
			tl, args, err := v.Resolve(context.Background(), name, json.RawMessage(input))
			if err != nil {
				if err.Error() == "" {
					t.Error("an error without text")
				}
				continue
			}
			for chunk, err := range tool.Run(context.Background(), tl, tool.Call{Name: name, Input: args}) {
				if err != nil {
					t.Error(err)
				}
				if chunk.Structured != nil && !json.Valid(chunk.Structured) {
					t.Errorf("%s answers %s", name, chunk.Structured)
				}
			}
			if got := newView(t, tk, s).Reminder(); !utf8.ValidString(got) {
				t.Errorf("reminder: %q", got)
			}
			if active, _ := s.Active(); len(active) > 1 {
				t.Errorf("%s %s opened %q", name, input, active)
			}
		}
	})
}
