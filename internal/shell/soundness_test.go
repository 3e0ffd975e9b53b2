package shell

import (
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
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/pathrule"
)

// safeToTry are the commands that the generator uses: in a directory of their
// own even their worst options reach nothing else.
var safeToTry = strings.Fields(`ls cat head tail wc grep egrep sort uniq cut tr paste comm join diff cmp stat du file find sed awk
	tee xxd od nl fold fmt expand rev tac base64 md5sum sha256sum cksum seq expr basename dirname realpath readlink printf echo test [
	date column strings tree shuf split csplit touch mkdir rm rmdir mv cp ln truncate xargs env nice timeout time command
	true false pwd type cd read set git less more gzip zcat tar mktemp install unlink iconv numfmt which`)

// tryOptions returns the options of the generator for a command: those of the
// tables, and some that are not there.
func tryOptions(name string) []string {
	skip := []string{"-f", "-F", "--follow", "-w", "--watch"}
	var list []string
	for _, s := range specs()[name] {
		for o := range s.options {
			if !slices.Contains(skip, o) || name != "tail" {
				list = append(list, o)
			}
		}
	}
	slices.Sort(list)
	return append(list, "-o", "-i", "-a", "-r", "-n", "-e", "-d", "--output=w", "--force", "-w", "-x", "--")
}

var (
	tryWords = strings.Fields(`a b.txt sub sub/c *.txt * sub/* ./a -o -n --output=a out -delete -exec ; {} + 1 2,3p p s/a/b/ s/a/b/w
		'w out' '1e touch x' '{print}' '{print>"out"}' '{print $1}' 'BEGIN{system("touch x")}' $HOME "$HOME" $X "$X" "$(echo a)" $(echo out)
		HEAD main status log diff branch tag show add commit stash reflog config user.name -v -l x=y A=1 '' "a b" a{1,2} {a,out} ~ - + /dev/null
		sort ls cat rm touch tee -name -type f -print -printf %p -fprint ! -o -maxdepth 1 -- . .. sub/..`)
	tryJoins     = []string{"; ", " && ", " || ", " | ", "\n", " |& "}
	tryRedirects = []string{"", "", "", "", " 2>/dev/null", " >/dev/null", " 2>&1", " < a", " > out", " >> a", " <<< text", " 2> err", " &> out", " <<'E'\ntext\nE", " <<E\n$X `touch x`\nE"}
)

func generate(r *rand.Rand, depth int) string {
	name := safeToTry[r.IntN(len(safeToTry))]
	words := []string{name}
	if r.IntN(12) == 0 {
		words = []string{[]string{"A=1", "LC_ALL=C", "PATH=.", "TZ=UTC"}[r.IntN(4)], name}
	}
	options := tryOptions(name)
	if name == "git" && r.IntN(3) > 0 {
		sub := []string{"status", "log", "diff", "show", "branch", "tag", "reflog", "config", "remote", "stash", "ls-files", "rev-parse", "grep", "blame", "cat-file"}[r.IntN(15)]
		words = append(words, sub)
		options = tryOptions("git " + sub)
	}
	for range r.IntN(5) {
		if r.IntN(2) == 0 {
			o := options[r.IntN(len(options))]
			if strings.HasPrefix(o, "--") && r.IntN(2) == 0 {
				o += "=" + tryWords[r.IntN(len(tryWords))]
			}
			words = append(words, o)
		} else {
			words = append(words, tryWords[r.IntN(len(tryWords))])
		}
	}
	if name == "[" {
		words = append(words, "]")
	}
	cmd := strings.Join(words, " ") + tryRedirects[r.IntN(len(tryRedirects))]
	if depth == 0 {
		return cmd
	}
	inner := generate(r, depth-1)
	switch r.IntN(9) {
	case 0, 1, 2:
		return cmd + tryJoins[r.IntN(len(tryJoins))] + inner
	case 3:
		return "for f in *; do " + inner + "\ndone"
	case 4:
		return "if " + cmd + "\nthen " + inner + "\nfi"
	case 5:
		return "echo \"$(" + inner + "\n)\""
	case 6:
		return "(" + inner + "\n)"
	case 7:
		return "while read -r X; do " + inner + "\ndone < a"
	}
	return cmd
}

