package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// A reader is a model that makes calls it has in mind, one answer after the other, and knows nothing else but what the
// text of a failed call says: it does that, then makes the call again. So the number of its answers is what
// the texts cause. It is stuck where a text does not say what to do.
type reader struct {
	t       *testing.T
	plan    [][]openaitest.Call
	now     []openaitest.Call // the calls of the last answer
	retry   []openaitest.Call // to be made after now
	answers int
	slips   int // failed calls
}

// The ways in which texts say what to do.
var (
	doFirst   = regexp.MustCompile(`call (\w+) with (\{.*?\}) first`)
	doInstead = regexp.MustCompile(`read it with (\w+) (\{.*?\})`)
	likeThis  = regexp.MustCompile(`A valid example: (\{.*\})`)
	nearest   = regexp.MustCompile(`there is no \w+ "([^"]+)"; (?:did you mean |the nearest(?: are)?:?(?: is)?\s+(?:- )?)"?([\w-]+)`)
	sections  = regexp.MustCompile(`there is no section "([^"]+)"; the sections are:\n- [^\n]*\((#[\w-]+)\)`)
)

// follow returns what a text says to call before and instead of c; failed is false if it is the result of a call that worked.
func (r *reader) follow(text string, c openaitest.Call) (before []openaitest.Call, again openaitest.Call, failed bool) {
	again = c
	if m := doFirst.FindStringSubmatch(text); m != nil {
		return []openaitest.Call{{Name: m[1], Args: m[2]}}, c, true
	}
	if m := doInstead.FindStringSubmatch(text); m != nil {
		again.Name, again.Args = m[1], m[2]
		return nil, again, true
	}
	if m := likeThis.FindStringSubmatch(text); m != nil {
		again.Args = m[1]
		return nil, again, true
	}
	for _, m := range slices.Concat(nearest.FindAllStringSubmatch(text, -1), sections.FindAllStringSubmatch(text, -1)) {
		again.Name = strings.ReplaceAll(again.Name, m[1], m[2])
		again.Args = strings.ReplaceAll(again.Args, `"`+m[1]+`"`, `"`+m[2]+`"`)
		failed = true
	}
	return nil, again, failed || strings.Contains(text, "call it again")
}

// answer reads the results of the last calls, and makes the next ones.
func (r *reader) answer(req *openaitest.Request) openaitest.Turn {
	var before, again []openaitest.Call
	for _, c := range r.now {
		i := slices.IndexFunc(req.Messages, func(m openaitest.Message) bool { return m.ToolCallID == c.ID })
		first, repeated, failed := r.follow(req.Messages[i].Text(), c)
		if failed {
			r.slips++
			before, again = append(before, first...), append(again, repeated)
		}
	}
	switch {
	case len(before) > 0:
		r.now, r.retry = r.merged(before), again
	case len(again) > 0:
		r.now = again
	case len(r.retry) > 0:
		r.now, r.retry = r.retry, nil
	case len(r.plan) > 0:
		r.now, r.plan = r.plan[0], r.plan[1:]
	default:
		return openaitest.Text("Done.")
	}
	r.answers++
	for i := range r.now {
		r.now[i].ID = fmt.Sprintf("call-%d-%d", r.answers, i)
	}
	return openaitest.Calls(r.now...)
}

// merged makes one call of those of the same tool.
func (r *reader) merged(calls []openaitest.Call) (out []openaitest.Call) {
	args := map[string]map[string]any{}
	for _, c := range calls {
		all := args[c.Name]
		if err := json.Unmarshal([]byte(c.Args), &all); err != nil {
			r.t.Fatal(err)
		}
		args[c.Name] = all
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		data, err := json.Marshal(args[name])
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, openaitest.Call{Name: name, Args: string(data)})
	}
	return out
}

