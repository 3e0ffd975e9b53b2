//go:build unix

package shell

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// A yard is a directory in which commands are run.
type yard struct {
	dir  string // work and home, which must not change
	ctl  string // the commands, their reports, and the caches that programs keep
	env  []string
	mark string // a variable of the environment that identifies the yard's processes

	grace time.Duration // how long a process may take to end after its script
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{dir: t.TempDir(), ctl: t.TempDir(), grace: 5 * time.Second}
	y.mark = "KITBAG_YARD=" + y.dir
	cache := y.ctl + "/cache"
	golang, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	y.env = Environ([]string{"PATH=/usr/bin:/bin:" + filepath.Dir(golang), "HOME=" + y.dir + "/home", "X=-o", "LC_ALL=C.UTF-8", y.mark,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e",
		// The user's files cannot be accessed, and programs store their data in the yard.
		"DOCKER_HOST=unix://" + cache + "/none", "KUBECONFIG=/dev/null", "GH_CONFIG_DIR=" + cache, "http_proxy=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9",
		"XDG_CACHE_HOME=" + cache, "XDG_STATE_HOME=" + cache, "XDG_CONFIG_HOME=" + cache, "npm_config_cache=" + cache, "npm_config_update_notifier=false", "npm_config_offline=true",
		"GOCACHE=" + cache, "GOPATH=" + cache, "GOPROXY=off", "GOTOOLCHAIN=local", "GOTELEMETRY=off", "GOENV=off", "GOFLAGS=-modcacherw"})
	for name, text := range map[string]string{
		"home/.keep": "", "home/.config/go/telemetry/mode": "off 2024-01-01\n", "work/a": "a 1\nb 2\nc 3\n", "work/b.txt": "b\n", "work/sub/c": "c\n",
		"work/-o": "x\n", "work/--output=out": "y\n", "work/j.json": `{"a": [1, 2]}`, "work/go.mod": "module yard\n\ngo 1.20\n", "work/main.go": "package main\n\nfunc main() {}\n",
		"work/package.json": `{"name": "yard", "version": "1.0.0"}`, "work/Makefile": "all:\n\ttouch made\n", "work/s.sh": "touch made\n",
	} {
		name = filepath.Join(y.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := y.run(t, "git init -q -b main . && git add . && git commit -qm first && git status && tar cf t.tar a sub && gzip -c a > z.gz && bzip2 -k b.txt"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return y
}

// run runs a script as Bash does, in a separate session, and stops it after some time.
func (y *yard) run(t *testing.T, script string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-c", script, "yard", y.ctl)
	cmd.Dir, cmd.Env = filepath.Join(y.dir, "work"), y.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil && err == nil {
		err = y.noneLeft(cmd.Process.Pid)
	}
	return string(out), err
}

// noneLeft waits for a moment for the processes that a script left behind, and returns the names of those that
// remain. They are recognised by their session, by the yard's mark in their environment and by their working
// directory; without /proc only by the session, from ps.
func (y *yard) noneLeft(session int) error {
	var left []string
	for waited := time.Duration(0); waited <= y.grace; waited += 20 * time.Millisecond {
		if left = y.processes(session); len(left) == 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("processes stay behind: %q", left)
}

func (y *yard) processes(session int) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	if len(dirs) == 0 {
		out, _ := exec.Command("ps", "-A", "-o", "pid=,sess=,stat=,command=").Output()
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == strconv.Itoa(session) && f[2][0] != 'Z' {
				left = append(left, line)
			}
		}
		return left
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it ended
		}
		// pid (name) state ppid pgrp session …, where the name may contain anything.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		env, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		ours := f[3] == strconv.Itoa(session) || bytes.Contains(env, []byte(y.mark+"\x00")) || pathrule.Below(cwd, y.dir)
		if ours && f[0] != "Z" {
			cmdline, _ := os.ReadFile(dir + "/cmdline")
			left = append(left, filepath.Base(dir)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return left
}

// snapshot returns the content of the yard: names, modes and contents. It skips the index, in
// which git diff refreshes file times.
func (y *yard) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(y.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if filepath.Base(name) == "index" {
			return nil
		}
		text := info.Mode().String()
		if d.Type().IsRegular() {
			raw, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(raw))
		}
		all[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// changes describes the differences of two snapshots.
func changes(before, after map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			fmt.Fprintf(&b, "\n  %s: %q → %q", name, before[name], after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			fmt.Fprintf(&b, "\n  %s is gone", name)
		}
	}
	return b.String()
}

// runner runs the commands in $1/cmd, each in a separate shell, which reports its final environment. Between
// them the runner itself must not change.
const runner = `
state() { export -p; umask; ulimit -a; pwd; jobs; set -o; shopt; trap; }
state > "$1/before"
for i in "$1"/cmd/*; do
	timeout -k 1 3 bash --noprofile --norc -c 'trap "/usr/bin/env -0 >&9" EXIT; eval "$1"' yard "$(cat "$i")" </dev/null >/dev/null 2>&1 9> "$1/env/${i##*/}"
done
state > "$1/after"
cmp "$1/before" "$1/after"
`

// try returns the changes that commands make, or "".
func (y *yard) try(t *testing.T, cmds []string) string {
	t.Helper()
	for _, dir := range []string{"cmd", "env"} {
		if err := os.RemoveAll(filepath.Join(y.ctl, dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(y.ctl, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		if err := os.WriteFile(filepath.Join(y.ctl, "cmd", strconv.Itoa(i)), []byte(cmd), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := y.snapshot(t)
	if out, err := y.run(t, runner); err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	if diff := changes(before, y.snapshot(t)); diff != "" {
		return diff
	}
	for i, cmd := range cmds {
		raw, err := os.ReadFile(filepath.Join(y.ctl, "env", strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			continue // it was stopped
		}
		own := func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.Contains([]string{"", "PWD", "OLDPWD", "SHLVL", "_"}, name) ||
				strings.Contains(cmd, name+"=") && unsafePrefix(name, literal("")) == "" // set by a builtin that ended the shell
		}
		got := slices.DeleteFunc(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"), own)
		want := slices.DeleteFunc(slices.Clone(y.env), own)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("the environment after %q: %q", cmd, got)
		}
	}
	return ""
}

// TestSoundness runs commands that the analysis considers read-only. They must not change a file or the
// environment, nor leave a process. KITBAG_SOUNDNESS sets how many commands are run.
func TestSoundness(t *testing.T) {
	t.Parallel() // it waits for processes
	want := 250
	if n, err := strconv.Atoi(os.Getenv("KITBAG_SOUNDNESS")); err == nil {
		want = n
	}
	const batch = 50
	y := newYard(t)
	at := pathrule.Place{Cwd: filepath.Join(y.dir, "work"), Home: filepath.Join(y.dir, "home"), Dirs: []string{filepath.Join(y.dir, "work")}}
	g := newGenerator(1, uint64(want), y.installed(t, everyName(tried(t))))
	seen := map[string]bool{}
	var cmds []string
	ran, generated := 0, 0
	for ran < want {
		cmd, _ := g.command(g.rand.IntN(3))
		if generated++; seen[cmd] || Analyze(cmd, at).ReadOnly() != "" {
			continue
		}
		seen[cmd] = true
		if cmds = append(cmds, cmd); len(cmds) < batch {
			continue
		}
		if what := y.try(t, cmds); what != "" {
			for _, cmd := range cmds { // find out which one it was
				if what := newYard(t).try(t, []string{cmd}); what != "" {
					t.Errorf("%q is read-only: %s", cmd, what)
				}
			}
			t.Fatalf("read-only, but something changed: %s\n%q", what, cmds)
		}
		ran, cmds = ran+len(cmds), cmds[:0]
	}
	t.Logf("%d of %d generated commands, with %d names, are read-only, and they changed nothing", ran, generated, len(g.names))
}

// installed returns the names of installed commands.
func (y *yard) installed(t *testing.T, names []string) []string {
	t.Helper()
	var firsts []string
	for _, name := range names {
		first, _, _ := strings.Cut(name, " ")
		firsts = append(firsts, first)
	}
	list := filepath.Join(y.ctl, "names")
	if err := os.WriteFile(list, []byte(strings.Join(firsts, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := y.run(t, `while read -r n; do type -t -- "$n" > /dev/null && echo "$n"; done < "$1/names"; true`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	there := strings.Fields(out)
	return slices.DeleteFunc(names, func(name string) bool {
		first, _, _ := strings.Cut(name, " ")
		return !slices.Contains(there, first)
	})
}

// TestSoundnessSees checks that the test above can fail: it detects a file, a variable and a process.
func TestSoundnessSees(t *testing.T) {
	y := newYard(t)
	y.grace = 200 * time.Millisecond
	for _, cmd := range []string{"touch made", "chmod 600 a", "export x=1", "sleep 60 &", "setsid sleep 60 &", "(cd / && env -i sleep 60 &)", "nohup sleep 60 >/dev/null 2>&1 &", "cd sub; setsid env -i sleep 60 &"} {
		if y.try(t, []string{cmd}) == "" {
			t.Errorf("%q is not detected", cmd)
		}
		if _, err := y.run(t, "rm -f made; chmod 644 a"); err == nil && strings.Contains(cmd, "sleep") {
			t.Errorf("%q: the process ended by itself", cmd)
		}
		for _, p := range y.processes(-1) {
			if pid, err := strconv.Atoi(strings.Fields(p)[0]); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// TestNoBareRepositories checks that git does not run programs from the settings of a directory in a working
// tree that looks like a bare repository.
func TestNoBareRepositories(t *testing.T) {
	y := newYard(t)
	out, err := y.run(t, `git init -q --bare evil && printf '[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = touch ../made #\n' >> evil/config && cd evil && git status; ls ../made`)
	if err == nil || strings.Contains(out, "\n../made") {
		t.Errorf("git ran what the directory names: %v\n%s", err, out)
	}
}

// TestBashAgreesOnSyntax checks that bash can parse every read-only command.
func TestBashAgreesOnSyntax(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	everyday := lines(t, "everyday.txt")
	bits := []string{"'", `"`, "`", "$(", ")", "(", "{", "}", ";", ";;", "&", "|", "<", ">", "<<E", "\\", "\n", "$((", "[[", "]]", "do", "fi", "in", "#", "!", "=(", "$'", "*(", "{a,", "E\n"}
	dir := t.TempDir()
	n := 0
	for range 20000 {
		cmd := everyday[r.IntN(len(everyday))]
		for range 1 + r.IntN(3) {
			i := r.IntN(len(cmd) + 1)
			cmd = cmd[:i] + bits[r.IntN(len(bits))] + cmd[i:]
		}
		if Analyze(cmd, here).ReadOnly() != "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), []byte(cmd), 0o600); err != nil {
			t.Fatal(err)
		}
		if n++; n == 400 {
			break
		}
	}
	if n < 100 {
		t.Fatalf("only %d mutants are read-only", n)
	}
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", `for i in *; do bash -n "$i" 2>&1 || { echo "== $i"; cat "$i"; }; done`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "==") {
		t.Errorf("bash cannot parse them: %v\n%s", err, out)
	}
}
