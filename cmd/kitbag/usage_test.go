package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestMistakes makes the mistakes of a new user. Each message must quote the input and have a remedy, and each
// exit code must be right.
func TestMistakes(t *testing.T) {
	workspace(t)
	for name, text := range map[string]string{"array.json": `[]`, "empty.json": `{}`, "cut.json": "{\n\"version\":"} {
		writeConfig(t, name, text)
	}
	for _, row := range []struct {
		args string // separated by blanks; _ is an empty argument
		code int
		want []string
	}{
		{"mcp lst", exitUsage, []string{`"lst"`, `did you mean "list"?`, "kitbag mcp --help"}},
		{"mcp xyz", exitUsage, []string{`"xyz"`, "choose from add, call, import, key, list, login"}},
		{"help mcp lst", exitUsage, []string{`did you mean "list"?`}},
		{"help run x", exitUsage, []string{`"x"`}},
		{"completion fsh", exitUsage, []string{`"fsh"`, `"fish"`}},
		{"version x", exitUsage, []string{`"x"`}},
		{"run --alow x", exitUsage, []string{"--alow", "did you mean --allow?"}},
		{"run --xyzzyx x", exitUsage, []string{"unknown flag: --xyzzyx"}},
		{"run --max-steps few x", exitUsage, []string{`--max-steps "few"`, "a whole number"}},
		{"run --window -2 x", exitUsage, []string{"--window -2", "such as 32000"}},
		{"run --max-steps -2 x", exitUsage, []string{"--max-steps -2"}},
		{"run --max-cost much x", exitUsage, []string{`--max-cost "much"`, "a number such as 2.5"}},
		{"run --json=perhaps x", exitUsage, []string{`--json "perhaps"`, "true or false"}},
		{"run _", exitUsage, []string{"empty", `kitbag run "task"`}},
		{"run x", exitError, []string{"KITBAG_MODEL", "--model", "kitbag demo"}},
		{"run --model m --fallback _ x", exitUsage, []string{"--fallback or kitbag.json is empty", "--fallback MODEL"}},
		{"run --model m --thinking lots x", exitUsage, []string{`"lots" in --thinking or kitbag.json`, "write adaptive, off, or a number"}},
		{"run --model m --cache 2h x", exitUsage, []string{`"2h" in --cache or kitbag.json`, "1h or off"}},
		{"mcp call --timeout 3 a b", exitUsage, []string{`--timeout "3"`, "90s"}},
		{"mcp call --timeout -3s --mcp empty.json a b", exitError, []string{"empty.json", "mcpServers"}},
		{"mcp call --mcp empty.json", exitUsage, []string{"want SERVER TOOL [ARGUMENTS]\n"}},
		{"mcp add files", exitUsage, []string{"server \"files\"", "-- COMMAND", "--url URL"}},
		{"mcp add files --url a.example", exitUsage, []string{"--url a.example", "https://"}},
		{"mcp add files npx -y server", exitUsage, []string{"'y' in -y", "kitbag mcp add NAME -- COMMAND"}},
		{"sandbox ls -la", exitUsage, []string{"'l' in -la", "kitbag sandbox -- COMMAND"}},
		{"mcp pins accept web", exitError, []string{"no tool of a server \"web\" is pinned\n"}},
		{"mcp list", exitError, []string{".mcp.json", "--mcp FILE"}},
		{"mcp list --mcp empty.json", exitError, []string{"no MCP server in empty.json"}},
		{"mcp serve --demo --style full", exitUsage, []string{"--demo"}},
		{"mcp serve --page-size -1", exitUsage, []string{"--page-size -1"}},
		{"schema gen a b", exitUsage, []string{`want one DIRECTORY, of one package, got ["a" "b"]`}},
		{"schema gen nowhere", exitError, []string{"nowhere", "directory of a Go package"}},
		{"skills show x", exitError, []string{"no skills below .", "DIRECTORY"}},
		{"skills list", exitDone, []string{"no skills below .", "kitbag skills new"}},
		{"skills list nowhere", exitError, []string{"nowhere", "name a folder that exists"}},
		{"mcp serve --config none.json", exitError, []string{"none.json", "kitbag mcp serve --help"}},
		{"permission explain ls -la", exitUsage, []string{"'l' in -la", "put the command in quotes: kitbag permission explain 'COMMAND'"}},
		{"permission explain Bash ls", exitUsage, []string{"the input of Bash is not JSON: ls", `for Bash '{"command": "ls"}'`}},
		{"permission replay array.json", exitError, []string{"array.json", "it is a JSON array"}},
		{"permission replay cut.json", exitError, []string{"cut.json", "line 2"}},
	} {
		args := strings.Fields(row.args)
		for i := range args {
			args[i] = strings.TrimPrefix(args[i], "_")
		}
		got := kitbag(t.Context(), args...)
		if got.code != row.code {
			t.Errorf("%s: code %d, want %d: %s", row.args, got.code, row.code, got.stderr)
		}
		for _, want := range row.want {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%s does not say %q: %s", row.args, want, got.stderr)
			}
		}
	}
}

