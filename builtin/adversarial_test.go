//go:build unix

package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// An attack is a row of tools_adversarial.jsonl. The test replaces its paths below /p, /tmp or /tmp/project by
// paths below a temporary directory.
type attack struct {
	ID, Tool, Expect, Mode, Setup string
	Args                          map[string]any
	WorkingDirs                   []string `json:"working_dirs"`
	Cwd                           string
	Rules                         []struct{ Tool, Content, Behavior string }
}

func TestToolsAdversarial(t *testing.T) {
	for _, row := range casetest.Rows[attack](t, "tools_adversarial.jsonl") {
		t.Run(row.ID, func(t *testing.T) {
			dir := files(t, map[string]string{
				"p/crlf.txt": "a\r\nb\r\nd\n", "p/latin1.txt": "b\xe9\n", "p/f": "aaa", "p/x": "#!/bin/sh\ntouch ran\n",
				"project/x.txt": "x -e x\n", "project/.git/hooks/pre-commit": "", "project/.env": "K=v", "out/y": "",
			})
			if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, dir)
			row.run(t, dir)
			if row.Tool != "Edit" && row.Tool != "Write" && row.Tool != "Bash" && !slices.Equal(snapshot(t, dir), before) {
				t.Error("files have changed")
			}
		})
	}
}

// snapshot lists the files of a tree with their sizes.
func snapshot(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		all = append(all, path+" "+info.Mode().String()+" "+time.Duration(info.Size()).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (a attack) run(t *testing.T, dir string) {
	project := filepath.Join(dir, "project")
	if link, target, ok := strings.Cut(strings.TrimSuffix(a.Setup, " inside the project"), " -> "); ok {
		target = strings.Replace(target, "/tmp/out", filepath.Join(dir, "out"), 1)
		if err := os.Symlink(target, filepath.Join(project, link)); err != nil {
			t.Fatal(err)
		}
	}
	for k, v := range a.Args {
		if s, ok := v.(string); ok && (k == "path" || k == "file_path") {
			a.Args[k] = a.place(s, dir)
		}
	}
	if a.Tool == "Grep" && a.Args["path"] == nil {
		a.Args["path"] = project
	}
	config := Config{Dirs: []string{project}}
	if a.Cwd != "" {
		config.Dirs = []string{dir}
	}
	tools, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tools, func(tl tool.Tool) bool { return tl.Info().Name == a.Tool })
	switch {
	case a.Tool == "reset_tools":
		return // belongs to package toolkit, which tests it
	case i < 0: // a tool without patterns
		other := tool.Must(tool.New(a.Tool, "Runs.", func(context.Context, struct{}) (string, error) { return "", nil }))
		a.judge(t, other, project)
	case a.Mode != "" || strings.Contains(a.Expect, "policy decision"):
		a.judge(t, tools[i], project)
	default:
		a.call(t, tools[i])
	}
}

// place returns the test's path for a path of the row.
func (a attack) place(path, dir string) string {
	for _, p := range [][2]string{{"/tmp/", dir + "/"}, {"/p/", dir + "/p/"}} {
		if rest, ok := strings.CutPrefix(path+"/", p[0]); ok {
			return strings.TrimSuffix(p[1]+rest, "/")
		}
	}
	if path == "/" {
		return dir
	}
	return path
}

// judge checks the decision in the mode of the row, and in the strict modes.
func (a attack) judge(t *testing.T, tl tool.Tool, project string) {
	input, err := json.Marshal(a.Args)
	if err != nil {
		t.Fatal(err)
	}
	p := &permission.Policy{Dirs: []string{project}, Mode: permission.ModeDefault}
	if a.Mode != "" {
		p.Mode = permission.Mode(strings.ReplaceAll(a.Mode, "_", "-"))
	}
	for _, r := range a.Rules {
		p.Rules = append(p.Rules, permission.Rule{Tool: r.Tool, Pattern: r.Content, Behavior: permission.Behavior(r.Behavior)})
	}
	want, safety := permission.Ask, strings.Contains(a.Expect, "immune") || strings.Contains(a.Expect, "policy decision")
	switch {
	case strings.Contains(a.Expect, "allowed"):
		want = permission.Allow
	case len(p.Rules) > 0:
		want = permission.Deny
	}
	d := permission.Decide(p, tool.PermissionCall(tl, input))
	if d.Behavior != want || d.Safety != safety {
		t.Errorf("%+v, want %s (safety %v)", d, want, safety)
	}
	if want == permission.Ask {
		p.Mode = permission.ModeDontAsk
		if d := permission.Decide(p, tool.PermissionCall(tl, input)); d.Behavior != permission.Deny {
			t.Errorf("dont-ask: %+v, want deny", d)
		}
	}
}

// call runs the tool.
func (a attack) call(t *testing.T, tl tool.Tool) {
	input, err := json.Marshal(a.Args)
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	if tl.Info().Name != "Read" { // its file may be endless
		path, _ = a.Args["file_path"].(string)
	}
	before, _ := os.ReadFile(path)
	start := time.Now()
	got := call(t.Context(), tl, string(input))
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	text := got.Text()
	switch a.Expect {
	case "only the matched bytes change":
		after, _ := os.ReadFile(path)
		if !bytes.Equal(after, bytes.Replace(before, []byte("b"), []byte("c"), 1)) {
			t.Errorf("the file has %q", after)
		}
	case "treated as a pattern", "no duplicates, linear work", "bounded by a timeout and output cap":
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		if got.Outcome != message.OutcomeSuccess || len(slices.Compact(slices.Clone(lines))) != len(lines) {
			t.Errorf("%s: %s", got.Outcome, text)
		}
	case "returns within about the timeout and kills the whole process group":
		want(t, got, "error", "timed out")
	case "returns when the shell exits (or kills the group)":
		want(t, got, "success", "x\n")
	case "stdin is empty":
		want(t, got, "success", "\n")
	default: // every other expectation is an error that changes nothing
		if after, _ := os.ReadFile(path); got.Outcome != message.OutcomeError || !bytes.Equal(after, before) {
			t.Errorf("%s: %.300s", got.Outcome, text)
		}
	}
}
