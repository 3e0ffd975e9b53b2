//go:build interop

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTypeScriptClient connects another author's client to the gateway over standard input and output, with our
// demo server behind it.
func TestTypeScriptClient(t *testing.T) {
	dir := t.TempDir()
	kitbag := filepath.Join(dir, "kitbag")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", kitbag, "../../../cmd/kitbag").CombinedOutput(); err != nil {
		t.Fatalf("build: %v %s", err, out)
	}
	servers := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(servers, []byte(`{"mcpServers":{"demo":{"command":"`+kitbag+`","args":["mcp","serve","--demo"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out := runClient(t, "reset_tools", "demo__add demo__countdown demo__echo demo__note_add demo__weather_lookup",
		kitbag, "mcp", "serve", "--mcp", servers, "--allow", "demo__countdown")
	if !strings.Contains(out, "progress 1/2 1 left\n") {
		t.Errorf("no progress:\n%s", out)
	}
}

// runClient runs client.mjs and checks its output: first it lists the tools in before, and then also those of
// the group demo.
func runClient(t *testing.T, before, group string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", append([]string{"client.mjs"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{
		"list " + before,
		"changed",
		`result false {"active":[{"name":"demo","opened":true`,
		"list " + before + " " + group,
		"asked Allow demo__weather_lookup?",
		`result false {"city":"Oslo","temperature_c":`,
		`result false "counted down from 2"`,
	}
	// The client may drop progress that arrives together with the result.
	got := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n"), func(line string) bool { return strings.HasPrefix(line, "progress ") })
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Fatalf("want\n%s\ngot\n%s", strings.Join(want, "\n"), out)
	}
	return string(out)
}
