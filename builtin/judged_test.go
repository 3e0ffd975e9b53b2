package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// judged decides about a call, calls meanwhile, and runs the call with its judgement, like a host. It returns
// nil for a call that is not allowed.
func judged(ctx context.Context, t tool.Tool, p *permission.Policy, in string, meanwhile func()) (*message.ToolResult, permission.Decision) {
	checked, err := tool.Arguments(t, json.RawMessage(in))
	if err != nil {
		panic(err)
	}
	d := permission.Decide(p, tool.PermissionCall(t, checked.JSON))
	if d.Behavior != permission.Allow {
		return nil, d
	}
	if meanwhile != nil {
		meanwhile()
	}
	c := tool.Call{ID: "c", Name: t.Info().Name, Input: checked.JSON, Judgement: &d.Judgement}
	col := tool.NewCollector(c)
	for ch, err := range tool.Run(ctx, t, c) {
		if err != nil {
			panic(err)
		}
		col.Add(ch)
	}
	return col.Result(), d
}

func tools(t testing.TB, c Config) map[string]tool.Tool {
	t.Helper()
	all, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]tool.Tool{}
	for _, tl := range all {
		byName[tl.Info().Name] = tl
	}
	return byName
}

// TestMovedFiles checks that a call fails if its files are replaced between the judgement and the run.
func TestMovedFiles(t *testing.T) {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	// In w, "swap x y" replaces x by y, "link x y" a link to y, "make x" a file, "dir x" a directory.
	do := func(dir, what string) {
		f := strings.Fields(what + " - - -")
		x, y := filepath.Join(dir, f[1]), f[2]
		switch f[0] {
		case "swap":
			must(os.Rename(x, x+".old"))
			must(os.Rename(filepath.Join(dir, y), x))
		case "link":
			if _, err := os.Lstat(x); err == nil {
				must(os.Rename(x, x+".old"))
			}
			must(os.Symlink(y, x))
		case "make":
			must(os.WriteFile(x, []byte("made"), 0o666))
		case "dir":
			must(os.MkdirAll(x, 0o777))
		case "remove":
			must(os.Remove(x))
		case "write":
			must(os.WriteFile(x, []byte("changed in place"), 0o666))
		}
	}
	const moved = "replaced or moved after the call was judged"
	for i, row := range []struct {
		tool, in, change, want string // want begins with "ok " for a success
	}{
		{"Read", `{"file_path":"w/sub/a"}`, "", "ok      1\tA"},
		{"Read", `{"file_path":"w/sub/a"}`, "write w/sub/a", "ok      1\tchanged in place"},
		{"Read", `{"file_path":"w/sub/a"}`, "swap w/sub/a w/b", moved},
		{"Read", `{"file_path":"w/sub/a"}`, "swap w/sub/a out/secret", moved},
		{"Read", `{"file_path":"w/sub/a"}`, "link w/sub/a ../../out/secret", moved},
		{"Read", `{"file_path":"w/sub/a"}`, "link w/sub/a a.old", moved},
		{"Read", `{"file_path":"w/sub/a"}`, "link w/sub ../out", moved},
		{"Read", `{"file_path":"w/sub/a"}`, "swap w/sub out", moved},
		{"Read", `{"file_path":"w/sub/a"}`, "remove w/sub/a", "does not exist"},
		{"Read", `{"file_path":"w/new"}`, "make w/new", moved},
		{"Read", `{"file_path":"w/b/out/secret"}`, "", "a directory of this path is a file"},
		{"Read", `{"file_path":"w/b/out/secret"}`, "swap w/b w/links", moved}, // links has a link out
		{"Write", `{"file_path":"w/b/out/new","content":"new"}`, "swap w/b w/links", moved},
		{"Grep", `{"pattern":"[A-Z]","path":"w/b/out","output_mode":"content"}`, "swap w/b w/links", moved},
		{"Read", `{"file_path":"w/in/a"}`, "", "ok      1\tA"}, // in is a link to sub
		{"Read", `{"file_path":"w/in/a"}`, "link w/in ../out", "ok      1\tA"},
		{"Read", `{"file_path":"w/in/a"}`, "link w/sub ../out", moved},
		{"Write", `{"file_path":"w/sub/a","content":"new"}`, "", "ok Replaced the content"},
		{"Write", `{"file_path":"w/sub/a","content":"new"}`, "swap w/sub/a w/b", moved},
		{"Write", `{"file_path":"w/sub/a","content":"new"}`, "link w/sub/a ../../out/a", moved},
		{"Write", `{"file_path":"w/sub/a","content":"new"}`, "link w/sub ../out", moved},
		{"Write", `{"file_path":"w/sub/a","content":"new"}`, "swap w/sub out", moved},
		{"Write", `{"file_path":"w/sub/a","content":"new"}`, "remove w/sub/a", moved},
		{"Write", `{"file_path":"w/in/a","content":"new"}`, "link w/in ../out", "ok Replaced the content"},
		{"Write", `{"file_path":"w/sub/new","content":"new"}`, "", "ok Created"},
		{"Write", `{"file_path":"w/sub/new","content":"new"}`, "make w/sub/new", moved},
		{"Write", `{"file_path":"w/sub/new","content":"new"}`, "link w/sub/new ../../out/new", moved},
		{"Write", `{"file_path":"w/sub/new","content":"new"}`, "link w/sub ../out", moved},
		{"Write", `{"file_path":"w/sub/new","content":"new"}`, "swap w/sub out", moved},
		{"Write", `{"file_path":"w/x/y/new","content":"new"}`, "", "ok Created"},
		{"Write", `{"file_path":"w/x/y/new","content":"new"}`, "dir w/x/y", "ok Created"},
		{"Write", `{"file_path":"w/x/y/new","content":"new"}`, "link w/x ../out", moved},
		{"Write", `{"file_path":"w/sub/y/new","content":"new"}`, "swap w/sub out", moved},
		{"Write", `{"file_path":"w/loose","content":"new"}`, "", "ok Created"}, // a link to a missing file in sub
		{"Edit", `{"file_path":"w/sub/a","old_string":"A","new_string":"B"}`, "", "ok Replaced 1 occurrence"},
		{"Edit", `{"file_path":"w/sub/a","old_string":"A","new_string":"B"}`, "swap w/sub/a w/b", moved},
		{"Edit", `{"file_path":"w/sub/a","old_string":"A","new_string":"B"}`, "link w/sub ../out", moved},
		{"Grep", `{"pattern":"[A-Z]","path":"w/sub","output_mode":"content"}`, "", "ok "},
		{"Grep", `{"pattern":"[A-Z]","path":"w/sub","output_mode":"content"}`, "link w/sub ../out", moved},
		{"Grep", `{"pattern":"[A-Z]","path":"w/sub/a","output_mode":"content"}`, "link w/sub/a ../../out/secret", moved},
		{"Grep", `{"pattern":"[A-Z]","path":"w","output_mode":"content"}`, "link w/sub ../out", "ok "}, // a search skips links
		{"Glob", `{"pattern":"*","path":"w/sub"}`, "", "ok "},
		{"Glob", `{"pattern":"*","path":"w/sub"}`, "link w/sub ../out", moved},
		{"Glob", `{"pattern":"sub/*","path":"w"}`, "link w/sub ../out", "ok No files match"},
	} {
		t.Run(strconv.Itoa(i)+"/"+row.tool, func(t *testing.T) {
			dir := files(t, map[string]string{"w/sub/a": "A\n", "w/b": "B\n", "out/secret": "SECRET\n", "out/a": "OUT\n"})
			must(os.Symlink("sub", filepath.Join(dir, "w/in")))
			must(os.Symlink("sub/target", filepath.Join(dir, "w/loose")))
			must(os.Mkdir(filepath.Join(dir, "w/links"), 0o777))
			must(os.Symlink("../../out", filepath.Join(dir, "w/links/out")))
			p := &permission.Policy{Mode: permission.ModeAcceptEdits, Dirs: []string{filepath.Join(dir, "w")}}
			res, d := judged(t.Context(), tools(t, Config{Dirs: []string{dir}})[row.tool], p, row.in, func() { do(dir, row.change) })
			if res == nil {
				t.Fatalf("%+v", d)
			}
			text, success := strings.CutPrefix(row.want, "ok ")
			if success != (res.Outcome == message.OutcomeSuccess) || !strings.Contains(res.Text(), text) {
				t.Errorf("%s after %q: %s %q, want %q", row.in, row.change, res.Outcome, res.Text(), row.want)
			}
			if strings.Contains(res.Text(), "SECRET") {
				t.Errorf("%s after %q shows %q", row.in, row.change, res.Text())
			}
			left, _ := filepath.Glob(filepath.Join(dir, "*", ".kitbag-*"))
			for _, name := range []string{"out/new", "out/y", "w/sub/y", "w/sub.old/y"} {
				if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
					left = append(left, name)
				}
			}
			if len(left) > 0 {
				t.Errorf("%s after %q left %q", row.in, row.change, left)
			}
		})
	}
}

