package builtin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

func builtins(t *testing.T, dirs ...string) map[string]tool.Tool {
	t.Helper()
	tools, err := builtin.New(builtin.Config{Dirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]tool.Tool{}
	for _, tl := range tools {
		byName[tl.Info().Name] = tl
	}
	return byName
}

// TestEngineCases checks the rows about the built-in tools; package permission's tests check the others.
func TestEngineCases(t *testing.T) {
	tmp := t.TempDir()
	if err := os.Mkdir(filepath.Join(tmp, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(tmp, "link")); err != nil {
		t.Fatal(err)
	}
	tools := builtins(t, "/tmp")
	ran := casetest.CheckEngine(t, tmp, nil, func(r casetest.EngineRow) *permission.Call {
		tl, ok := tools[r.Tool]
		if !ok {
			return nil
		}
		return tool.PermissionCall(tl, r.Input)
	})
	if ran < 80 {
		t.Errorf("only %d rows were checked", ran)
	}
}

func TestBashCases(t *testing.T) {
	type row struct {
		Level, Command, Mode, Expect string
		WorkingDirs                  []string `json:"working_dirs"`
		Rules                        []casetest.Rule
		Immune                       bool `json:"bypass_immune"`
		Loose                        bool
	}
	deviations := casetest.LoadDeviations(t, "deviations_bash.json")
	bash := builtins(t, "/tmp/project")["Bash"]
	for _, r := range casetest.Rows[row](t, "bash_permission.jsonl") {
		input, err := json.Marshal(map[string]string{"command": r.Command})
		if err != nil {
			t.Fatal(err)
		}
		call := tool.PermissionCall(bash, input)
		p := casetest.Policy(t, r.Mode, r.Rules, r.WorkingDirs)
		var got string
		var safety bool
		if r.Level == "tool" {
			v := call.Checker.Check(p)
			if got = string(v.Behavior); got == "" {
				got = "passthrough"
			}
			safety = v.Safety
			if r.Loose && got != "allow" && r.Expect != "allow" {
				continue // upstream's test asserts only that it is not allowed
			}
		} else {
			d := permission.Decide(p, call)
			got, safety = string(d.Behavior), d.Safety
		}
		if (got != r.Expect || safety != r.Immune) && !deviations.Allowed(r.Level+" "+r.Command) {
			t.Errorf("%s %s %q %v: %s safety=%v, upstream %s %v", r.Level, r.Mode, r.Command, r.Rules, got, safety, r.Expect, r.Immune)
		}
	}
}
