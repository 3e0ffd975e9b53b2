package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
)

// TestMain lets the test binary act as kitbag: as the demo's MCP server, and for tests that need a process.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "mcp" && os.Args[2] == flawedServer {
		serveFlawed(os.Args[3:])
	}
	if len(os.Args) > 1 && slices.Contains([]string{"mcp", "run", "chat", "demo", "permission", "sandbox"}, os.Args[1]) {
		main()
	}
	goleak.VerifyTestMain(m)
}

type output struct {
	code        int
	out, stderr string
}

func kitbag(ctx context.Context, args ...string) output {
	var out, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &out, &stderr)
	return output{code, out.String(), stderr.String()}
}

// workspace makes an empty current directory, an empty home, and an environment without models.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, v := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "KITBAG_MODEL", "KITBAG_API"} {
		t.Setenv(v, "")
	}
	home := t.TempDir()
	for _, v := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"} {
		t.Setenv(v, home)
	}
	return dir
}

// serve starts a model server and configures kitbag to use it.
func serve(t *testing.T, turns ...openaitest.Turn) *openaitest.Server {
	t.Helper()
	s := openaitest.New(t, turns...)
	t.Setenv("OPENAI_BASE_URL", s.URL)
	t.Setenv("OPENAI_API_KEY", "key")
	t.Setenv("KITBAG_MODEL", "test")
	return s
}

// openSession opens a session of the current directory as kitbag run does.
func openSession(t *testing.T, path string) *conversation {
	t.Helper()
	s, err := openConversation(t.Context(), path, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(name, args string) openaitest.Call { return openaitest.Call{Name: name, Args: args} }

func TestDemo(t *testing.T) {
	workspace(t)
	got := kitbag(t.Context(), "demo")
	if got.code != exitDone {
		t.Fatalf("exit code %d\n%s", got.code, got.stderr)
	}
	for _, want := range []string{"scripted", "reset_tools", "sales_total 1375", "Skill", "mcp__demo__weather_lookup", "may Bash run?", "answered: yes", "# Lisbon this week"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("the log does not say %q:\n%s", want, got.stderr)
		}
	}
	if !strings.Contains(got.out, "€1375") {
		t.Errorf("answer: %s", got.out)
	}
	if strings.Contains(got.stderr, "✗") {
		t.Errorf("something failed:\n%s", got.stderr)
	}
}

func TestDemoJSON(t *testing.T) {
	workspace(t)
	got := kitbag(t.Context(), "demo", "--json")
	if got.code != exitDone {
		t.Fatalf("exit code %d\n%s", got.code, got.stderr)
	}
	want := []string{
		"tool_call reset_tools", "tool_result reset_tools success",
		"tool_call sales_total", "tool_result sales_total success",
		"tool_call Skill", "tool_result Skill success",
		"tool_call mcp__demo__weather_lookup", "tool_result mcp__demo__weather_lookup success",
		"approval Bash", "tool_result Bash success", "end completed",
	}
	seq := 0.0
	for line := range strings.Lines(got.out) {
		var ev map[string]any
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if ev["seq"].(float64) != seq+1 || ev["type"] == "" || ev["run"] == "" {
			t.Errorf("after %v: %s", seq, line)
		}
		seq++
		var words []string
		for _, key := range []string{"type", "name", "outcome", "reason"} {
			if s, ok := ev[key].(string); ok && (key != "reason" || ev["type"] == "end") {
				words = append(words, s)
			}
		}
		if len(want) > 0 && strings.Join(words, " ") == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("not seen, in this order: %q", want)
	}
}

func TestRunStreams(t *testing.T) {
	dir := workspace(t)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t,
		openaitest.Text("Let me look.").Calls(call("Read", fmt.Sprintf(`{"file_path":%q}`, filepath.Join(dir, "a.txt")))),
		openaitest.Text("It says hello."))
	got := kitbag(t.Context(), "run", "what is in a.txt?")
	if got.code != exitDone || got.out != "Let me look.\nIt says hello.\n" || !strings.Contains(got.stderr, "→ Read") {
		t.Errorf("%+v", got)
	}
	if last := s.Requests()[1].Messages; !strings.Contains(last[len(last)-1].Text(), "hello") {
		t.Errorf("the model was not shown the file: %+v", last)
	}
}