// raceRuns is how many allowed calls of each row race with a link that is continuously swapped; "make explore"
// runs 18,000 in all.
func raceRuns(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("KITBAG_RACE"))
	if err != nil {
		return 60
	}
	return n
}

// TestJudgedAnew checks that a call that is decided again later, or under other working directories, is judged by
// what is then in them.
func TestJudgedAnew(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	bash, err := Bash(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := &permission.Policy{}
		for _, row := range []struct {
			command string
			change  func()
		}{
			{"npm ls", func() {
				os.WriteFile(filepath.Join(dir, ".npmrc"), []byte("registry=x\n"), 0o600)
				time.Sleep(50 * time.Millisecond)
			}},
			{"git -C " + other + " status", func() { p.Dirs = []string{other} }},
		} {
			call := tool.PermissionCall(bash, json.RawMessage(fmt.Sprintf(`{"command":%q}`, row.command)))
			before := permission.Decide(p, call).Behavior
			if again := permission.Decide(p, call).Behavior; again != before {
				t.Errorf("%q: %s, then %s", row.command, before, again)
			}
			row.change()
			if after := permission.Decide(p, call).Behavior; after == before {
				t.Errorf("%q: still %s", row.command, after)
			}
		}
	})
}

// TestRaceWithLinks checks that no call reads or writes outside while a directory is continuously swapped with
// a link out of the tree, in any mode, and that deny rules apply.
func TestRaceWithLinks(t *testing.T) {
	dir := files(t, map[string]string{"w/sub/a": "inside\n", "out/a": "ESCAPED\n"})
	w := filepath.Join(dir, "w")
	stop := swap(t, filepath.Join(w, "sub"), "../out")
	defer stop()
	deny := []permission.Rule{}
	for _, name := range []string{"Read", "Write", "Edit", "Grep", "Glob"} {
		deny = append(deny, permission.Rule{Tool: name, Pattern: filepath.Join(dir, "out") + "/**", Behavior: permission.Deny})
	}
	all := tools(t, Config{Dirs: []string{w}})
	for _, mode := range []permission.Mode{permission.ModeAcceptEdits, permission.ModeBypass} {
		for _, row := range []struct{ tool, in string }{
			{"Read", `{"file_path":"sub/a"}`},
			{"Grep", `{"pattern":"E","path":"sub","output_mode":"content"}`},
			{"Grep", `{"pattern":"E","path":".","output_mode":"content"}`},
			{"Glob", `{"pattern":"*","path":"sub"}`},
			{"Glob", `{"pattern":"sub/*"}`},
			{"Write", `{"file_path":"sub/new%d","content":"x"}`},
			{"Write", `{"file_path":"sub/d%d/new","content":"x"}`},
			{"Write", `{"file_path":"sub/a","content":"x"}`},
			{"Edit", `{"file_path":"sub/a","old_string":"i","new_string":"j","replace_all":true}`},
		} {
			p := &permission.Policy{Mode: mode, Dirs: []string{w}, Rules: deny}
			allowed := 0
			for i, runs := 0, raceRuns(t); allowed < runs && i < 100*runs; i++ { // some calls are not allowed
				in := row.in
				if strings.Contains(in, "%d") {
					in = fmt.Sprintf(in, i)
				}
				res, _ := judged(t.Context(), all[row.tool], p, in, nil)
				if res == nil {
					continue
				}
				allowed++
				if strings.Contains(res.Text(), "ESCAPED") || strings.Contains(res.Text(), "/out/") {
					t.Fatalf("%s %s in %s: %s", row.tool, in, mode, res.Text())
				}
			}
			if allowed == 0 {
				t.Errorf("%s %s in %s: never allowed, so nothing was tested", row.tool, row.in, mode)
			}
			left, err := os.ReadDir(filepath.Join(dir, "out"))
			if err != nil || len(left) != 1 || content(t, filepath.Join(dir, "out/a")) != "ESCAPED\n" {
				t.Fatalf("%s %s in %s wrote outside: %v, %v", row.tool, row.in, mode, left, err)
			}
		}
	}
}

