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

// TestTypeScriptClient is a client that is not ours in front of the gateway, over
// standard input and output, with our demo server behind it.
func TestTypeScriptClient(t *testing.T) {
	dir := t.TempDir()
	kitbag := filepath.Join(dir, "kitbag")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", kitbag, "../../cmd/kitbag").CombinedOutput(); err != nil {
		t.Fatalf("build: %v %s", err, out)
	}
	servers := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(servers, []byte(`{"mcpServers":{"demo":{"command":"`+kitbag+`","args":["mcp","serve","--demo"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", "client.mjs", kitbag, "mcp", "serve", "--mcp", servers, "--allow", "demo__countdown").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := `list reset_tools
changed
result false {"active":[{"name":"demo","opened":true
list reset_tools demo__add demo__countdown demo__echo demo__note_add demo__weather_lookup
asked Allow demo__weather_lookup?
result false {"city":"Oslo","temperature_c":
progress 1/2 1 left
result false "counted down from 2"`
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	// The last progress comes together with the result, after which the client
	// may drop it.
	got = slices.DeleteFunc(got, func(line string) bool { return line == "progress 2/2 0 left" })
	for i, w := range strings.Split(want, "\n") {
		if i >= len(got) || !strings.HasPrefix(got[i], w) {
			t.Fatalf("line %d is not %q:\n%s", i+1, w, out)
		}
	}
}
