package toolkit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestManyTools: a tool is found by its name for few and for many tools, which are looked up
// differently, also one that another shadows and one that a source lists too.
func TestManyTools(t *testing.T) {
	for _, n := range []int{2, 10, 11, 16, 17, 33, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var names, more []string
			for i := range n {
				names = append(names, fmt.Sprintf("tool%d", i))
				more = append(more, fmt.Sprintf("remote%d", i))
			}
			tk := newToolkit(t, toolkit.Config{
				Preset:  toolkit.AgentScope(),
				Control: new(toolkit.Control),
				Basic:   toolkit.Group{Tools: versions("basic ", names), Sources: []tool.Source{&listing{names: append(more, names[0])}}},
				Groups:  []toolkit.Group{{Name: "g", Description: "G.", Tools: versions("shadowing ", names)}},
			})
			s := new(toolkit.Scope)
			for _, want := range []string{"basic ", "shadowing "} {
				v := newView(t, tk, s)
				if got := listed(v); len(got) != 2*n {
					t.Fatalf("%d tools are listed, want %d: %q", len(got), 2*n, got)
				}
				if got := v.Skipped(); len(got) != 1 || got[0].Tool != names[0] || !strings.Contains(got[0].Reason, "has this name") {
					t.Fatalf("skipped %+v", got)
				}
				for _, name := range slices.Concat(names, more) {
					tl, _, err := v.Resolve(context.Background(), name, nil)
					if err != nil || tl.Info().Name != name {
						t.Fatalf("%s: %v, %v", name, tl, err)
					}
					if f, ok := tl.(*fake); ok && strings.HasPrefix(name, "tool") && f.text != want+name {
						t.Errorf("%s ran %q, want the version of %q", name, f.text, want)
					}
				}
				if _, _, err := v.Resolve(context.Background(), "tool", nil); err == nil {
					t.Error("an unknown name was found")
				}
				if _, err := tk.Enable(context.Background(), s, "g"); err != nil {
					t.Fatal(err)
				}
			}
			if err := tk.Remove(more[n-1]); err == nil {
				t.Error("a tool that a source lists was removed")
			}
			if err := tk.Remove(names[n-1]); err != nil || slices.Contains(listed(newView(t, tk, s)), names[n-1]) {
				t.Errorf("%s is still there: %v", names[n-1], err)
			}
		})
	}
}

// versions returns tools that answer with the prefix and their name.
func versions(prefix string, names []string) []tool.Tool {
	tools := fakes(names...)
	for _, t := range tools {
		t.(*fake).text = prefix + t.(*fake).name
	}
	return tools
}
