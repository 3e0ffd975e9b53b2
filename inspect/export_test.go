package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
)

// Read looks at a session's timeline once, like a page.
func (h *Handler) Read(t *testing.T, id string) {
	t.Helper()
	f, release := h.feed(id)
	defer release()
	for {
		v, err := f.look("", 0, maxRows)
		if err != nil {
			t.Fatal(err)
		}
		if v.total > 0 {
			return
		}
		<-v.next
	}
}

// Feeds returns how many sessions are followed.
func (h *Handler) Feeds() int {
	h.feeds.mu.Lock()
	defer h.feeds.mu.Unlock()
	return len(h.feeds.byID)
}

// hostile is a text that must not become code or an element.
const hostile = "` */ // \\\n//go:build ignore\n\"}); panic(1) {{turns}} {{blocks}} \u2028 \u202e \xff \x00 <script>attack()</script>"

// TestExportPage exports a page whose names and texts would end or reorder what is around them.
func TestExportPage(t *testing.T) {
	m := &message.Message{Role: message.RoleAssistant, Blocks: message.Blocks{&message.ToolCall{Name: hostile, Input: []byte(strconv.Quote("x"))},
		&message.Data{Name: hostile, MediaType: hostile}, &message.Text{Text: hostile}, &message.ToolResult{Name: hostile, Outcome: hostile}}}
	page := string(exportPage("s", &agent.State{Messages: []*message.Message{{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: hostile}}}, m}}))
	for _, bad := range []string{"<script", "\u202e", "\xff", "\x00"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q: %s", bad, page)
		}
	}
	if n := strings.Count(page, "<section>"); n != 5 {
		t.Errorf("the page has %d sections: %s", n, page)
	}
}

// TestExportScript exports sessions that did not end with an answer, that began with a summary, and others whose runs do not
// follow from their messages alone. Set KITBAG_EXPORTED to a directory in this module to run the tests.
func TestExportScript(t *testing.T) {
	user := func(blocks ...message.Block) *message.Message {
		return &message.Message{Role: message.RoleUser, Blocks: blocks}
	}
	say := func(text string) *message.Message { return user(&message.Text{Text: text}) }
	model := func(text string, calls ...string) *message.Message {
		m := &message.Message{Role: message.RoleAssistant, Blocks: message.Blocks{&message.Text{Text: text}}}
		for i, name := range calls {
			m.Blocks = append(m.Blocks, &message.ToolCall{ID: fmt.Sprint("call_", i), Name: name, Input: []byte(`{"n":` + fmt.Sprint(i) + `}`)})
		}
		return m
	}
	results := func(names ...string) *message.Message {
		m := &message.Message{Role: message.RoleTool}
		for i, name := range names {
			m.Blocks = append(m.Blocks, &message.ToolResult{ID: fmt.Sprint("call_", i), Name: name, Outcome: message.OutcomeSuccess, Blocks: message.Blocks{&message.Text{Text: "done"}}})
		}
		return m
	}
	for _, row := range []struct {
		name     string
		messages []*message.Message
		said     string // what begins the runs
		turns    int
	}{
		{"waits", []*message.Message{say("go"), model("", "look", "send")}, `"go",`, 2},
		{"failed", []*message.Message{say("go"), model("", "look", "look"), results("look", "look")}, `"go",`, 2},
		{"compacted", []*message.Message{user(&message.Hint{Text: "Summary."}), model("", "look"), results("look"), model("done"), say("more"), model("ok")}, `"Summary.", "more",`, 3},
		{"begins with an answer", []*message.Message{model("", "look"), results("look"), model("done")}, `"(nothing)",`, 2},
		{"image", []*message.Message{user(&message.Data{Name: "a.png", MediaType: "image/png"}), model("a cat")}, `"[a.png]",`, 1},
		{"said while it ran", []*message.Message{say("go"), model("", "look"), results("look"), say("faster"), model("done")}, `"go",`, 2},
		{"said twice", []*message.Message{say("go"), say("now"), model("done"), say("unanswered")}, `"go\nnow",`, 1},
		{"background", []*message.Message{say("go"), model("", "build"), results("build"), model("It builds."), user(&message.Hint{Text: "build: done"}), model("Built.")}, `"go", "build: done",`, 3},
		{"hostile", []*message.Message{say(hostile), model(hostile, hostile, "srv.look", "Look", "look", strings.Repeat("x", 65), ""),
			results(hostile, "srv.look", "Look", "look", strings.Repeat("x", 65), ""), model(hostile)}, strconv.Quote(hostile) + ",", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, err := exportGoTest("s", &agent.State{Messages: row.messages})
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(code), "range []string{\n")
			said, _, _ := strings.Cut(rest, "\n\t} {")
			if got := strings.Join(strings.Fields(said), " "); got != row.said {
				t.Errorf("the runs begin with %s, want %s", got, row.said)
			}
			_, rest, _ = strings.Cut(string(code), "scripted.Test(t,\n")
			turns, _, _ := strings.Cut(rest, "\n\t)\n")
			if got := strings.Count(turns, "\n") + 1; got != row.turns {
				t.Errorf("%d turns, want %d:\n%s", got, row.turns, turns)
			}
			if dir := os.Getenv("KITBAG_EXPORTED"); dir != "" {
				dir = filepath.Join(dir, strings.ReplaceAll(row.name, " ", "_"))
				if err := errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, "session_test.go"), code, 0o666)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestExportedRuns compiles and runs exported tests: that of a session that ended with an answer passes, and that of one whose
// model failed fails as the session did.
func TestExportedRuns(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, user := t.TempDir(), &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "Look."}}}
	look := &message.Message{Role: message.RoleAssistant, Blocks: message.Blocks{&message.ToolCall{ID: "call_1", Name: "look", Input: []byte(`{}`)}}}
	lost := &message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: "call_1", Name: "look", Outcome: message.OutcomeError, Blocks: message.Blocks{&message.Text{Text: "no light"}}}}}
	answer := &message.Message{Role: message.RoleAssistant, Blocks: message.Blocks{&message.Text{Text: "There is no light."}}}
	files := map[string]string{}
	for name, messages := range map[string][]*message.Message{"answered": {user, look, lost, answer}, "failed": {user}} {
		code, err := exportGoTest("s", &agent.State{Messages: messages})
		file := filepath.Join(dir, name+"_test.go")
		if err = errors.Join(err, os.WriteFile(file, code, 0o600)); err != nil {
			t.Fatal(err)
		}
		files[filepath.Join(here, "internal/exported", name, "session_test.go")] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"answered": "PASS", "failed": "the last answer is <nil>"} {
		file := filepath.Join(dir, name+".test")
		out, err := exec.Command("go", "test", "-vet=off", "-c", "-o", file, "-overlay", filepath.Join(dir, "overlay.json"), "./internal/exported/"+name).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		if out, err = exec.Command(file).CombinedOutput(); (err == nil) != (want == "PASS") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
