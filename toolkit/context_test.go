package toolkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// served is a tool with a given definition, such as one of a recorded server.
type served struct{ info tool.Info }

func (s served) Info() tool.Info { return s.info }

func (s served) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) { yield(tool.Text("done"), nil) }
}

// servers returns a group for each recorded server in the folder named by
// KITBAG_MCP_TOOLS, by default testdata/mcp_tools at the root of the repository.
func servers(tb testing.TB) []toolkit.Group {
	tb.Helper()
	dir := os.Getenv("KITBAG_MCP_TOOLS")
	if dir == "" {
		dir = filepath.Join("..", "testdata", "mcp_tools")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no server in %s: %v", dir, err)
	}
	var groups []toolkit.Group
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		var list struct {
			Server string
			Tools  []struct {
				Name, Description string
				InputSchema       json.RawMessage
			}
		}
		groupcase.Decode(tb, raw, &list)
		g := toolkit.Group{Name: list.Server, Description: fmt.Sprintf("The %d tools of the server %s.", len(list.Tools), list.Server)}
		for _, t := range list.Tools {
			g.Tools = append(g.Tools, served{tool.Info{Name: "mcp__" + list.Server + "__" + t.Name, Description: t.Description, Input: t.InputSchema}})
		}
		groups = append(groups, g)
	}
	return groups
}

// wire returns the list of tools in the form of a request.
func wire(tb testing.TB, v *toolkit.View) string {
	var b strings.Builder
	for _, i := range v.Tools() {
		data, err := json.Marshal(map[string]any{"type": "function", "function": map[string]any{
			"name": i.Name, "description": i.Description, "parameters": i.Input}})
		if err != nil {
			tb.Fatal(err)
		}
		b.Write(append(data, ','))
	}
	return b.String()
}

// contexts returns the list of tools that each kind of grouping sends per step.
func contexts(tb testing.TB) (allOn, closed, open, found string) {
	groups := servers(tb)
	list := func(control *toolkit.Control, names ...string) string {
		tk, s := newToolkit(tb, toolkit.Config{Groups: servers(tb), Control: control}), new(toolkit.Scope)
		if _, err := tk.Enable(context.Background(), s, names...); err != nil {
			tb.Fatal(err)
		}
		return wire(tb, newView(tb, tk, s))
	}
	var all []string
	for _, g := range groups {
		all = append(all, g.Name)
	}
	return list(new(toolkit.Control), all...), list(nil), list(nil, all[len(all)-1]), list(toolkit.Discover())
}

// TestContextCost: closed groups take at most 1 % of the size of all tools, and opening one only appends.
func TestContextCost(t *testing.T) {
	allOn, closed, open, found := contexts(t)
	for name, small := range map[string]string{"reset_tools with nothing open": closed, "Discover": found} {
		if len(small)*100 > len(allOn) {
			t.Errorf("%s sends %d bytes of %d; at most 1 %% is allowed", name, len(small), len(allOn))
		}
	}
	if !strings.HasPrefix(open, closed) {
		t.Errorf("opening a group changes the %d bytes sent before", len(closed))
	}
}

// BenchmarkContextCost reports the bytes and tokens that each kind of grouping
// sends with every step, and how much of the previous list stays a prefix when a
// group opens.
func BenchmarkContextCost(b *testing.B) {
	allOn, closed, open, found := contexts(b)
	for _, row := range []struct{ name, list string }{
		{"all on", allOn}, {"reset_tools, nothing open", closed}, {"reset_tools, one group open", open}, {"discover", found},
	} {
		b.Run(row.name, func(b *testing.B) {
			for b.Loop() {
				_ = len(row.list)
			}
			b.ReportMetric(float64(len(row.list)), "bytes/step")
			b.ReportMetric(float64((len(row.list)+3)/4), "tokens/step")
			b.ReportMetric(100*float64(len(row.list))/float64(len(allOn)), "%of-all-on")
			if row.list == open {
				b.ReportMetric(100*float64(commonPrefix(closed, open))/float64(len(closed)), "%prefix-kept")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