// TestRulesForChanges checks that a deny or ask rule with a pattern for one of Write and Edit applies to the other, as to
// commands: it is about the files. An allow rule, and a rule without a pattern, is for its tool only.
func TestRulesForChanges(t *testing.T) {
	dir := files(t, map[string]string{"vendor/a": "a\n", "b": "b\n"})
	all := tools(t, Config{Dirs: []string{dir}})
	for _, row := range []struct {
		rule          string
		behavior      permission.Behavior
		vendor, other permission.Behavior // decisions about the other tool
	}{
		{"(vendor/**)", "deny", "deny", "allow"}, {"(vendor/**)", "ask", "ask", "allow"}, {"(vendor)", "deny", "deny", "allow"}, {"([)", "deny", "deny", "deny"},
		{"", "deny", "allow", "allow"}, {"", "ask", "allow", "allow"}, {"(/etc/**)", "allow", "allow", "allow"},
	} {
		for name, ruled := range map[string]string{"Write": "Edit", "Edit": "Write"} {
			r, err := permission.ParseRule(ruled+row.rule, row.behavior)
			if err != nil {
				t.Fatal(err)
			}
			p := &permission.Policy{Mode: permission.ModeAcceptEdits, Dirs: []string{dir}, Rules: []permission.Rule{r}}
			for path, want := range map[string]permission.Behavior{"vendor/a": row.vendor, "b": row.other} {
				call := tool.PermissionCall(all[name], json.RawMessage(args("file_path", path, "content", "x", "old_string", "a", "new_string", "x")))
				if d := permission.Decide(p, call); d.Behavior != want {
					t.Errorf("%s of %s with %s %s: %s (%s), want %s", name, path, row.behavior, r, d.Behavior, d.Reason, want)
				}
			}
		}
	}
}

