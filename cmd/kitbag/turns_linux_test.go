package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// A playedTurn is an answer of a model that knows only what the requests say: reads are the texts of the request
// without which it could not give this answer.
type playedTurn struct {
	reads []string
	calls []openaitest.Call
}

// TestTurns plays three tasks as a model does that reads only the requests, and compares the number of its answers
// with the least that the task needs: the calls that depend on each other, one after the other, and an answer. It
// measures that the requests say what each answer needs, not what a model makes of it; for the calls that fail see
// TestTurnsAfterSlips.
func TestTurns(t *testing.T) {
	file := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name    string
		prepare func()
		scene   textScene
		least   int // read and run; change; check; answer
		more    int // how many more are allowed
		turns   []playedTurn
		done    string // a command that succeeds when the task is done
	}{
		{"bug fix", func() {
			file("sum.sh", "echo $(($1 - $2))\n")
			file("test.sh", "test \"$(bash sum.sh 2 3)\" = 5 || { echo 'sum.sh 2 3: want 5'; exit 1; }\n")
		}, textScene{Args: []string{"--mode", "accept-edits", "--allow", "Bash(bash test.sh)"}}, 4, 0, []playedTurn{
			{[]string{"Look before you change anything", `"name":"Read"`, "path of the file"}, []openaitest.Call{call("Read", `{"file_path":"sum.sh"}`), call("Bash", `{"command":"bash test.sh"}`)}},
			{[]string{"echo $(($1 - $2))", "want 5", "exit code 1", "old_string"}, []openaitest.Call{call("Edit", `{"file_path":"sum.sh","old_string":"$1 - $2","new_string":"$1 + $2"}`)}},
			{[]string{"Replaced 1 occurrence", "check that it works"}, []openaitest.Call{{ID: "again", Name: "Bash", Args: `{"command":"bash test.sh"}`}}},
		}, "bash test.sh"},
		{"three servers", func() {}, textScene{Args: []string{"--mode", "bypass"},
			Servers: map[string][]string{"notes": {"read_note", "list_notes"}, "mail": {"list_mails"}, "calendar": {"list_events", "create_event"}}}, 3, 2, []playedTurn{
			{[]string{`"notes":{"type":"boolean"`, `"mail":{"type":"boolean"`, `"calendar":{"type":"boolean"`, "true for every group that should be open"}, []openaitest.Call{call("reset_tools", `{"notes":true,"mail":true,"calendar":true}`)}},
			{[]string{"mcp__notes__list_notes", "mcp__mail__list_mails", "mcp__calendar__list_events", "Read a note before you change it."},
				[]openaitest.Call{call("mcp__notes__list_notes", `{}`), call("mcp__mail__list_mails", `{}`), call("mcp__calendar__list_events", `{}`)}},
		}, "true"},
		{"skill", func() {
			file("skills/release-notes/SKILL.md", "---\nname: release-notes\ndescription: Writes release notes. Use it before a release.\n---\n# Release notes\n\nRun `echo \"- first\" >NOTES.md`.\n")
		}, textScene{Args: []string{"--mode", "bypass", "--skills", "skills"}}, 3, 2, []playedTurn{
			{[]string{"Writes release notes.", "open that skill with the Skill tool"}, []openaitest.Call{call("Skill", `{"skill":"release-notes"}`)}},
			{[]string{"NOTES.md"}, []openaitest.Call{call("Bash", `{"command":"echo \"- first\" >NOTES.md"}`)}},
		}, "grep -q first NOTES.md"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := textWorkspace(t)
			row.prepare()
			row.scene.prepare(t, dir)
			row.scene.Prepare = nil
			var turns []openaitest.Turn
			for _, p := range row.turns {
				turns = append(turns, openaitest.Calls(p.calls...))
			}
			s := serve(t, append(turns, openaitest.Text("Done."))...)
			got := kitbag(t.Context(), append([]string{"run"}, append(row.scene.Args, "Do it.")...)...)
			if got.code != exitDone || strings.Contains(strings.ReplaceAll(got.stderr, "✗ Bash", ""), "✗") {
				t.Errorf("code %d: %s", got.code, got.stderr)
			}
			requests := s.Requests()
			for i, p := range row.turns {
				for _, text := range p.reads {
					if !strings.Contains(plainRequest(requests[i]), text) {
						t.Errorf("turn %d: the request does not say %q:\n%.3000s", i+1, text, requests[i].Body)
					}
				}
			}
			row.scene.Prepare = []string{row.done}
			row.scene.Servers = nil
			row.scene.prepare(t, dir)
			t.Logf("%d turns, %d at least", len(requests), row.least)
			if len(requests) > row.least+row.more {
				t.Errorf("%d turns; %d are needed, and %d more allowed", len(requests), row.least, row.more)
			}
		})
	}
}

// plainRequest returns the body of a request with the characters that JSON escapes.
func plainRequest(r *openaitest.Request) string {
	return strings.NewReplacer(`\u003e`, ">", `\u003c`, "<", `\u0026`, "&").Replace(string(r.Body))
}