// TestTurnsAfterSlips plays three tasks with the wrong calls that a language model made when it was given them, and
// counts its answers: texts lead it back within the bound.
func TestTurnsAfterSlips(t *testing.T) {
	servers := map[string][]string{"notes": {"list_notes"}, "mail": {"list_mails"}, "calendar": {"list_events"}}
	lists := []openaitest.Call{call("mcp__notes__list_notes", `{}`), call("mcp__mail__list_mails", `{}`), call("mcp__calendar__list_events", `{}`)}
	note := []openaitest.Call{call("Bash", `{"command":"echo \"- first\" >NOTES.md"}`)}
	for _, row := range []struct {
		name        string
		plan        [][]openaitest.Call
		slips       int // calls that fail
		least, more int // answers that the task needs, and how many more are made
		done        string
	}{
		{"bug fix: relative paths, flags as of grep, large numbers", [][]openaitest.Call{
			{call("Read", `{"file_path":"sum.sh","limit":5000}`), call("Grep", `{"pattern":"ECHO","-i":true,"-n":true,"output_mode":"content"}`), call("Bash", `{"command":"bash test.sh","timeout":9999999}`)},
			{call("Edit", `{"file_path":"./sum.sh","old_string":"$1 - $2","new_string":"$1 + $2"}`)},
			{call("Bash", `{"command":"bash test.sh"}`)}}, 0, 4, 0, "bash test.sh"},
		{"three servers: tools of closed groups", [][]openaitest.Call{lists}, 3, 3, 1, "true"},
		{"three servers: opened and called in one answer", [][]openaitest.Call{append(slices.Clone(lists), call("reset_tools", `{"notes":true,"mail":true,"calendar":true}`))}, 3, 3, 0, "true"},
		{"three servers: wrong names", [][]openaitest.Call{{call("reset_tools", `{"note":true,"mails":true,"calendar":true}`)}, lists}, 1, 3, 1, "true"},
		{"three servers: a wrong value", [][]openaitest.Call{{call("reset_tools", `{"notes":true,"mail":"open","calendar":true}`)}, lists}, 1, 3, 1, "true"},
		{"three servers: groups left out", [][]openaitest.Call{{call("reset_tools", `{"notes":true}`)}, lists}, 2, 3, 2, "true"},
		{"skill: as a tool, then a wrong section", [][]openaitest.Call{{call("release-notes", `{}`)}, {call("Skill", `{"skill":"release-notes","section":"steps"}`)}, note}, 2, 4, 2, "grep -q first NOTES.md"},
		{"skill: a part of its name", [][]openaitest.Call{{call("Skill", `{"skill":"release"}`)}, note}, 1, 3, 1, "grep -q first NOTES.md"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := textWorkspace(t)
			scene := textScene{Args: []string{"--mode", "bypass", "--skills", "skills"}, Servers: servers, Prepare: []string{
				"echo 'echo $(($1 - $2))' >sum.sh", `echo 'test "$(bash sum.sh 2 3)" = 5' >test.sh`, "mkdir -p skills/release-notes",
				`printf -- '---\nname: release-notes\ndescription: Writes release notes.\n---\n# Release notes\n\nWrite NOTES.md.\n' >skills/release-notes/SKILL.md`}}
			scene.Args = append(scene.Args, "--system", os.DevNull)
			scene.prepare(t, dir)
			model := &reader{t: t, plan: row.plan}
			s := serve(t, openaitest.Always(openaitest.Func(model.answer)))
			got := kitbag(t.Context(), slices.Concat([]string{"run"}, scene.Args, []string{"Do it."})...)
			if got.code != exitDone {
				t.Fatalf("code %d: %s", got.code, got.stderr)
			}
			failed := strings.Count(got.stderr, "✗") - strings.Count(got.stderr, "✗ Bash") // of Bash, the test that fails at first
			if n := len(s.Requests()); n != row.least+row.more || row.more > 2 || failed != row.slips || model.slips != row.slips {
				t.Errorf("%d answers, %d at least and %d more expected; %d calls failed, of which it understood %d:\n%s", n, row.least, row.more, failed, model.slips, got.stderr)
			}
			(&textScene{Prepare: []string{row.done}}).prepare(t, dir)
		})
	}
}