// TestTaskFromStdin pipes the task in.
func TestTaskFromStdin(t *testing.T) {
	workspace(t)
	for _, row := range []struct {
		in   string
		code int
		want string // in the model's text, or in the error
	}{
		{"say\nhello\n", exitDone, "well\n"},
		{" \n", exitUsage, "the task is empty"},
		{"caf\xe9", exitUsage, "UTF-8"},
		{strings.Repeat("a", maxTask+1), exitUsage, "more than 1048576 bytes"},
	} {
		var turns []openaitest.Turn
		if row.code == exitDone {
			turns = append(turns, openaitest.Text("well").Expect(lastSaid(row.in)))
		}
		serve(t, turns...)
		var out, stderr bytes.Buffer
		code := run(t.Context(), []string{"run", "-"}, strings.NewReader(row.in), &out, &stderr)
		if code != row.code || !strings.Contains(out.String()+stderr.String(), row.want) {
			t.Errorf("%.20q: code %d: %s%s", row.in, code, out.String(), stderr.String())
		}
	}
}

// TestRunKeepsRequestsValid replays errors of models. The server rejects any invalid request, which fails the test.
func TestRunKeepsRequestsValid(t *testing.T) {
	text := openaitest.Text
	for _, row := range []struct {
		name  string
		turns []openaitest.Turn
		code  int
		out   string
	}{
		{"bad JSON", []openaitest.Turn{openaitest.Calls(call("Read", `{"file_path":`), call("Read", `nonsense`)), text("sorry")}, exitDone, "sorry\n"},
		{"unknown tool", []openaitest.Turn{openaitest.Calls(call("Raed", `{}`), call("", `{}`), call("ünknown töol", `{}`), call(strings.Repeat("long", 30), `{}`)), text("sorry")}, exitDone, "sorry\n"},
		{"no arguments", []openaitest.Turn{openaitest.Calls(call("TaskList", ``)), text("none")}, exitDone, "none\n"},
		{"failing tool", []openaitest.Turn{openaitest.Calls(call("Read", `{"file_path":"/does/not/exist"}`)), text("gone")}, exitDone, "gone\n"},
		{"interleaved", []openaitest.Turn{openaitest.Calls(call("TaskList", `{}`), call("TaskList", `{}`)).Interleave(), text("ok")}, exitDone, "ok\n"},
		{"one id twice", []openaitest.Turn{openaitest.Calls(openaitest.Call{ID: "x", Name: "TaskList", Args: `{}`}, openaitest.Call{ID: "x", Name: "TaskList", Args: `{}`}),
			openaitest.Calls(openaitest.Call{ID: "x", Name: "TaskList", Args: `{}`}), text("ok")}, exitDone, "ok\n"},
		{"cut in text", []openaitest.Turn{text("a long answer that is cut off somewhere").CutAfter(700), text("the rest")}, exitDone, "the rest\n"},
		{"cut in a call", []openaitest.Turn{openaitest.Calls(call("TaskList", `{"a":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}`)).CutAfter(600), text("again")}, exitDone, "again\n"},
		{"rate limit", []openaitest.Turn{openaitest.RateLimit("0"), text("patient")}, exitDone, "patient\n"},
		{"broken once", []openaitest.Turn{openaitest.Broken(), text("up again")}, exitDone, "up again\n"},
		{"empty answer", []openaitest.Turn{text(""), text("now")}, exitDone, "now\n"},
		{"steps", []openaitest.Turn{openaitest.Calls(call("TaskList", `{}`)), openaitest.Calls(call("TaskList", `{}`)), openaitest.Calls(call("TaskList", `{}`)), text("so far")}, exitLimit, "so far\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			workspace(t)
			serve(t, row.turns...)
			got := kitbag(t.Context(), "run", "--mode", "bypass", "--max-steps", "3", "--session", "s.json", "go")
			if got.code != row.code || !strings.HasSuffix(got.out, row.out) {
				t.Errorf("%+v", got)
			}
			s := openSession(t, "s")
			defer s.close()
			if err := agent.CheckHistory(s.Messages); err != nil {
				t.Error(err)
			}
			if got := kitbag(t.Context(), "run", "--session", "s.json", "while it is open"); got.code != exitError || !strings.Contains(got.stderr, "another writer") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRunWindow keeps a run within the window that a flag or a configuration sets.
func TestRunWindow(t *testing.T) {
	for _, row := range []struct {
		flags     []string
		config    string
		most      int // bytes of a request, less those of the first
		compacted bool
	}{
		{flags: nil, most: 150_000},
		{flags: []string{"--window", "12000"}, most: 40_000, compacted: true},
		{config: `{"window":12000}`, most: 40_000, compacted: true},
		{config: `{"models":"models.json"}`, most: 40_000, compacted: true},
	} {
		workspace(t)
		if row.config != "" {
			file := userConfig(t)
			writeConfig(t, file, row.config)
			writeConfig(t, filepath.Join(filepath.Dir(file), "models.json"), `{"models":{"test":{"window":20000,"max_output":8000}}}`)
		}
		calls := 0
		s := serve(t, openaitest.Always(openaitest.Func(func(req *openaitest.Request) openaitest.Turn {
			if strings.Contains(req.Messages[len(req.Messages)-1].Text(), "become too long") {
				return openaitest.Text(`{"goal":"count","next":"count on"}`)
			}
			if calls++; calls > 15 {
				return openaitest.Text("counted")
			}
			return openaitest.Calls(openaitest.Call{ID: fmt.Sprint("c", calls), Name: "Bash", Args: fmt.Sprintf(`{"command":"seq %d %d"}`, calls, 1400+calls)})
		})))
		got := kitbag(t.Context(), append(append([]string{"run", "--mode", "bypass"}, row.flags...), "count")...)
		if got.code != exitDone || !strings.HasSuffix(got.out, "counted\n") || strings.Contains(got.stderr, "compacted") != row.compacted {
			t.Errorf("%v %s: %+v", row.flags, row.config, got)
		}
		first, most := len(s.Requests()[0].Body), 0
		for _, req := range s.Requests() {
			most = max(most, len(req.Body)-first)
		}
		if most > row.most || most < row.most/4 {
			t.Errorf("%v %s: the largest request has %d bytes more than the first, want up to %d", row.flags, row.config, most, row.most)
		}
	}
}

// TestRunMaxCost ends a run at a cost, if the price of the model is known.
func TestRunMaxCost(t *testing.T) {
	for _, row := range []struct {
		models string // "" for no such file
		flags  []string
		code   int
		stderr string
	}{
		{"", []string{"--max-cost", "1"}, exitError, `--max-cost: no price of the model "test" is known; add the price to a file that kitbag.json names as models`},
		{"", []string{"--max-cost", "-1"}, exitUsage, "--max-cost -1: it must be a positive number of US dollars"},
		{`{"models":{"test":{"price":{"input":1,"output":2}}}}`, []string{"--max-cost", "1"}, exitDone, ""},
		{`{"models":{"test":{"price":{"input":1,"output":2}}}}`, []string{"--max-cost", "0.00001"}, exitLimit, "the cost limit of 1e-05"},
		{`{"models":{"test":{"price":{"input":1,"output":2,"cached":3}}}}`, nil, exitError, `models.json: price table: model "test": price.cached is 3, more than input`},
	} {
		workspace(t)
		if row.models != "" {
			file := userConfig(t)
			writeConfig(t, file, `{"models":"models.json"}`)
			writeConfig(t, filepath.Join(filepath.Dir(file), "models.json"), row.models)
		}
		n := 0
		serve(t, openaitest.Always(openaitest.Func(func(*openaitest.Request) openaitest.Turn {
			if n++; n%2 == 0 {
				return openaitest.Text("done")
			}
			return openaitest.Calls(openaitest.Call{ID: fmt.Sprint("c", n), Name: "Glob", Args: `{"pattern":"*"}`})
		})))
		got := kitbag(t.Context(), append(append([]string{"run", "--mode", "bypass"}, row.flags...), "go")...)
		if got.code != row.code || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%v %s: %+v", row.flags, row.models, got)
		}
	}
}

func TestRunInterrupted(t *testing.T) {
	workspace(t)
	s := serve(t, openaitest.Text("I was just about to say something").HangAfter(500))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(s.Requests()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if got := kitbag(ctx, "run", "--session", "s.json", "go"); got.code != exitInterrupted {
		t.Fatalf("%+v", got)
	}
	serve(t, openaitest.Text("back again"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "continue"); got.code != exitDone || got.out != "back again\n" {
		t.Errorf("%+v", got)
	}
}

func TestQuestionIsAnsweredLater(t *testing.T) {
	for _, row := range []struct {
		answer  string
		written bool
		reason  string
	}{
		{"=allow", true, ""},
		{"=deny", false, "refused"},
		{"=deny:use another name", false, "use another name"},
	} {
		t.Run(row.answer, func(t *testing.T) {
			dir := workspace(t)
			serve(t, openaitest.Calls(openaitest.Call{ID: "call_7", Name: "Bash", Args: `{"command":"touch made"}`}))
			got := kitbag(t.Context(), "run", "--json", "--session", "s.json", "make it")
			listed := regexp.MustCompile(`\n  (call_7\.[0-9]+)  Bash `).FindStringSubmatch(got.stderr)
			if got.code != exitWaiting || !strings.Contains(got.out, `"type":"approval"`) || listed == nil {
				t.Fatalf("%+v", got)
			}
			if got := kitbag(t.Context(), "run", "--session", "s.json", "--answer", "call_7.9999=allow"); got.code != exitError || !strings.Contains(got.stderr, "is to an earlier question") {
				t.Errorf("the answer to another question about the call: %+v", got)
			}
			if got := kitbag(t.Context(), "run", "--session", "s.json", "and another thing"); got.code != exitWaiting {
				t.Errorf("a new task while a call waits: %+v", got)
			}
			s := serve(t, openaitest.Text("fine"))
			got = kitbag(t.Context(), "run", "--session", "s.json", "--answer", listed[1]+row.answer)
			if got.code != exitDone || got.out != "fine\n" {
				t.Errorf("%+v", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != row.written {
				t.Errorf("written: %v", err)
			}
			msgs := s.Requests()[0].Messages
			if last := msgs[len(msgs)-1].Text(); !strings.Contains(last, row.reason) {
				t.Errorf("the result of the call is %q", last)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	dir := workspace(t)
	file := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file("broken.json", `{"version":1,`)
	file("newer.json", `{"version":999,"messages":"?"}`)
	file("latin1.md", "caf\xe9")
	file("other.json", `{"name":"a package.json"}`)
	local := []string{"--model", "m", "--base-url", "http://127.0.0.1:1/v1"}
	for _, row := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"run", "x"}, exitError, []string{"KITBAG_MODEL"}},
		{[]string{"run", "--model", "m", "x"}, exitError, []string{"OPENAI_API_KEY"}},
		{[]string{"run"}, exitUsage, []string{"no task"}},
		{[]string{"run", "a", "b"}, exitUsage, []string{"quotes"}},
		{[]string{"run", "--colour", "x"}, exitUsage, []string{"--colour"}},
		{[]string{"rnu", "x"}, exitUsage, []string{`"rnu"`, `"run"`}},
		{[]string{"run", "--mode", "yolo", "x"}, exitUsage, []string{`"yolo"`, "accept-edits"}},
		{[]string{"run", "--allow", "Bash(git", "x"}, exitUsage, []string{`"Bash(git"`, "parenthesis"}},
		{[]string{"run", "--answer", "c1=maybe", "--session", "s"}, exitUsage, []string{`"c1=maybe"`, "allow"}},
		{[]string{"run", "--answer", "c1=allow"}, exitUsage, []string{"--session"}},
		{[]string{"run", "--dir", "nowhere", "x"}, exitUsage, []string{"nowhere"}},
		{append([]string{"run", "--mcp", "none.json", "x"}, local...), exitError, []string{"none.json"}},
		{append([]string{"run", "--system", "none.md", "x"}, local...), exitError, []string{"none.md"}},
		{append([]string{"run", "--system", "latin1.md", "x"}, local...), exitError, []string{"latin1.md", "UTF-8"}},
		{append([]string{"run", "--session", "new.json"}, local...), exitUsage, []string{"no call waits in new.json", "task"}},
		{append([]string{"run", "--session", "other.json", "x"}, local...), exitError, []string{"other.json", "left unchanged", "--trust-session"}},
		{append([]string{"run", "--session", "broken.json", "--trust-session", "x"}, local...), exitError, []string{"broken.json", "left unchanged"}},
		{append([]string{"run", "--session", "newer.json", "--trust-session", "x"}, local...), exitError, []string{"newer.json", "newer version"}},
		{append([]string{"run", "--session", "other.json", "--trust-session", "x"}, local...), exitError, []string{"other.json", "version"}},
		{append([]string{"run", "--session", "no/such/s.json", "x"}, local...), exitError, []string{"no/such"}},
		{append([]string{"chat"}, local...), exitUsage, []string{"terminal", "kitbag run"}},
		{[]string{"chat", "hello"}, exitUsage, []string{`"hello"`}},
		{[]string{"demo", "--ask"}, exitUsage, []string{"terminal"}},
		{[]string{"mcp", "serve"}, exitError, []string{".mcp.json"}},
	} {
		got := kitbag(t.Context(), row.args...)
		for _, want := range row.want {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%q does not say %q: %s", row.args, want, got.stderr)
			}
		}
		if got.code != row.code {
			t.Errorf("%q: exit code %d, want %d: %s", row.args, got.code, row.code, got.stderr)
		}
	}
	for name, want := range map[string]string{"broken.json": `{"version":1,`, "newer.json": `{"version":999,"messages":"?"}`} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s was changed: %s %v", name, data, err)
		}
	}
}

func TestPrompt(t *testing.T) {
	q := &event.Approval{Call: "c", Name: "Bash"}
	for _, row := range []struct {
		typed string
		allow bool
		why   string
		err   bool
	}{
		{"y\n", true, "", false}, {"what?\nYES\n", true, "", false}, {"n not now\n", false, "not now", false}, {"a\nn\n", false, "", false}, {"", false, "", true},
	} {
		p := newPrompt(strings.NewReader(row.typed), new(bytes.Buffer))
		got, err := p.askApproval(t.Context(), q)
		for range p.lines { // wait for the reader to end
		}
		if got.Allow != row.allow || got.Reason != row.why || (err != nil) != row.err {
			t.Errorf("%q: %+v, %v", row.typed, got, err)
		}
	}
}

func TestParseAnswer(t *testing.T) {
	for _, row := range []struct {
		in, call string
		allow    bool
		reason   string
		ok       bool
	}{
		{"c=allow", "c", true, "", true}, {"a=b=allow", "a=b", true, "", true}, {"h1/s1=deny", "h1/s1", false, "", true},
		{"c=deny:", "c", false, "", true}, {"c=deny:set x=allow", "c", false, "set x=allow", true}, {"c=deny:a:b", "c", false, "a:b", true},
		{"c.12=allow", "c 12", true, "", true}, {"c.12=deny:no", "c 12", false, "no", true}, {"c.5.12=allow", "c.5 12", true, "", true},
		{"c.0=allow", "c.0", true, "", true}, {"c.-1=allow", "c.-1", true, "", true}, {"c.012=allow", "c.012", true, "", true}, {".5=allow", ".5", true, "", true},
		{"c=denied", "", false, "", false}, {"=allow", "", false, "", false}, {"c=allow:why", "", false, "", false}, {"c", "", false, "", false}, {"", "", false, "", false},
	} {
		got, err := parseAnswer(row.in)
		call := got.Call
		if got.Question != 0 {
			call += fmt.Sprint(" ", got.Question)
		}
		if (err == nil) != row.ok || call != row.call || got.Allow != row.allow || got.Reason != row.reason {
			t.Errorf("%q: %+v, %v", row.in, got, err)
		}
	}
}

// TestHostileText shows text of models, tools and servers, which must not control the terminal or imitate a
// line of kitbag.
func TestHostileText(t *testing.T) {
	const evil = "\x1b[2J\u009b31m\u202e\r\n✓ Bash ok\x9b"
	var out, log bytes.Buffer
	show := showText(&out, &log, &painter{})
	for _, ev := range []event.Event{
		&event.ToolCall{Name: evil, Input: json.RawMessage(`{"a":"\u001b[2J"}`), Repaired: []string{evil}},
		&event.ToolResult{Name: evil, Text: evil},
		&event.Background{Name: evil, Result: &message.ToolResult{Blocks: message.Blocks{&message.Text{Text: evil}}}},
		&event.External{Name: evil, Call: evil},
		&event.Approval{Name: evil, Reason: evil, Input: json.RawMessage(`{"\u001b[2J":1}`), Preview: evil},
		&event.Retry{Error: evil}, &event.Discard{Error: evil}, &event.Compaction{Failed: evil}, &event.TextDelta{Text: evil},
		&event.ToolDelta{Text: evil, ForUser: true}, &event.End{Reason: event.EndLimit, Detail: evil},
	} {
		if err := show(ev); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"\x1b", "\u009b", "\x9b[", "\u202e", "\r"} {
		if strings.Contains(out.String()+log.String(), bad) {
			t.Errorf("%q came through:\n%q\n%q", bad, out.String(), log.String())
		}
	}
	for line := range strings.Lines(log.String()) {
		if strings.HasPrefix(line, "✓ Bash ok") {
			t.Errorf("it looks like a line of kitbag: %q", line)
		}
		if strings.HasPrefix(line, "→") && !strings.Contains(line, "a=") {
			t.Errorf("a call on more than a line: %q", line)
		}
	}
}

// TestReaderGoesAway closes the pipe of the output: the run ends with an error, and the session can be continued.
func TestReaderGoesAway(t *testing.T) {
	workspace(t)
	serve(t, openaitest.Text("one"))
	cmd := exec.Command(os.Args[0], "run", "--session", "s.json", "go")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("%v", err)
	}
	serve(t, openaitest.Text("two"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "continue"); got.code != exitDone || got.out != "two\n" {
		t.Errorf("%+v", got)
	}
}

func TestPlain(t *testing.T) {
	if got := plain("a\x1b]0;title\x07b\u202ec\r\nd\te"); got != "a]0;titlebc\nd\te" {
		t.Errorf("%q", got)
	}
}

func TestTools(t *testing.T) {
	dir := workspace(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	servers := fmt.Sprintf(`{"mcpServers":{"demo":{"command":%q,"args":["mcp","serve","--demo"]}}}`, exe)
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), []byte(servers), 0o600); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Total  toolCost
		Tools  []toolCost
		Groups []groupCost
	}
	sizes := map[bool]int{}
	for _, open := range []bool{false, true} {
		args := []string{"tools", "--json", "--mcp", "mcp.json"}
		if open {
			args = append(args, "--open", "demo")
		}
		res := kitbag(t.Context(), args...)
		if err := json.Unmarshal([]byte(res.out), &got); err != nil || res.code != exitDone {
			t.Fatalf("%v: %+v", err, res)
		}
		if len(got.Groups) != 1 || got.Groups[0].Open != open || (got.Groups[0].Known > 0) != open {
			t.Errorf("open %v: %+v", open, got.Groups)
		}
		sizes[open] = got.Total.Bytes
	}
	if sizes[false] == 0 || sizes[true] <= sizes[false] {
		t.Errorf("bytes: %v", sizes)
	}
	s := serve(t, openaitest.Text("well"))
	kitbag(t.Context(), "run", "--mcp", "mcp.json", "go")
	for _, tl := range s.Requests()[0].Tools { // what a model is sent
		if !slices.ContainsFunc(got.Tools, func(c toolCost) bool { return c.Name == tl.Function.Name }) {
			t.Errorf("%s is not listed", tl.Function.Name)
		}
	}
	if res := kitbag(t.Context(), "tools", "--json"); !strings.Contains(res.out, `"groups": []`) { // not null, so that jq '.groups[]' works
		t.Errorf("%+v", res)
	}
	if res := kitbag(t.Context(), "tools"); !strings.Contains(res.out, "in each request") || !strings.Contains(res.out, "Bash") {
		t.Errorf("%+v", res)
	}
	if res := kitbag(t.Context(), "tools", "--open", "nope"); res.code != exitUsage || !strings.Contains(res.stderr, "nope") {
		t.Errorf("%+v", res)
	}
}

// TestToolsJSONLists: a list without items is [], so that a script can iterate over it.
func TestToolsJSONLists(t *testing.T) {
	workspace(t)
	got := kitbag(t.Context(), "tools", "--json")
	if got.code != exitDone || strings.Contains(got.out, "null") || !strings.Contains(got.out, `"groups"`) {
		t.Errorf("%+v", got)
	}
}
