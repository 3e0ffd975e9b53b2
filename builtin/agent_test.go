package builtin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// agentIn runs the turns with an agent that has the tools of this package, in a directory with a file f. It
// approves every question, and calls meanwhile before the first approval. It returns the questions.
func agentIn(t *testing.T, mode permission.Mode, meanwhile func(dir string), turns ...scripted.Turn) (dir string, asked []event.Approval) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("one two\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	all, err := builtin.New(builtin.Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	a := skillAgent(t, dir, agent.Config{Toolkit: toolkit.Of(all...), Policy: permission.Policy{Mode: mode},
		Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
			if asked = append(asked, q); meanwhile != nil {
				meanwhile(dir)
				meanwhile = nil
			}
			return event.Confirm{Allow: true}, nil
		}}, append(turns, scripted.Say("done"))...)
	for _, err := range a.Run(t.Context(), new(agent.State), agent.Say("go")) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, asked
}

func contentOf(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

type in map[string]string

// TestEditsOfOneFile checks that several calls of one answer that change the same file run in order, each on
// the result of the one before, and that each asks at most once.
func TestEditsOfOneFile(t *testing.T) {
	for mode, questions := range map[permission.Mode]int{permission.ModeDefault: 4, permission.ModeAcceptEdits: 0} {
		dir, asked := agentIn(t, mode, nil, scripted.Call("Read", in{"file_path": "f"}),
			scripted.Call("Edit", in{"file_path": "f", "old_string": "one", "new_string": "1"}).And(
				scripted.Call("Edit", in{"file_path": "f", "old_string": "two", "new_string": "2"}),
				scripted.Call("Write", in{"file_path": "d/n", "content": "n"}), scripted.Call("Write", in{"file_path": "d/m", "content": "m"})))
		if got := contentOf(t, filepath.Join(dir, "f")); got != "1 2\n" {
			t.Errorf("%s: %q", mode, got)
		}
		for _, name := range []string{"n", "m"} {
			if got := contentOf(t, filepath.Join(dir, "d", name)); got != name {
				t.Errorf("%s: %s is %q", mode, name, got)
			}
		}
		if len(asked) != questions {
			t.Errorf("%s: asked %d times, want %d", mode, len(asked), questions)
		}
	}
}

// TestLinkWhileAsked checks that a link put in the path before the approval causes another question, about its
// target.
func TestLinkWhileAsked(t *testing.T) {
	outside := t.TempDir()
	dir, asked := agentIn(t, permission.ModeDefault, func(dir string) {
		if err := os.Symlink(outside, filepath.Join(dir, "new")); err != nil {
			t.Error(err)
		}
	}, scripted.Call("Write", in{"file_path": "new/n", "content": "n"}))
	if len(asked) != 2 {
		t.Errorf("asked %d times in %s, want 2", len(asked), dir)
	}
}

// TestApprovalShowsWhatRuns checks that the question shows the text that Bash runs if it differs from the model's.
func TestApprovalShowsWhatRuns(t *testing.T) {
	dir, asked := agentIn(t, permission.ModeDefault, nil, runs("touch   x;# c\ntouch y"), runs("touch z"))
	if len(asked) != 2 || asked[0].Runs != "touch x\ntouch y" || asked[1].Runs != "" {
		t.Errorf("%+v", asked)
	}
	for _, name := range []string{"x", "y", "z"} {
		contentOf(t, filepath.Join(dir, name))
	}
}
