//go:build interop

package interop

import (
	"context"
	"fmt"
	"iter"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// served serves a toolkit with a group, tools that stream and that need approval, and a skill. It returns the
// server's URL.
func served(t *testing.T) string {
	t.Helper()
	type city struct {
		City string `json:"city"`
	}
	type weather struct {
		City        string `json:"city"`
		Temperature int    `json:"temperature_c"`
	}
	lookup := tool.Must(tool.New("demo__weather_lookup", "The weather of a city.", func(_ context.Context, in city) (weather, error) {
		return weather{in.City, 7}, nil
	}))
	type from struct {
		N int `json:"n"`
		// Step exists because the client of the demo server sends it.
		Step int `json:"step_ms,omitempty"`
	}
	countdown := tool.Must(tool.NewStream("demo__countdown", "Counts down.", func(_ context.Context, in from) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for i := range in.N {
				line := fmt.Sprintf("%d/%d %d left", i+1, in.N, in.N-i-1)
				if !yield(tool.Chunk{ForUser: true, Block: &message.Text{Text: line}}, nil) {
					return
				}
			}
			yield(tool.Text(fmt.Sprintf("counted down from %d", in.N)), nil)
		}
	}))
	skills := skill.FS(fstest.MapFS{
		"pdf/SKILL.md":            {Data: []byte("---\nname: pdf\ndescription: Fills in forms. Use it for PDF files.\n---\n\n# PDF\n\nRead references/forms.md first.\n")},
		"pdf/references/forms.md": {Data: []byte("# Forms\n\nUse black ink.\n")},
	})
	tk, err := toolkit.New(toolkit.Config{
		Basic:  toolkit.Group{Skills: []skill.Loader{skills}},
		Groups: []toolkit.Group{{Name: "demo", Description: "Small tools.", Tools: []tool.Tool{lookup, countdown}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mcpserver.New(mcpserver.Config{Toolkit: tk, Name: "interop", Version: "1", MaxListBytes: -1, Policy: &permission.Policy{Rules: []permission.Rule{
		{Tool: "demo__countdown", Behavior: permission.Allow},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	t.Cleanup(func() { _ = s.Close() })
	return h.URL
}

// TestTypeScriptClientOverHTTP lists the tools, opens a group, is notified, lists them again, is asked a
// question and calls, over both transports.
func TestTypeScriptClientOverHTTP(t *testing.T) {
	for _, how := range [][]string{{}, {"sse"}} {
		t.Run(strings.Join(how, ""), func(t *testing.T) {
			runClient(t, "Skill reset_tools", "demo__weather_lookup demo__countdown", append(how, served(t)+"/mcp")...)
		})
	}
}

// TestInspector runs the MCP Inspector, which opens a session for each request: it lists in
// every transport, checks schemas, calls, and reads a skill as resources.
func TestInspector(t *testing.T) {
	url := served(t)
	for _, row := range []struct {
		name string
		args []string
		want []string // parts of the JSON that it prints
	}{
		{"list", []string{"--transport", "http", "--method", "tools/list", "--strict"}, []string{`"name":"reset_tools"`, `"name":"Skill"`}},
		{"list over SSE", []string{"--transport", "sse", "--method", "tools/list", "--strict"}, []string{`"name":"reset_tools"`}},
		{"list, stateless", []string{"--transport", "http", "--protocol-era", "modern", "--method", "tools/list", "--strict"},
			[]string{`"name":"search_tools"`, `"name":"call_tool"`}},
		{"open a group", []string{"--transport", "http", "--method", "tools/call", "--tool-name", "reset_tools", "--tool-args-json", `{"demo":true}`},
			[]string{`"opened":true`, `"demo__countdown"`}},
		{"call, stateless", []string{"--transport", "http", "--protocol-era", "modern", "--method", "tools/call", "--tool-name", "call_tool",
			"--tool-args-json", `{"name":"demo__countdown","arguments":{"n":2}}`}, []string{"counted down from 2"}},
		{"a skill", []string{"--transport", "http", "--method", "resources/read", "--uri", "skill://pdf/SKILL.md"}, []string{"Read references/forms.md first."}},
		{"resources", []string{"--transport", "http", "--method", "resources/list"}, []string{`"uri":"skill://pdf/SKILL.md"`, `"uri":"skill://pdf/references/forms.md"`}},
		{"a resource, stateless", []string{"--transport", "http", "--protocol-era", "modern", "--method", "resources/read", "--uri", "skill://pdf/references/forms.md"},
			[]string{"Use black ink."}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out := inspect(t, url+"/mcp", row.args...)
			for _, w := range row.want {
				if !strings.Contains(out, w) {
					t.Errorf("%s is not in %s", w, out)
				}
			}
		})
	}
}

// inspect runs the MCP Inspector and returns what it prints.
func inspect(t *testing.T, url string, args ...string) string {
	t.Helper()
	const inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	args = append([]string{inspector, "--cli", "--format", "json", "--quiet", url}, args...)
	out, err := exec.CommandContext(t.Context(), "node", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