// A yard is a directory in which commands are tried.
type yard struct {
	dir string
	env []string
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{dir: t.TempDir()}
	y.env = Environ([]string{"PATH=/usr/bin:/bin", "HOME=" + y.dir + "/home", "X=-o", "LC_ALL=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e"})
	for name, text := range map[string]string{
		"home/.keep": "", "work/a": "a 1\nb 2\nc 3\n", "work/b.txt": "b\n", "work/sub/c": "c\n", "work/-o": "x\n", "work/--output=out": "y\n",
	} {
		name = filepath.Join(y.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := y.run(t, "git init -q -b main . && git add . && git commit -qm first && git status"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return y
}

// run runs a script as Bash does, stopped after some time.
func (y *yard) run(t *testing.T, script string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-c", script)
	cmd.Dir, cmd.Env = filepath.Join(y.dir, "work"), y.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// snapshot returns what is in the yard: names, modes and contents. The index is
// left out: git diff refreshes the file times that git remembers in it.
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

// changes tells snapshots apart.
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

// batch runs commands one after the other, each in a shell of its own.
func (y *yard) batch(t *testing.T, cmds []string) {
	t.Helper()
	for i, cmd := range cmds {
		name := filepath.Join(y.dir, "cmd")
		if i == 0 {
			if err := os.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(name, strconv.Itoa(i)), []byte(cmd), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := y.snapshot(t)
	out, err := y.run(t, `for i in ../cmd/*; do timeout 5 bash --noprofile --norc -c "$(cat "$i")" </dev/null >/dev/null 2>&1; done; jobs`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if after := y.snapshot(t); !maps.Equal(before, after) {
		if len(cmds) > 1 {
			for _, cmd := range cmds {
				newYard(t).batch(t, []string{cmd})
			}
		}
		t.Fatalf("called read-only, but something changed:%s\n%q", changes(before, after), cmds)
	}
	if err := os.RemoveAll(filepath.Join(y.dir, "cmd")); err != nil {
		t.Fatal(err)
	}
}

// What is called read-only is run, and must change nothing. KITBAG_SOUNDNESS
// sets how many commands are run.
func TestSoundness(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Fatal("this test needs bash")
	}
	want := 250
	if n, err := strconv.Atoi(os.Getenv("KITBAG_SOUNDNESS")); err == nil {
		want = n
	}
	const size = 50
	y := newYard(t)
	at := pathrule.Place{Cwd: filepath.Join(y.dir, "work"), Home: filepath.Join(y.dir, "home"), Dirs: []string{filepath.Join(y.dir, "work")}}
	r := rand.New(rand.NewPCG(1, uint64(want)))
	var sh Analyzer
	seen := map[string]bool{}
	var cmds []string
	ran, tried := 0, 0
	for ran < want {
		cmd := generate(r, r.IntN(3))
		if tried++; seen[cmd] {
			continue
		}
		seen[cmd] = true
		if sh.Analyze(cmd, at).ReadOnly() != "" {
			continue
		}
		if cmds = append(cmds, cmd); len(cmds) == size {
			y.batch(t, cmds)
			ran += len(cmds)
			cmds = cmds[:0]
		}
	}
	t.Logf("%d of %d generated commands are read-only, and are", ran, tried)
}

// What is called read-only is a script that bash reads, too.
func TestBashAgreesOnSyntax(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	everyday := lines(t, "everyday.txt")
	bits := []string{"'", `"`, "`", "$(", ")", "(", "{", "}", ";", ";;", "&", "|", "<", ">", "<<E", "\\", "\n", "$((", "[[", "]]", "do", "fi", "in", "#", "!", "=(", "$'", "*(", "{a,", "E\n"}
	var sh Analyzer
	dir := t.TempDir()
	n := 0
	for range 20000 {
		cmd := everyday[r.IntN(len(everyday))]
		for range 1 + r.IntN(3) {
			i := r.IntN(len(cmd) + 1)
			cmd = cmd[:i] + bits[r.IntN(len(bits))] + cmd[i:]
		}
		if sh.Analyze(cmd, here).ReadOnly() != "" {
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
		t.Errorf("bash reads them differently: %v\n%s", err, out)
	}
}
