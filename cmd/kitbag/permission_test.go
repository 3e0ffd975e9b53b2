package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"
)

func TestPermissionExplain(t *testing.T) {
	workspace(t)
	got := kitbag(t.Context(), "permission", "explain", "--allow", "Bash(npm:*)", "git status && rm x")
	for _, want := range []string{"ASK: rm x", "git status  → read", "rm x  → delete", "--allow 'Bash(rm x:*)'", "allow rules"} {
		if got.code != exitDone || !strings.Contains(got.out, want) {
			t.Errorf("code %d, %q does not say %q (%s)", got.code, got.out, want, got.stderr)
		}
	}
	for _, args := range [][]string{{}, {"a", "b", "c"}, {"--json", "x"}, {"--mode", "fast", "ls"}, {"--deny", "Bash(", "ls"}, {"Write", "{"}} {
		if got := kitbag(t.Context(), append([]string{"permission", "explain"}, args...)...); got.code != exitUsage {
			t.Errorf("%q: code %d", args, got.code)
		}
	}
}

// TestPermissionExplainReportsRules checks that explain reports rules that can never match, with the rules to
// write instead.
func TestPermissionExplainReportsRules(t *testing.T) {
	workspace(t)
	got := kitbag(t.Context(), "permission", "explain", "--allow", "Bash(npm run build && npm test)", "--deny", "Bash(a && b)", "npm run build && npm test")
	const want = "this rule can never match: rule \"Bash(npm run build && npm test)\" (allow): command pattern \"npm run build && npm test\" joins several commands, " +
		"but a rule covers one simple command; write a rule for each: Bash(npm run build) and Bash(npm test)\n"
	if got.code != exitDone || !strings.HasPrefix(got.out, "ASK") || !strings.HasSuffix(got.out, want) || strings.Count(got.out, "can never match") != 1 {
		t.Errorf("%+v", got)
	}
	const mistyped = "this rule can never match: rule \"Bsh(ls)\" (allow): there is no tool \"Bsh\"; did you mean Bash?\n"
	got = kitbag(t.Context(), "permission", "explain", "--allow", "Bsh(ls)", "Wrte", "{}")
	if got.code != exitDone || !strings.Contains(got.out, "Wrte is not built in, so only its name is judged; did you mean Write?\n") || !strings.HasSuffix(got.out, mistyped) {
		t.Errorf("%+v", got)
	}
	if got := kitbag(t.Context(), "permission", "explain", "--allow", "Bash(npm test)", "npm test"); strings.Contains(got.out, "can never match") {
		t.Errorf("%+v", got)
	}
}