// TestHelp checks that every command has a description and an example.
func TestHelp(t *testing.T) {
	workspace(t)
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		if c.Parent() != nil && c.Parent().Name() == "completion" {
			return // cobra's own texts contain the example
		}
		path := strings.Fields(c.CommandPath())[1:]
		got := kitbag(t.Context(), append(path, "--help")...)
		if got.code != exitDone || !strings.Contains(got.out, "Examples:\n") || c.Short == "" {
			t.Errorf("%s: code %d, no example in: %s%s", c.CommandPath(), got.code, got.out, got.stderr)
		}
		for line := range strings.Lines(c.Example) {
			if len([]rune(line)) > 100 {
				t.Errorf("%s: an example of %d columns: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
		if help := kitbag(t.Context(), append([]string{"help"}, path...)...); help.out != got.out {
			t.Errorf("kitbag help %s is not its --help: %s", path, help.out)
		}
		for _, below := range c.Commands() {
			check(below)
		}
	}
	check(rootCommand(io.Discard))
}

// A brokenWriter fails with err after some bytes.
type brokenWriter struct {
	room int
	err  error
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, w.err
	}
	return len(p), nil
}

// TestOutputThatFails checks that a command which cannot print fails with an error message, unless the reader
// has closed the output.
func TestOutputThatFails(t *testing.T) {
	workspace(t)
	writeServers(t, defaultServers, map[string]any{"demo": self(t, "--demo")})
	skillFile(t, ".agents/skills/a/SKILL.md", "---\nname: a\ndescription: Use when x.\n---\n# A\n")
	for _, args := range []string{
		"version", "help", "run --help", "tools", "tools --json", "mcp list", "mcp list --json", "mcp status", "mcp serve --print-cost",
		`mcp call demo echo {"message":"longer"}`, "skills list", "skills list --json", "skills show a", "skills validate", "skills new b",
		"permission explain ls", "permission explain --json", "completion bash",
	} {
		for _, broken := range []error{syscall.ENOSPC, syscall.EPIPE} {
			var stderr bytes.Buffer
			in := `{"tool":"Bash","input":{"command":"ls"},"mode":"default"}`
			code := run(t.Context(), strings.Fields(args), strings.NewReader(in), &brokenWriter{room: 3, err: &os.PathError{Op: "write", Path: "out", Err: broken}}, &stderr)
			reported := strings.Contains(stderr.String(), "standard output: write out: no space left")
			if code != exitError || reported != errors.Is(broken, syscall.ENOSPC) {
				t.Errorf("%s, %v: code %d, %s", args, broken, code, stderr.String())
			}
			_ = os.RemoveAll("b")
		}
	}
}

// TestNotices checks how warnings of packages are printed.
func TestNotices(t *testing.T) {
	var log bytes.Buffer
	l := slog.New(noticeHandler{log: &log}).With("file", "a\nb").WithGroup("g")
	l.Info("not this")
	l.Warn("others can read it\x1b[2J", "keys", []string{"x", "y"})
	if got := log.String(); got != "! others can read it[2J; file: a\\nb; keys: [x y]\n" {
		t.Errorf("%q", got)
	}
}

// TestExplainLinesAnswersAtOnce asks about one call after the other: an answer must not wait for the end of the
// input.
func TestExplainLinesAnswersAtOnce(t *testing.T) {
	workspace(t)
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"permission", "explain", "--json"}, in, out, io.Discard)
		_ = out.Close()
	}()
	timeout := time.AfterFunc(time.Minute, func() { _ = answers.Close() })
	defer timeout.Stop()
	buf := make([]byte, 1<<10)
	for range 3 {
		if _, err := io.WriteString(ask, `{"tool":"Bash","input":{"command":"ls"},"mode":"default"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		n, err := answers.Read(buf)
		if err != nil || !bytes.HasPrefix(buf[:n], []byte(`{"behavior":"allow"`)) {
			t.Fatalf("%s, %v", buf[:n], err)
		}
	}
	_ = ask.Close()
	if c := <-code; c != exitDone {
		t.Errorf("code %d", c)
	}
}
