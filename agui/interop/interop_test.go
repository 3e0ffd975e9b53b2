//go:build interop

// Package interop tests package agui with the AG-UI client from npm.
package interop

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClient runs the npm client against a server in a process of its own.
func TestClient(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "server")
	if out, err := exec.Command("go", "build", "-o", bin, "./server").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	srv := exec.Command(bin, "127.0.0.1:0", t.TempDir())
	stdout, err := srv.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = srv.Process.Kill(), srv.Wait() }()
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", "client.mjs", strings.TrimSpace(url)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "CUSTOM REASONING_END REASONING_MESSAGE_CONTENT REASONING_MESSAGE_END REASONING_MESSAGE_START REASONING_START RUN_ERROR RUN_FINISHED RUN_STARTED " +
		"STATE_DELTA STATE_SNAPSHOT STEP_FINISHED STEP_STARTED SUBAGENT_FINISHED SUBAGENT_STARTED TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END TEXT_MESSAGE_START " +
		"TOOL_CALL_ARGS TOOL_CALL_END TOOL_CALL_RESULT TOOL_CALL_START\n"
	if string(out) != want {
		t.Errorf("the client has received and accepted\n%swant\n%s", out, want)
	}
}
