package builtin

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// attackFiles are the case files whose commands try to do harm.
var attackFiles = []string{"bash_adversarial.jsonl", "bash_accept_edits_adversarial.jsonl", "bash_injection.jsonl", "bash_dangerous_pattern.jsonl", "bash_sed.jsonl", "bash_rule_adversarial.jsonl"}

// attackCommands returns the commands, each once.
func attackCommands(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, name := range attackFiles {
		for _, row := range casetest.Rows[struct{ Command string }](t, name) {
			if row.Command != "" && !strings.ContainsRune(row.Command, 0) { // arguments cannot contain zero bytes
				out = append(out, row.Command)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fewer returns some of the rows with -short, and otherwise all.
func fewer[E any](rows []E) (some []E) {
	if !testing.Short() {
		return rows
	}
	for i := 0; i < len(rows); i += 8 {
		some = append(some, rows[i])
	}
	return some
}

// confinedDirs has a directory that commands are confined to, and a home directory.
type confinedDirs struct{ project, home string }

func newConfinedDirs(t *testing.T) confinedDirs {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	// It is not in /tmp, which the profile work hides.
	dir, err := os.MkdirTemp(home, ".kitbag-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := confinedDirs{filepath.Join(dir, "project"), filepath.Join(dir, "home")}
	for name, text := range map[string]string{
		"project/a": "a\n", "project/b.txt": "b\n", "project/src/main.go": "package main\n", "project/package.json": "{}\n", "project/Makefile": "all:\n\ttrue\n",
		"project/kitbag.json": "{}\n", "project/.envrc": "x\n", "project/.vscode/settings.json": "{}\n", "project/sub/.npmrc": "x\n",
		"home/.bashrc": "x\n", "home/.ssh/id_rsa": "x\n", "home/.profile": "x\n", "home/file": "x\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = s.project
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	return s
}

// state describes files by all attributes that a change would affect.
func state(t *testing.T, names ...string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range names {
		err := filepath.WalkDir(name, func(name string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(name, &st); err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s %o %d:%d %d bytes, changed %v\n", name, st.Mode, st.Uid, st.Gid, st.Size, st.Ctim)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestAttacksConfined runs harmful commands as they are, in both profiles. In the profile read nothing may
// change; in work nothing outside the directory and nothing protected.
func TestAttacksConfined(t *testing.T) {
	commands := fewer(attackCommands(t))
	t.Logf("%d commands", len(commands))
	for _, profile := range []permission.Profile{permission.ProfileRead, permission.ProfileWork} {
		t.Run(string(profile), func(t *testing.T) {
			const batch = 100
			for part := range slices.Chunk(commands, batch) {
				s := newConfinedDirs(t)
				watched := func() string {
					if profile == permission.ProfileRead {
						return state(t, s.home, s.project)
					}
					return state(t, s.home, s.project+"/kitbag.json", s.project+"/.envrc", s.project+"/.vscode", s.project+"/sub/.npmrc", s.project+"/.git/hooks", s.project+"/.git/config")
				}
				before := watched()
				s.run(t, profile, part)
				if after := watched(); after != before {
					t.Errorf("one of these changed files:\n%s\n\nafter:\n%s\nbefore:\n%s", strings.Join(part, "\n"), after, before)
				}
			}
		})
	}
}

// patience is the timeout of a command, since some never end.
const patience = 300 * time.Millisecond

// run runs the commands, several at the same time.
func (s confinedDirs) run(t *testing.T, profile permission.Profile, commands []string) {
	t.Helper()
	l := &Local{Dirs: []string{s.project}}
	next := make(chan string)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for command := range next {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_, err := l.Run(ctx, Command{
					Args: []string{"bash", "--noprofile", "--norc", "-c", command}, Dir: s.project, Output: io.Discard, Profile: profile,
					Env: append(os.Environ(), "HOME="+s.home),
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("%q: %v", command, err)
				}
				cancel()
			}
		})
	}
	for _, c := range commands {
		next <- c
	}
	close(next)
	all.Wait()
}

// everyday are ordinary commands, which must give the same results in a sandbox.
var everyday = []struct{ run, want string }{
	{"go build -o prog . && ./prog", "built\n"},
	{"go vet ./... && go test ./...", "ok  \texample.com/x"},
	{"go test -race -run Loopback ./...", "ok  \texample.com/x"},
	{"make", "made\n"},
	{"npm test --silent", "tested\n"},
	{"node -e 'const c = require(\"child_process\").fork(\"child.js\"); c.on(\"message\", m => console.log(m))'", "from the child\n"},
	{"git add -A && git -c user.name=a -c user.email=a@b commit -qm second && git log --oneline | wc -l", "2\n"},
	{"git checkout -qb other && git stash list && git branch --show-current", "other\n"},
	{"chmod +x a && cp -p a c && tar cf t.tar a c && mkdir x && tar xf t.tar -C x && ls x", "a\nc\n"},
	{"python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'", "[1, 2]\n"},
	{"sort -S 1M <(seq 3 -1 1) | tee sorted && sed -i s/1/one/ sorted && head -1 sorted", "1\n2\n3\none\n"},
}

func TestEverydayConfined(t *testing.T) {
	s := newConfinedDirs(t)
	for name, text := range map[string]string{
		"go.mod": "module example.com/x\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { println(\"built\") }\n",
		"main_test.go": "package main\n\nimport (\n\t\"net\"\n\t\"net/http\"\n\t\"net/http/httptest\"\n\t\"testing\"\n)\n\n" +
			"func TestLoopback(t *testing.T) {\n\ts := httptest.NewServer(http.NotFoundHandler())\n\tdefer s.Close()\n\tif r, err := http.Get(s.URL); err != nil || r.StatusCode != 404 {\n\t\tt.Fatal(err)\n\t}\n" +
			"\tif _, err := net.Listen(\"unix\", t.TempDir()+\"/s\"); err != nil {\n\t\tt.Fatal(err)\n\t}\n}\n",
		"Makefile": "all:\n\t@echo made\n", "package.json": `{"name": "x", "version": "1.0.0", "scripts": {"test": "node -e \"console.log('tested')\""}}`,
		"child.js": "process.send('from the child')\n",
	} {
		if err := os.WriteFile(filepath.Join(s.project, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.RemoveAll(filepath.Join(s.project, "src"))
	before := state(t, s.home)
	l := &Local{Dirs: []string{s.project}}
	for _, c := range fewer(everyday) {
		program := strings.Fields(c.run)[0]
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Logf("%s is not installed: skipped", program)
			continue
		}
		out, exit := l.runConfined(t, permission.ProfileWork, s.project, c.run)
		if exit.Code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %+v, printed %q; want %q", c.run, exit, out, c.want)
		}
	}
	if after := state(t, s.home); after != before {
		t.Errorf("files outside have changed:\n%s\nbefore:\n%s", after, before)
	}
}

// runConfined runs a script in dir.
func (l *Local) runConfined(t *testing.T, profile permission.Profile, dir, script string) (string, Exit) {
	t.Helper()
	var out strings.Builder
	exit, err := l.Run(t.Context(), Command{
		Args: []string{"bash", "--noprofile", "--norc", "-c", script}, Dir: dir, Output: &out, Profile: profile,
	})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String(), exit
}

// TestLocalProfiles checks which commands Local confines, and the messages of those that fail because of it.
func TestLocalProfiles(t *testing.T) {
	s := newConfinedDirs(t)
	if err := os.WriteFile(filepath.Join(s.project, ".env"), []byte("KEY=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := "echo x >>" + s.home + "/file"
	for _, c := range []struct {
		about   string
		sandbox permission.Profile
		profile permission.Profile
		run     string
		fails   bool
		denied  string
	}{
		{"not judged", "", "", outside, false, ""},
		{"approved to run outside", "", permission.ProfileOpen, outside, false, ""},
		{"the sandbox is off", permission.ProfileOpen, permission.ProfileWork, outside, false, ""},
		{"the sandbox's profile is read", permission.ProfileRead, permission.ProfileWork, "echo x >new", true, "in which nothing can be written"},
		{"work, outside", "", permission.ProfileWork, outside, true, "can only write in " + s.project},
		{"work, inside", "", permission.ProfileWork, "echo x >new", false, ""},
		{"work, protected", "", permission.ProfileWork, "echo x >.git/hooks/pre-commit", true, "except to protected files"},
		{"work, a secret", "", permission.ProfileWork, "cat " + s.project + "/.env", true, "hides " + s.project + "/.env"},
		{"work, made a protected file", "", permission.ProfileWork, "echo x >.mcp.json", false, "created " + s.project + "/.mcp.json"},
		{"work, network", "", permission.ProfileWork, "exec 3<>/dev/tcp/192.0.2.1/80", true, "has no network except loopback"},
		{"work, left behind", "", permission.ProfileWork, "sleep 60 >/dev/null 2>&1 &", false, "background process was ended"},
		{"read", "", permission.ProfileRead, "cat a", false, ""},
		{"read, writing", "", permission.ProfileRead, "echo x >new2", true, "in which nothing can be written"},
		{"read, a failure without a denial", "", permission.ProfileRead, "grep -q none a", true, ""},
	} {
		l := &Local{Dirs: []string{s.project, s.project + "/none"}}
		l.Sandbox.Profile = c.sandbox
		out, exit := l.runConfined(t, c.profile, s.project, c.run)
		if (exit.Code != 0) != c.fails || !strings.Contains(exit.Denied, c.denied) || (exit.Denied == "") != (c.denied == "") {
			t.Errorf("%s: %+v, printed %q; want failure %t, %q", c.about, exit, out, c.fails, c.denied)
		}
	}
}

// TestLocalConfinedEnds checks how Local reports the end of a program.
func TestLocalConfinedEnds(t *testing.T) {
	s := newConfinedDirs(t)
	l := &Local{Dirs: []string{s.project}}
	if _, exit := l.runConfined(t, permission.ProfileWork, s.project, "kill -9 $$"); exit.Code != -1 || exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	if out, exit := l.runConfined(t, permission.ProfileWork, s.project, "head -c 3000000 /dev/zero | tr '\\0' x; exit 3"); exit.Code != 3 || len(out) != 3000000 {
		t.Errorf("%d bytes, %+v", len(out), exit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := l.Run(ctx, Command{Args: []string{"bash", "-c", "trap '' TERM; setsid sleep 60 & while :; do sleep 1; done"}, Dir: s.project, Profile: permission.ProfileWork})
	if took := time.Since(start); err != context.DeadlineExceeded || took > 30*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if _, err := l.Run(t.Context(), Command{Args: []string{s.project + "/none"}, Dir: s.project, Profile: permission.ProfileWork}); err == nil {
		t.Error("no error for a program that does not exist")
	}
}

// TestFinder checks which files below a directory are protected or hidden.
func TestFinder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		".git/config", ".git/worktrees/w/commondir", ".git/hooks/x", ".git/HEAD", ".git/modules/a/b/config", "sub/.git", "sub/.envrc", "sub/.env.local", "sub/.env.example", "deep/er/id_rsa", "deep/er/server.key",
		"bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/heads/x", "bare/hooks/x", "bare/info/attributes", "bare/worktrees/w/HEAD", "bare/worktrees/w/commondir", "bare/objects/.env", "testdata/server.key", "node_modules/x/.npmrc", ".vscode/settings.json", "bin/tool", "etc/passwd",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := new(finder)
	existing := func() string {
		kept, secret, err := f.findBelow(t.Context(), []string{dir})
		if err != nil {
			t.Fatal(err)
		}
		kept = slices.DeleteFunc(kept, func(name string) bool { _, err := os.Lstat(name); return err != nil })
		slices.Sort(kept)
		slices.Sort(secret)
		return strings.ReplaceAll(strings.Join(kept, " ")+" | "+strings.Join(secret, " "), dir+"/", "")
	}
	want := ".git/config .git/hooks .git/modules/a/b/config .git/worktrees/w/commondir .vscode bare/config bare/hooks bare/info/attributes bare/worktrees/w/commondir sub/.envrc sub/.git | bare/objects/.env deep/er/id_rsa deep/er/server.key sub/.env.local"
	for range 2 {
		if got := existing(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	// A new file is found in a directory that was read before, even if the directory's modification time is set back.
	time.Sleep(2 * settled)
	existing()
	before, err := os.Stat(filepath.Join(dir, "deep"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "deep/.env"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "deep"), time.Time{}, before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got, want := existing(), strings.Replace(want, " deep/er/id", " deep/.env deep/er/id", 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
