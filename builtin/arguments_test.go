package builtin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// TestArguments checks the answers to arguments as models write them.
func TestArguments(t *testing.T) {
	dir := files(t, map[string]string{"a.txt": "one\nTwo\nthree\n", "sub/b.txt": "two\n"})
	home := files(t, map[string]string{"h.txt": "two\n"})
	t.Setenv("HOME", home)
	all := tools(t, Config{Dirs: []string{dir}})
	ctx := toolstate.With(t.Context(), &toolstate.State{})
	for _, row := range []struct{ tool, in, outcome, text string }{
		// Paths are relative to the working directory, in every tool.
		{"Read", `{"file_path":"sub/b.txt"}`, "success", "     1\ttwo"},
		{"Read", `{"file_path":"./sub/../a.txt"}`, "success", "     1\tone"},
		{"Read", `{"file_path":"~/h.txt"}`, "success", "     1\ttwo"},
		{"Read", `{"file_path":"none.txt"}`, "error", "none.txt: file does not exist; look for it with Glob"},
		{"Edit", `{"file_path":"a.txt","old_string":"one","new_string":"1"}`, "success", "in " + dir + "/a.txt"},
		{"Write", `{"file_path":"new/c.txt","content":"c"}`, "success", "Created " + dir + "/new/c.txt (1 line)."},
		{"Grep", `{"pattern":"two","path":"sub"}`, "success", dir + "/sub/b.txt"},
		{"Grep", `{"pattern":"two","path":"~"}`, "success", home + "/h.txt"},
		{"Glob", `{"pattern":"*.txt","path":"sub"}`, "success", dir + "/sub/b.txt"},
		{"Glob", `{"pattern":"*.txt","path":"~"}`, "success", home + "/h.txt"},
		// The names of grep's options.
		{"Grep", `{"pattern":"two","-i":true,"path":"a.txt"}`, "success", dir + "/a.txt"},
		{"Grep", `{"pattern":"two","path":"a.txt"}`, "success", "No matches found"},
		{"Grep", `{"pattern":"two","-i":true,"-n":false,"output_mode":"content","path":"a.txt"}`, "success", dir + "/a.txt:Two"},
		{"Grep", `{"pattern":"two","-i":true,"-n":true,"output_mode":"content","path":"a.txt"}`, "success", dir + "/a.txt:2:Two"},
		// A value above the maximum is replaced by the maximum, with a note.
		{"Grep", `{"pattern":"two","head_limit":50000,"-A":500}`, "success", "[-A 500 is too large; 100 was used]\n[head_limit 50000 is too large; 10000 was used]"},
		{"Grep", `{"pattern":"two","offset":200000}`, "success", "[offset 200000 is too large; 100000 was used]"},
		{"Bash", `{"command":"echo x","timeout":9999999}`, "success", "x\n\n[timeout 9999999 is too long; 600000 was used]"},
		// An invalid glob.
		{"Glob", `{"pattern":"["}`, "error", `pattern "[" is not a valid glob`},
		{"Glob", `{"pattern":"src/{a,b"}`, "error", `pattern "src/{a,b" is not a valid glob`},
		{"Grep", `{"pattern":"x","glob":"["}`, "error", `glob "[" is not a valid glob`},
		{"Grep", `{"pattern":"x","glob":"*.go [a"}`, "error", `glob "*.go [a" is not a valid glob`},
		{"Grep", `{"pattern":"two","glob":"[ab].txt"}`, "success", dir + "/sub/b.txt"},
		// Binary output.
		{"Bash", `{"command":"head -c 5000 /dev/urandom"}`, "success", "[5000 bytes of binary data, not shown; redirect them to a file]"},
		{"Bash", `{"command":"echo before; sleep 0.1; head -c 5000 /dev/urandom; sleep 0.1; echo after"}`, "success",
			"before\n[5000 bytes of binary data, not shown; redirect them to a file]\nafter\n"},
		{"Bash", `{"command":"printf 'a/b\\0c/d\\0'"}`, "success", "a/b\x00c/d\x00"},
		{"Bash", `{"command":"printf 'gr\\374n'"}`, "success", "gr\uFFFDn"},
	} {
		want(t, call(ctx, all[row.tool], row.in), message.Outcome(row.outcome), row.text)
	}
	res := call(ctx, all["Bash"], args("command", "seq 100000"))
	want(t, res, "success", "characters left out; to see them, run the command with its output redirected")
	long, err := Bash(Config{Dirs: []string{dir}, MaxOutput: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if res := call(ctx, long, args("command", "seq 100000")); strings.Contains(res.Text(), "left out") || len(res.Text()) != 588895 {
		t.Errorf("%d characters of long output", len(res.Text()))
	}
}

// TestPrepare checks that a call that must fail does so before approval, and reveals nothing of a file that the
// model has not read.
func TestPrepare(t *testing.T) {
	dir := files(t, map[string]string{"read": "one\n", "unread": "one\n", "changed": "one\n"})
	all := tools(t, Config{Dirs: []string{dir}})
	ctx := toolstate.With(t.Context(), &toolstate.State{})
	for _, name := range []string{"read", "changed"} {
		want(t, call(ctx, all["Read"], args("file_path", name)), "success", "one")
	}
	if err := os.WriteFile(filepath.Join(dir, "changed"), []byte("two\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ tool, in, want string }{
		{"Edit", `{"file_path":"read","old_string":"one","new_string":"two"}`, ""},
		{"Edit", `{"file_path":"read","old_string":"three","new_string":"two"}`, "old_string does not occur"},
		{"Edit", `{"file_path":"unread","old_string":"three","new_string":"two"}`, "was not read in this session"},
		{"Edit", `{"file_path":"changed","old_string":"two","new_string":"x"}`, "has changed since it was read"},
		{"Edit", `{"file_path":"none","old_string":"two","new_string":"x"}`, "does not exist"},
		{"Edit", `{"file_path":3}`, "cannot unmarshal"},
		{"Write", `{"file_path":"unread","content":"two"}`, "was not read in this session"},
		{"Write", `{"file_path":"read","content":"two"}`, ""},
		{"Write", `{"file_path":"none","content":"two"}`, ""},
		{"Write", `{"file_path":3}`, "cannot unmarshal"},
		{"Read", `{"file_path":"none"}`, ""},
	} {
		_, err := tool.Preview(ctx, all[row.tool], json.RawMessage(row.in))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s %s: %v, want %q", row.tool, row.in, err, row.want)
		}
		if _, err := tool.Preview(t.Context(), all[row.tool], json.RawMessage(row.in)); err != nil && !strings.Contains(err.Error(), "unmarshal") {
			t.Errorf("%s %s without a state: %v", row.tool, row.in, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "read")); err != nil || string(got) != "one\n" {
		t.Errorf("a file was changed: %q, %v", got, err)
	}
}

// pwdChecker judges every call as if its command were pwd.
type pwdChecker struct{ permission.BaseChecker }

func (pwdChecker) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Found: permission.Judgement{Text: "pwd", Profile: permission.ProfileRead, Network: true}}
}

// TestBashRunsJudgement checks that Bash runs the text that was judged, with the profile and network of the
// judgement.
func TestBashRunsJudgement(t *testing.T) {
	m := &recording{}
	bash, err := Bash(Config{Dirs: []string{"/w"}, Backend: m})
	if err != nil {
		t.Fatal(err)
	}
	in := json.RawMessage(`{"command":"ls"}`)
	j := permission.Judge(&permission.Policy{}, &permission.Call{Tool: "Bash", Input: in, Checker: pwdChecker{}})
	for range tool.Run(t.Context(), bash, tool.Call{Name: "Bash", Input: in, Judgement: &j}) {
	}
	if got := m.last; strings.Join(got.Args, " ") != "bash --noprofile --norc -c pwd" || got.Profile != "read" || !got.Network || len(got.Env) == 0 {
		t.Errorf("%+v", got)
	}
	// Without a judged text the printed form of the command runs.
	none := permission.Judge(&permission.Policy{}, &permission.Call{Tool: "Bash", Input: json.RawMessage(args("command", "ls   -a;pwd # x"))})
	for _, j := range []*permission.Judgement{nil, &none} {
		for range tool.Run(t.Context(), bash, tool.Call{Name: "Bash", Input: json.RawMessage(args("command", "ls   -a;pwd # x")), Judgement: j}) {
		}
		if text := m.last.Args[4]; strings.Contains(text, "#") || !strings.Contains(text, "ls") {
			t.Errorf("judged %v: runs %q", j != nil, text)
		}
	}
	for command, want := range map[string]struct {
		text    string
		profile permission.Profile
	}{
		"ls":          {"ls", "read"},
		"touch x":     {"touch x", "work"},
		"# a comment": {":", "work"},
		"if":          {"", "work"}, // cannot be parsed
	} {
		d := permission.Decide(&permission.Policy{Mode: permission.ModeBypass}, tool.PermissionCall(bash, json.RawMessage(args("command", command))))
		if d.Judgement.Text != want.text || d.Judgement.Profile != want.profile || len(d.Judgement.Files) != 1 || d.Judgement.Files[0] != (permission.File{Path: "/w"}) {
			t.Errorf("%s: %+v", command, d.Judgement)
		}
	}
}
