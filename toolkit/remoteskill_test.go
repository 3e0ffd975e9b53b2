package toolkit_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// remoteFiles is a remote skill.
type remoteFiles map[string]string

func (f remoteFiles) Manifest() (list []skill.ManifestFile) {
	for _, name := range []string{"SKILL.md", "a.md"} {
		list = append(list, skill.ManifestFile{Name: name, Bytes: int64(len(f[name])), Digest: skill.Digest([]byte(f[name]))})
	}
	return list
}

func (f remoteFiles) FrontMatter() map[string]any { return nil }

func (f remoteFiles) Read(_ context.Context, name string) ([]byte, error) {
	return []byte(f[name]), nil
}

// A server is a loader of one remote skill.
type server struct {
	files remoteFiles
	known bool
	loads int
}

func (s *server) Load(context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	s.loads++
	s.known = true
	return s.Known(), nil, nil
}

func (s *server) Known() []*skill.Skill {
	if !s.known {
		return nil
	}
	return []*skill.Skill{{Name: "srv/refunds", Description: "Refunds.", Origin: "MCP server", Remote: s.files}}
}

// TestSkillsOfServers checks that a server is not contacted for the skills of a closed group, that the tool Skill is
// listed when there are skills, and that old instructions are not followed with new files.
func TestSkillsOfServers(t *testing.T) {
	srv := &server{files: remoteFiles{"SKILL.md": "---\nname: refunds\ndescription: R\n---\nPay.", "a.md": "A"}}
	tk, err := toolkit.New(toolkit.Config{Groups: []toolkit.Group{{Name: "srv", Description: "S.", Skills: []skill.Loader{srv}}}})
	if err != nil {
		t.Fatal(err)
	}
	var st toolstate.State
	ctx, scope := toolstate.With(t.Context(), &st), new(toolkit.Scope)
	call := func(name, input string) string {
		t.Helper()
		v, err := tk.View(ctx, scope)
		if err != nil {
			t.Fatal(err)
		}
		tl, args, err := v.Resolve(ctx, name, json.RawMessage(input))
		if err != nil {
			return err.Error()
		}
		c := tool.Call{ID: "1", Name: name, Input: args}
		col := tool.NewCollector(c)
		for ch, err := range tl.Call(ctx, c) {
			if err != nil {
				return err.Error()
			}
			col.Add(ch)
		}
		return col.Result().Text()
	}
	listed := func() bool {
		v, err := tk.View(ctx, scope)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(v.Tools(), func(i tool.Info) bool { return i.Name == "Skill" })
	}
	if listed() {
		t.Error("Skill is listed without any known skill")
	}
	if got := call("reset_tools", `{"srv":true}`); !strings.Contains(got, "srv/refunds: Refunds.") || !listed() {
		t.Errorf("opened, listed=%v: %s", listed(), got)
	}
	if got := call("reset_tools", `{}`); got == "" || srv.loads == 0 {
		t.Errorf("closed: %s", got)
	}
	loads := srv.loads
	if got := call("Skill", `{"skill":"srv/refunds"}`); srv.loads != loads || !strings.Contains(got, "is in ") {
		t.Errorf("a closed group: %d loads, %s", srv.loads-loads, got)
	}
	call("reset_tools", `{"srv":true}`)
	for _, step := range []struct {
		text, file, input, want string
	}{
		{"Pay.", "A", `{"skill":"srv/refunds"}`, "Pay."},
		{"Pay.", "A", `{"skill":"srv/refunds","file":"a.md"}`, "A"},
		{"Pay.", "B", `{"skill":"srv/refunds","file":"a.md"}`, "read its text again"},
		{"Pay.", "B", `{"skill":"srv/refunds","file":"a.md"}`, "read its text again"},
		{"Pay.", "B", `{"skill":"srv/refunds"}`, "Pay."},
		{"Pay.", "B", `{"skill":"srv/refunds","file":"a.md"}`, "B"},
	} {
		srv.files = remoteFiles{"SKILL.md": "---\nname: refunds\ndescription: R\n---\n" + step.text, "a.md": step.file}
		if got := call("Skill", step.input); !strings.Contains(got, step.want) {
			t.Errorf("%s with %s: %s", step.input, step.file, got)
		}
	}
}