func TestPermissionExplainSettings(t *testing.T) {
	workspace(t)
	if err := os.WriteFile("s.json", []byte(`{"permissions":{"deny":["Bash(git:*)"],"odd":1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := kitbag(t.Context(), "permission", "explain", "--settings", "s.json", "git status")
	if got.code != exitDone || !strings.Contains(got.out, "DENY: denied by rule Bash(git:*)") || !strings.Contains(got.stderr, "permissions.odd has no effect") {
		t.Errorf("%+v", got)
	}
}

// TestPermissionExplainLines checks the contract of --json: one line for each call, in order, with every member.
func TestPermissionExplainLines(t *testing.T) {
	dir := workspace(t)
	rows := []struct{ in, want string }{
		{`{"tool":"Bash","input":{"command":"git status"},"mode":"default","cwd":"DIR"}`,
			`{"behavior":"allow","safety":false,"read_only":true,"reason":"read-only command","rule":null,"suggest":[],"commands":[{"argv":["git","status"],"effects":["read"]}]}`},
		{`{"tool":"Bash","input":{"command":"git commit -m x"},"mode":"default","rules":[{"tool":"Bash","pattern":"git commit:*","behavior":"allow"}],"cwd":"DIR"}`,
			`{"behavior":"allow","safety":false,"read_only":false,"reason":"allowed by rule Bash(git commit:*)","rule":"Bash(git commit:*)","suggest":[],"commands":[{"argv":["git","commit","-m","x"],"effects":["write"]}]}`},
		{`{"tool":"Bash","input":{"command":"git push"},"mode":"default","rules":[{"tool":"Bash","pattern":"","behavior":"allow"}],"cwd":"DIR"}`,
			`{"behavior":"ask","safety":false,"read_only":false,"reason":"git push does more than read","rule":null,"suggest":["Bash(git push:*)"],"commands":[{"argv":["git","push"],"effects":["network"]}]}`},
		{`{"tool":"Bash","input":{"command":"ls"},"mode":"fast","cwd":"DIR"}`, `{"behavior":"deny"`},
		{`not JSON`, `{"behavior":"deny","safety":false,"read_only":false,"reason":"line 6 cannot be read`},
		{`{"tool":"add","input":{},"mode":"bypass"}`, `{"behavior":"allow","safety":false,"read_only":false,"reason":"mode bypass","rule":null,"suggest":[],"commands":[]}`},
		// Without its pattern the rule would allow every call, and without a tool there is nothing to decide.
		{`{"tool":"Bash","input":{"command":"rm x"},"rules":[{"tool":"Bash","content":"ls","behavior":"allow"}]}`,
			`{"behavior":"deny","safety":false,"read_only":false,"reason":"line 8 cannot be read: json: unknown field \"content\"`},
		{`{"tol":"Bash"}`, `{"behavior":"deny","safety":false,"read_only":false,"reason":"line 9 cannot be read: json: unknown field \"tol\"`},
		{`{"input":{}}`, `{"behavior":"deny","safety":false,"read_only":false,"reason":"line 10 cannot be read: \"tool\" is missing`},
		{`{"tool":"Bash","input":{"command":"ls"},"rules":[],"rules":[]}`, `{"behavior":"deny","safety":false,"read_only":false,"reason":"line 11 cannot be read: `},
		{`{"tool":"Bash"} {"tool":"Bash"}`, `{"behavior":"deny","safety":false,"read_only":false,"reason":"line 12 cannot be read: `},
		{`{"tool":"Write","input":{"file_path":"DIR/.env","content":""},"mode":"accept_edits","dirs":["DIR"],"cwd":"DIR"}`, `{"behavior":"ask","safety":true`},
	}
	var in strings.Builder
	for i, r := range rows {
		if i == 4 {
			in.WriteString("\n")
		}
		in.WriteString(strings.ReplaceAll(r.in, "DIR", dir) + "\n")
	}
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"permission", "explain", "--json"}, strings.NewReader(in.String()), &out, &stderr); code != exitDone {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(rows) {
		t.Fatalf("%d lines for %d calls: %s", len(lines), len(rows), out.String())
	}
	for i, r := range rows {
		if !strings.HasPrefix(lines[i], r.want) {
			t.Errorf("%s\n got %s\nwant %s", r.in, lines[i], r.want)
		}
	}
}

// TestPermissionExplainCases checks that the command line decides the shared cases like the packages.
func TestPermissionExplainCases(t *testing.T) {
	workspace(t)
	type row struct{ Command, Expect string }
	rows := casetest.Rows[row](t, "bash_adversarial.jsonl")
	var in bytes.Buffer
	for _, r := range rows {
		line, err := json.Marshal(map[string]any{"tool": "Bash", "input": map[string]string{"command": r.Command},
			"mode": "default", "cwd": "/tmp/project", "dirs": []string{"/tmp/project"}})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"permission", "explain", "--json"}, &in, &out, &stderr); code != exitDone {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	dec := json.NewDecoder(&out)
	for _, r := range rows {
		var e decisionLine
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("%q: %v", r.Command, err)
		}
		if e.Behavior == "allow" && r.Expect != "readonly_allow" || e.Reason == "" || e.Commands == nil {
			t.Errorf("%q: %+v", r.Command, e)
		}
	}
}

// TestPermissionExplainFlushes reads a call and a blank line: the decision must be written before the next read.
func TestPermissionExplainFlushes(t *testing.T) {
	var out bytes.Buffer
	in := io.MultiReader(strings.NewReader(`{"tool":"Bash"}`+"\n\n"), readFunc(func([]byte) (int, error) {
		if out.Len() == 0 {
			t.Error("waits for the next line without an answer to the first")
		}
		return 0, io.EOF
	}))
	if err := explainLines(in, &out); err != nil {
		t.Fatal(err)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestPermissionReplay(t *testing.T) {
	workspace(t)
	state := `{"version":1,"id":"s","messages":[
 {"id":"m1","role":"assistant","blocks":[
  {"type":"tool_call","id":"c1","name":"Bash","input":{"command":"go test ./..."}},
  {"type":"tool_call","id":"c2","name":"Bash","input":{"command":"ls"}}]},
 {"id":"m2","role":"tool","blocks":[
  {"type":"tool_result","id":"c1","name":"Bash","outcome":"denied","blocks":[]},
  {"type":"tool_result","id":"c2","name":"Bash","outcome":"success","blocks":[]}]}]}`
	if err := os.WriteFile("s.json", []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	got := kitbag(t.Context(), "permission", "replay", "--allow", "Bash(go test:*)", "s.json")
	for _, want := range []string{"was: denied; now: allowed by rule Bash(go test:*)", "was: success", "2 allowed, 0 asked, 0 denied"} {
		if got.code != exitDone || !strings.Contains(got.out, want) {
			t.Errorf("code %d, %q does not say %q (%s)", got.code, got.out, want, got.stderr)
		}
	}
	if got := kitbag(t.Context(), "permission", "replay", "none.json"); got.code != exitError {
		t.Errorf("a missing session: %+v", got)
	}
}
