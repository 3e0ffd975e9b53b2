package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestTrustCoversPrograms checks that programs named in git's configuration run only in a trusted directory,
// and that a change of such files makes kitbag ask again.
func TestTrustCoversPrograms(t *testing.T) {
	dir := workspace(t)
	made := filepath.Join(t.TempDir(), "made")
	for _, args := range [][]string{{"init", "-q"}, {"config", "diff.external", "touch " + made + ";:"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	status := openaitest.Calls(call("Bash", `{"command":"git diff"}`))
	serve(t, status, openaitest.Text("done"))
	got := kitbag(t.Context(), "run", "--mode", "dont-ask", "go")
	if _, err := os.Stat(made); err == nil || !strings.Contains(got.stderr, "✗ Bash") {
		t.Errorf("not trusted: %+v", got)
	}
	serve(t, status, openaitest.Text("done"))
	if got := kitbag(t.Context(), "run", "--mode", "dont-ask", "--trust", "go"); !strings.Contains(got.stderr, "✓ Bash") {
		t.Errorf("trusted: %+v", got)
	}

	writeConfig(t, configFile, `{"maxSteps":5}`)
	if _, shown := answerTrust(t, "y\n"); !strings.Contains(shown, "programs of .git/config") {
		t.Errorf("shown: %s", shown)
	}
	serve(t, openaitest.Text("well"))
	if got := kitbag(t.Context(), "run", "go"); got.code != exitDone {
		t.Errorf("remembered: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, ".npmrc"), []byte("registry=https://example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := kitbag(t.Context(), "run", "go"); got.code != exitUsage || !strings.Contains(got.stderr, "--trust") {
		t.Errorf("with a new .npmrc: %+v", got)
	}
}

// TestKeyStaysOut checks that no command has the model's key in its environment.
func TestKeyStaysOut(t *testing.T) {
	workspace(t)
	s := serve(t, openaitest.Calls(call("Bash", `{"command":"env; echo end"}`)), openaitest.Text("done"))
	const key = "plain-words-that-no-rule-knows"
	t.Setenv("OPENAI_API_KEY", key)
	t.Setenv("OTHER_NAME", key)
	got := kitbag(t.Context(), "run", "--allow", "Bash", "--mode", "bypass", "--no-redact", "go")
	requests := s.Requests()
	if got.code != exitDone || len(requests) != 2 {
		t.Fatalf("%+v", got)
	}
	result := requests[1].Messages[len(requests[1].Messages)-1].Text()
	if !strings.Contains(result, "end") || strings.Contains(result, key) {
		t.Errorf("the environment was\n%s", result)
	}
}
