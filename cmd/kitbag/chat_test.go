package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// runChat runs a chat on the typed lines, all of which are typed before the first turn.
func runChat(t *testing.T, f *agentFlags, typed string) (output, error) {
	t.Helper()
	return runChatAt(t, f, typed, func(f lineFrontend) frontend { return f })
}

// runChatAt is runChat with another frontend.
func runChatAt(t *testing.T, f *agentFlags, typed string, newFrontend func(lineFrontend) frontend) (output, error) {
	t.Helper()
	var out, log bytes.Buffer
	p := newPrompt(strings.NewReader(typed), &log)
	painter := &painter{hasPrompt: true}
	r := &runner{show: showText(&out, &log, painter), log: &log, painter: painter, prompt: p}
	files := new(fileHistory)
	defer files.close()
	err := f.withAgent(t.Context(), r, func(k *kit, s *conversation) error {
		return (&chat{runner: r, frontend: newFrontend(lineFrontend{p, &log}), kit: k, conv: s, flags: &chatFlags{agentFlags: *f}, files: files}).takeTurns(t.Context(), true)
	})
	for range p.lines { // wait for the reader to end
	}
	code := exitDone
	if e, ok := errors.AsType[*exit](err); ok {
		code = e.code
	}
	return output{code, out.String(), log.String()}, err
}

func plainFlags() *agentFlags { return &agentFlags{mode: "default", settings: settings{maxSteps: 2}} }

// TestChat checks what a line becomes: a turn, a command, or the end.
func TestChat(t *testing.T) {
	text := openaitest.Text
	list := openaitest.Calls(call("TaskList", `{}`))
	touch := openaitest.Calls(call("Bash", `{"command":"touch made"}`))
	for _, row := range []struct {
		why, typed string
		turns      []openaitest.Turn
		code       int
		out        string
		log        []string // shown, in this order
	}{
		{"two turns", "hi\nand you?\n", []openaitest.Turn{text("hello"), text("fine")}, exitDone, "hello\nfine\n", []string{"> ", "> "}},
		{"empty lines", "\n   \n", nil, exitDone, "", nil},
		{"a continued line", "one \\\n  two\n", []openaitest.Turn{text("read").Expect(lastSaid("one \n  two"))}, exitDone, "read\n", []string{"> . > "}},
		{"the end in a continued line", "one\\\n", nil, exitDone, "", nil},
		{"an answer", "make it\ny\nthanks\n", []openaitest.Turn{touch, text("made"), text("welcome")}, exitDone, "made\nwelcome\n", []string{"may Bash run?", "✓ Bash"}},
		{"the end at a question", "make it\n", []openaitest.Turn{touch}, exitWaiting, "", []string{"may Bash run?", "waiting for approval", "nothing was saved"}},
		{"a limit", "go\nand now?\n", []openaitest.Turn{list, list, text("so far"), text("again")}, exitDone, "so far\nagain\n", []string{"! limit"}},
		{"an error", "go\nand now?\n", []openaitest.Turn{openaitest.Status(401, `{"error":{"message":"bad key"}}`), text("again")}, exitDone, "again\n", []string{"! ", "bad key", "> "}},
		{"commands", "/help\n/tools\nhi\n/cost\n/exit\nunsaid\n", []openaitest.Turn{text("hello")}, exitDone, "hello\n",
			[]string{"/cost", "in each request", "tokens: 10 in, 0 of them cached; 5 out"}},
		{"an unknown command", "/exti\n", nil, exitDone, "", []string{"/exti is not a command", "/exit"}},
		{"a path is not a command", "/etc/hosts\n/exit now\n", []openaitest.Turn{text("a file").Expect(lastSaid("/etc/hosts")), text("no").Expect(lastSaid("/exit now"))}, exitDone, "a file\nno\n", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			workspace(t)
			s := serve(t, row.turns...)
			got, err := runChat(t, plainFlags(), row.typed)
			if got.code != row.code || got.out != row.out || (err != nil) != (row.code != exitDone) {
				t.Errorf("%v: %+v", err, got)
			}
			if n := len(s.Requests()); n != len(row.turns) {
				t.Errorf("%d requests, want %d", n, len(row.turns))
			}
			rest := got.stderr
			for _, want := range row.log {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("%q is not shown, or too early: %s", want, got.stderr)
				}
				rest = after
			}
		})
	}
}