// TestAllowRuleOfSwappedLink checks that a rule for a directory allows nothing elsewhere after the model has replaced the
// directory by a link, as a confined command can.
func TestAllowRuleOfSwappedLink(t *testing.T) {
	dir := files(t, map[string]string{"w/gen/a": "inside\n", "out/a": "outside\n"})
	w := filepath.Join(dir, "w")
	all := tools(t, Config{Dirs: []string{w}})
	for _, pattern := range []string{"gen/**", w + "/gen/**", "gen/a"} {
		for _, row := range []struct{ tool, in string }{
			{"Write", `{"file_path":"gen/a","content":"x"}`}, {"Read", `{"file_path":"gen/a"}`}, {"Grep", `{"path":"gen","pattern":"x"}`},
		} {
			p := &permission.Policy{Dirs: []string{w}, Rules: []permission.Rule{{Tool: row.tool, Pattern: pattern, Behavior: permission.Allow}}}
			call := tool.PermissionCall(all[row.tool], json.RawMessage(row.in))
			if d := permission.Decide(p, call); d.Behavior != permission.Allow {
				t.Errorf("%s %s under %s: %s", row.tool, row.in, pattern, d.Reason)
			}
			os.Rename(filepath.Join(w, "gen"), filepath.Join(w, "old"))
			os.Symlink("../out", filepath.Join(w, "gen"))
			call = tool.PermissionCall(all[row.tool], json.RawMessage(row.in))
			if d := permission.Decide(p, call); d.Behavior != permission.Ask || len(d.Suggest) != 1 || !strings.Contains(d.Suggest[0].Pattern, "/out/") {
				t.Errorf("%s %s under %s, outside: %s, suggests %v", row.tool, row.in, pattern, d.Behavior, d.Suggest)
			}
			os.Remove(filepath.Join(w, "gen"))
			os.Rename(filepath.Join(w, "old"), filepath.Join(w, "gen"))
		}
	}
}

// swap exchanges a directory with a link to target until stop is called.
func swap(t *testing.T, dir, target string) (stop func()) {
	t.Helper()
	link, kept := dir+".link", dir+".dir"
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	var stopped atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stopped.Load() {
			os.Rename(dir, kept)
			os.Rename(link, dir)
			os.Rename(dir, link)
			os.Rename(kept, dir)
		}
	})
	return func() { stopped.Store(true); wg.Wait() }
}
