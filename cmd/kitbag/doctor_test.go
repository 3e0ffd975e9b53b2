package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestDoctor has rows of a set-up, and of the states that the checks find.
func TestDoctor(t *testing.T) {
	ping := openaitest.Calls(call("ping", `{}`))
	for _, row := range []struct {
		why, config string
		turns       []openaitest.Turn
		args        []string
		code        int
		want        map[string]string // state by name
		says        string
	}{
		{"all is well", `{"window": 32000}`, []openaitest.Turn{ping, openaitest.Text("ok")}, []string{"--trust"}, exitDone,
			map[string]string{"configuration": checkOK, "model": checkOK, "tools": checkOK, "window": checkOK}, "32000 tokens"},
		{"no call", ``, []openaitest.Turn{openaitest.Text("pong")}, nil, exitDone,
			map[string]string{"model": checkOK, "tools": checkWarning, "window": checkWarning}, "KITBAG_API"},
		{"a wrong key", ``, []openaitest.Turn{openaitest.Status(401, `{"error":{"message":"bad key"}}`)}, nil, exitError,
			map[string]string{"model": checkFailed, "window": checkWarning}, "check Config.Key (OPENAI_API_KEY)"},
		{"a fallback without a key", ``, []openaitest.Turn{ping, openaitest.Text("ok")}, []string{"--fallback", "claude-x"}, exitError,
			map[string]string{"model": checkOK, "fallback claude-x: model": checkFailed}, "ANTHROPIC_API_KEY"},
		{"a broken file", `{"model": 1}`, nil, nil, exitError, map[string]string{"configuration": checkFailed}, "model must be a string"},
		{"a server that does not start", `{"mcpServers": {"gone": {"command": "/nowhere/gone"}}}`, []openaitest.Turn{ping, openaitest.Text("ok")}, []string{"--trust"}, exitError,
			map[string]string{"model": checkOK, "MCP server gone": checkFailed}, "kitbag mcp status"},
	} {
		workspace(t)
		if row.config != "" {
			if err := os.WriteFile(configFile, []byte(row.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		serve(t, row.turns...)
		got := kitbag(t.Context(), append([]string{"doctor", "--json"}, row.args...)...)
		var checks []check
		if err := json.Unmarshal([]byte(got.out), &checks); err != nil {
			t.Fatalf("%s: %v: %+v", row.why, err, got)
		}
		states := map[string]string{}
		for _, c := range checks {
			states[c.Name] = c.State
			if c.State != checkOK && c.Remedy == "" {
				t.Errorf("%s: %s does not say what to do", row.why, c.Name)
			}
		}
		for name, want := range row.want {
			if states[name] != want {
				t.Errorf("%s: %s is %q, want %q: %s", row.why, name, states[name], want, got.out)
			}
		}
		if got.code != row.code || !strings.Contains(got.out, row.says) {
			t.Errorf("%s: %+v", row.why, got)
		}
	}
}

// TestInit writes what is answered, and asks again for what is not valid. It never touches a file.
func TestInit(t *testing.T) {
	workspace(t)
	answer := func(typed string) (string, error) {
		p := newPrompt(strings.NewReader(typed), new(bytes.Buffer))
		err := writeInit(t.Context(), p)
		for range p.lines { // wait for the reader to end
		}
		data, _ := os.ReadFile(configFile)
		return string(data), err
	}
	if got, err := answer("http://x\n"); err == nil || got != "" {
		t.Errorf("after the end of the input: %v, %q", err, got)
	}
	want := `{
  "model": "m",
  "api": "anthropic",
  "baseURL": "http://localhost:1/v1",
  "permissions": {
    "mode": "accept-edits",
    "allow": [
      "Bash(go test:*)"
    ]
  }
}
`
	got, err := answer("localhost\nhttp://localhost:1/v1\nm\nanthropc\nanthropic\nyolo\naccept-edits\nBash(\nBash(go test:*)\n\n")
	if err != nil || got != want {
		t.Errorf("%v: %s", err, got)
	}
	if _, err := readProjectConfig(); err != nil {
		t.Error(err)
	}
	if again, err := answer("\n\n\n\n"); err == nil || again != want {
		t.Errorf("%v: %s", err, again)
	}
	if got := kitbag(t.Context(), "init"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}
