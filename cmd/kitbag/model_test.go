package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// serveClaude starts a server of the Messages API and configures kitbag to use it.
func serveClaude(t *testing.T, turns ...anthropictest.Turn) *anthropictest.Server {
	t.Helper()
	s := anthropictest.New(t, turns...).RequireKey("claude-key")
	t.Setenv("ANTHROPIC_BASE_URL", s.URL)
	t.Setenv("ANTHROPIC_API_KEY", "claude-key")
	t.Setenv("KITBAG_MODEL", "claude-opus-5-5")
	return s
}

// process runs kitbag in a process of its own.
func process(t *testing.T, args ...string) output {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return output{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
}

// bodyHas checks that a request contains the texts.
func bodyHas(texts ...string) func(*anthropictest.Request) error {
	return func(r *anthropictest.Request) error {
		for _, text := range texts {
			if !bytes.Contains(r.Body, []byte(text)) {
				return fmt.Errorf("%s is not in %s", text, r.Body)
			}
		}
		return nil
	}
}

// TestClaude runs a task over the Messages API: thinking that goes back, a tool call, settings, and the cost.
func TestClaude(t *testing.T) {
	dir := workspace(t)
	writeConfig(t, filepath.Join(dir, "a.txt"), "hello\n")
	serveClaude(t,
		anthropictest.Thinking("A file.").Text("Let me look.").Calls(anthropictest.Call{Name: "Read", Args: fmt.Sprintf(`{"file_path":%q}`, filepath.Join(dir, "a.txt"))}).
			Usage(anthropictest.Usage{Input: 1000, CacheWrite: 1_000_000, Output: 100_000}).
			Expect(bodyHas(`"thinking":{"type":"adaptive"}`, `"effort":"low"`, `"ttl":"1h"`, `"stream":true`)),
		anthropictest.Text("It says hello.").Usage(anthropictest.Usage{Input: 1000, CacheRead: 1_000_000, Output: 10}).
			Expect(bodyHas(`"thinking":"A file."`, `"signature":"sig-`, `hello`)))
	got := process(t, "run", "--thinking", "adaptive", "--effort", "low", "--cache", "1h", "what is in a.txt?")
	if got.code != exitDone || got.out != "Let me look.\nIt says hello.\n" || !strings.Contains(got.stderr, "→ Read") ||
		!strings.Contains(got.stderr, "2002000 tokens in (1000000 cached), 100010 out, about $7.2") {
		t.Errorf("%+v", got)
	}
	serveClaude(t, anthropictest.Calls(anthropictest.Call{Name: "TaskList", Args: `{}`}).Usage(anthropictest.Usage{Input: 1000, Output: 100_000}),
		anthropictest.Text("So far."))
	if got := process(t, "run", "--max-cost", "1", "go"); got.code != exitLimit || !strings.Contains(got.stderr, "cost limit of 1") {
		t.Errorf("%+v", got)
	}
}

// TestClaudeGroups opens a group in the middle of a task: its tools are added at the end, and the list at the head
// of the request stays the same.
func TestClaudeGroups(t *testing.T) {
	dir := workspace(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	writeConfig(t, filepath.Join(dir, "mcp.json"), fmt.Sprintf(`{"mcpServers":{"demo":{"command":%q,"args":["mcp","serve","--demo"]}}}`, exe))
	s := serveClaude(t,
		anthropictest.Calls(anthropictest.Call{Name: "reset_tools", Args: `{"demo":true}`}),
		anthropictest.Calls(anthropictest.Call{Name: "mcp__demo__weather_lookup", Args: `{"city":"Oslo"}`}).Expect(bodyHas(`"tool_addition"`)),
		anthropictest.Calls(anthropictest.Call{Name: "reset_tools", Args: `{}`}),
		anthropictest.Text("Cold.").Expect(bodyHas(`"tool_removal"`)))
	writeConfig(t, userConfig(t), fmt.Sprintf(`{"model":"claude-opus-5-5","baseURL":%q,"lateTools":true}`, s.URL))
	t.Setenv("KITBAG_MODEL", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	got := process(t, "run", "--mode", "bypass", "--mcp", "mcp.json", "what is the weather in Oslo?")
	if got.code != exitDone || got.out != "Cold.\n" || !strings.Contains(got.stderr, "✓ mcp__demo__weather_lookup") {
		t.Fatalf("%+v", got)
	}
	heads := map[string]bool{}
	for _, r := range s.Requests() {
		var body struct{ Tools json.RawMessage }
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		heads[string(body.Tools)] = true
	}
	if len(heads) != 1 {
		t.Errorf("the list of tools has changed: %q", slices.Collect(maps.Keys(heads)))
	}
}

// TestFallback has one vendor fail, in each direction. The models of each get its own key only.
func TestFallback(t *testing.T) {
	work := func() (openaitest.Turn, anthropictest.Turn) {
		return openaitest.Calls(call("TaskList", `{}`)), anthropictest.Calls(anthropictest.Call{Name: "TaskList", Args: `{}`})
	}
	ours, theirs := work()
	for _, row := range []struct {
		model, fallback string
		openai          []openaitest.Turn
		claude          []anthropictest.Turn
		out, stderr     string
		code            int
	}{
		{"claude-opus-5-5", "gpt-6-sol", []openaitest.Turn{openaitest.Text("well")},
			[]anthropictest.Turn{theirs, anthropictest.Overloaded(), anthropictest.Overloaded()}, "well\n", "; gpt-6-sol answers instead\n", exitDone},
		{"gpt-6-sol", "claude-opus-5-5", []openaitest.Turn{ours, openaitest.Status(503, `{"error":{"message":"down"}}`), openaitest.Status(503, `{"error":{"message":"down"}}`)},
			[]anthropictest.Turn{anthropictest.Text("well")}, "well\n", "! gpt-6-sol failed: ", exitDone},
		{"gpt-6-sol", "claude-opus-5-5", []openaitest.Turn{openaitest.Status(401, `{"error":{"message":"bad key"}}`)},
			[]anthropictest.Turn{anthropictest.Status(401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`)},
			"", "check OPENAI_API_KEY and ANTHROPIC_API_KEY", exitError},
	} {
		workspace(t)
		a, b := serveClaude(t, row.claude...), serve(t, row.openai...)
		b.RequireKey("key")
		t.Setenv("KITBAG_MODEL", row.model)
		writeConfig(t, userConfig(t), fmt.Sprintf(`{"fallback":[%q]}`, row.fallback))
		got := process(t, "run", "--session", "s.json", "go")
		if got.code != row.code || got.out != row.out || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%s, then %s: %+v", row.model, row.fallback, got)
		}
		if n, m := len(a.Requests()), len(b.Requests()); n != len(row.claude) || m != len(row.openai) {
			t.Errorf("%s, then %s: %d and %d requests", row.model, row.fallback, n, m)
		}
	}
}

// TestModelChange has the parts of answers of several models, and what the user is told.
func TestModelChange(t *testing.T) {
	down := errors.New("down")
	for _, row := range []struct {
		why    string
		models []int // in which order they answer; a negative one, -1-i, fails
		want   string
	}{
		{"the first answers", []int{0, 0}, ""},
		{"the second answers", []int{-1, 1, 1, -1, 1}, "a failed: down; b answers instead"},
		{"the first is back", []int{-1, 1, 0, 0}, "a failed: down; b answers instead, a answers again"},
		{"two fail", []int{-1, -2, 2, 0}, "a failed: down; c answers instead, a answers again"},
		{"all fail", []int{-1, -2, -3}, ""},
	} {
		var got []string
		a := &changeNotifier{names: []string{"a", "b", "c"}, errs: make([]error, 3), notify: func(s string) { got = append(got, s) }}
		for _, i := range row.models {
			if i < 0 {
				a.record(-1-i, down)
			} else {
				a.record(i, nil)
			}
		}
		if got := strings.Join(got, ", "); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}

// TestChoosesAPI has settings, and the server that is called: "openai", "claude", or none.
func TestChoosesAPI(t *testing.T) {
	for _, row := range []struct {
		why, config, api string
		args             []string
		want, says       string
	}{
		{"by the name", ``, "", []string{"--model", "claude-x"}, "claude", ""},
		{"another name", ``, "", []string{"--model", "gpt-x"}, "openai", ""},
		{"by the variable", ``, "anthropic", []string{"--model", "opus"}, "claude", ""},
		{"a gateway", ``, "chat", []string{"--model", "claude-x"}, "openai", ""},
		{"the flag wins", ``, "anthropic", []string{"--model", "m", "--api", "chat"}, "openai", ""},
		{"by the file", `{"api":"anthropic","model":"opus"}`, "", nil, "claude", ""},
		{"the variable wins over the file", `{"api":"anthropic","model":"opus"}`, "responses", nil, "openai", ""},
		{"the file's server is of another vendor", `{"model":"qwen","baseURL":"http://127.0.0.1:1"}`, "", []string{"--model", "claude-x"}, "claude", ""},
		{"the file's server is of OpenAI's API", `{"baseURL":"http://127.0.0.1:1"}`, "", []string{"--model", "claude-x"}, "claude", ""},
		{"an unknown API", ``, "messages", []string{"--model", "claude-x"}, "", `unknown API "messages"`},
		{"a wrong budget", ``, "", []string{"--model", "claude-x", "--thinking", "10"}, "", "at least 1024"},
		{"wrong thinking", ``, "", []string{"--model", "claude-x", "--thinking", "much"}, "", "adaptive, off, or a number"},
		{"wrong cache", ``, "", []string{"--model", "claude-x", "--cache", "2h"}, "", `unknown value "2h"`},
		{"wrong fallback", `{"fallback":"gpt-5"}`, "", []string{"--model", "claude-x"}, "", "fallback must be a list of models"},
	} {
		workspace(t)
		claude := serveClaude(t, anthropictest.Always(anthropictest.Text("claude")))
		openai := serve(t, openaitest.Always(openaitest.Text("openai")))
		t.Setenv("KITBAG_MODEL", "")
		t.Setenv("KITBAG_API", row.api)
		if row.config != "" {
			writeConfig(t, userConfig(t), row.config)
		}
		got := kitbag(t.Context(), append([]string{"run", "go"}, row.args...)...)
		if strings.TrimSpace(got.out) != row.want || !strings.Contains(got.stderr, row.says) || row.want == "" && got.code == exitDone {
			t.Errorf("%s: %+v", row.why, got)
		}
		if row.want == "" && len(claude.Requests())+len(openai.Requests()) > 0 {
			t.Errorf("%s: a server was called", row.why)
		}
	}
	workspace(t)
	serve(t)
	for _, args := range [][]string{{"run", "go"}, {"doctor"}} {
		got := kitbag(t.Context(), append(args, "--model", "claude-x")...)
		if text := got.out + got.stderr; got.code != exitError || !strings.Contains(text, "set ANTHROPIC_API_KEY") || !strings.Contains(text, "KITBAG_API=chat") {
			t.Errorf("without a key: %+v", got)
		}
	}
}

// TestDoctorClaude checks a model of each vendor.
func TestDoctorClaude(t *testing.T) {
	workspace(t)
	serveClaude(t, anthropictest.Calls(anthropictest.Call{Name: "ping", Args: `{}`}), anthropictest.Text("ok"))
	serve(t, openaitest.Status(401, `{"error":{"message":"bad key"}}`))
	got := kitbag(t.Context(), "doctor", "--model", "claude-opus-5-5", "--fallback", "gpt-6-sol")
	for _, want := range []string{"ok       model: claude-opus-5-5 has answered", "ok       tools", "failed   fallback gpt-6-sol: model", "check ANTHROPIC_API_KEY and OPENAI_API_KEY", "ok       window"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is missing: %s", want, got.out)
		}
	}
}

// TestClaudeKeyIsHidden checks that commands do not get the key, and that it is redacted.
func TestClaudeKeyIsHidden(t *testing.T) {
	workspace(t)
	serveClaude(t, anthropictest.Calls(anthropictest.Call{Name: "Bash", Args: `{"command":"env; echo cla''ude-key"}`}), anthropictest.Text("The key is claude-key."))
	got := kitbag(t.Context(), "run", "--mode", "bypass", "--session", "s.json", "go")
	saved, err := os.ReadFile("s.jsonl")
	if err != nil || got.code != exitDone || strings.Contains(got.out, "claude-key") || strings.Contains(string(saved), "claude-key") || strings.Contains(string(saved), "ANTHROPIC_API_KEY") {
		t.Errorf("%v: %+v\n%s", err, got, saved)
	}
}