// lastSaid checks the last message of a request.
func lastSaid(want string) func(*openaitest.Request) error {
	return func(r *openaitest.Request) error {
		if got := r.Messages[len(r.Messages)-1].Text(); got != want {
			return errors.New("the last message is " + got)
		}
		return nil
	}
}

// TestChatContinues ends a chat while a question waits; the next chat asks it again.
func TestChatContinues(t *testing.T) {
	dir := workspace(t)
	f := plainFlags()
	f.session = "s.json"
	serve(t, openaitest.Calls(call("Bash", `{"command":"touch made"}`)))
	if got, _ := runChat(t, f, "make it\n"); got.code != exitWaiting || !strings.Contains(got.stderr, "kitbag run --session s.json --answer") {
		t.Fatalf("%+v", got)
	}
	serve(t, openaitest.Text("made"), openaitest.Text("welcome"))
	got, err := runChat(t, f, "y\nthanks\n")
	if err != nil || got.out != "made\nwelcome\n" || strings.Index(got.stderr, "may Bash run?") > strings.LastIndex(got.stderr, "> ") {
		t.Errorf("%v: %+v", err, got)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	serve(t, openaitest.Text("as ever"))
	if got, err := runChat(t, f, "and now?\n"); err != nil || got.out != "as ever\n" || !strings.Contains(got.stderr, "continuing s.json, after 6 messages") {
		t.Errorf("%v: %+v", err, got)
	}
	s := openSession(t, "s")
	defer s.close()
	if err := agent.CheckHistory(s.Messages); err != nil {
		t.Error(err)
	}
}

// TestAttachedAsRead: a message adds a file only if the tool Read might show it, or the user agrees.
func TestAttachedAsRead(t *testing.T) {
	for _, row := range []struct {
		why, typed string
		sent       bool
		log        string
	}{
		{"an ordinary file", "see @a.go\n", true, ""},
		{"a secret, refused", "see @.env\nn\n", false, "holds credentials"},
		{"a secret, in pasted text", "the log says:\\\n mail me @.env\nn\n", false, "holds credentials"},
		{"a secret, by another name", "see @./sub/../.env\nn\n", false, "holds credentials"},
		{"a secret, sent", "see @.env\ny\n", true, "holds credentials"},
		{"a secret, without an answer", "see @.env\n", false, "holds credentials"},
		{"a denied file", "see @b.go\n", false, "denied by rule Read(b.go)"},
		{"a file that is asked about", "see @c.go\nn\n", false, "asked by rule Read(c.go)"},
		{"a file elsewhere", "see @../other\nn\n", false, "outside the working directories"},
	} {
		t.Run(row.why, func(t *testing.T) {
			workspace(t)
			for _, name := range []string{"a.go", "b.go", "c.go", ".env", "../other"} {
				if err := os.WriteFile(name, []byte("KEY=1\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir("sub", 0o700); err != nil {
				t.Fatal(err)
			}
			var turns []openaitest.Turn
			if row.sent {
				turns = append(turns, openaitest.Text("seen"))
			}
			s := serve(t, turns...)
			f := plainFlags()
			f.deny, f.ask = []string{"Read(b.go)"}, []string{"Read(c.go)"}
			got, err := runChat(t, f, row.typed)
			if err != nil || len(s.Requests()) != len(turns) || !strings.Contains(got.stderr, row.log) {
				t.Errorf("%v: %d requests, %+v", err, len(s.Requests()), got)
			}
		})
	}
}

// TestChatUnusableModel: a chat continues with its model after a command for one that has no key.
func TestChatUnusableModel(t *testing.T) {
	workspace(t)
	t.Setenv("ANTHROPIC_API_KEY", "")
	serve(t, openaitest.Text("still here"))
	var out, log bytes.Buffer
	p := newPrompt(strings.NewReader("/model claude-opus\nhi\n/model\n"), &log)
	painter := &painter{hasPrompt: true}
	r := &runner{show: showText(&out, &log, painter), log: &log, painter: painter, prompt: p}
	cmd := chatCommand()
	cmd.SetErr(&log)
	err := (&chatFlags{agentFlags: *plainFlags()}).run(t.Context(), cmd, r, lineFrontend{p, &log})
	for range p.lines { // wait for the reader to end
	}
	if err != nil || out.String() != "still here\n" || !strings.Contains(log.String(), "ANTHROPIC_API_KEY") || !strings.Contains(log.String(), "model: test\n") {
		t.Errorf("%v: %s%s", err, out.String(), log.String())
	}
}
