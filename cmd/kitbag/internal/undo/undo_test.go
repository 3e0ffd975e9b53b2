package undo

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write changes files of dir: a text, "-" to remove it, "> x" for a link to x, "! text" for a program.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, text := filepath.Join(dir, name), files[name]
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if e := os.RemoveAll(path); e != nil {
			t.Fatal(e)
		}
		if to, ok := strings.CutPrefix(text, "> "); ok {
			err = os.Symlink(to, path)
		} else if program, ok := strings.CutPrefix(text, "! "); ok {
			err = os.WriteFile(path, []byte(program), 0o755)
		} else if text != "-" {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read returns the files of dir in the notation of write.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if err == nil && e.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if e.Type() == os.ModeSymlink {
			to, err := os.Readlink(path)
			files[name] = "> " + to
			return err
		}
		data, err := os.ReadFile(path)
		files[name] = string(data)
		if info, e := e.Info(); e == nil && info.Mode()&0o100 != 0 {
			files[name] = "! " + files[name]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func newKeeper(t *testing.T, dirs ...string) *Recorder {
	t.Helper()
	k, err := New(t.Context(), dirs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func remember(t *testing.T, k *Recorder) Snapshot {
	t.Helper()
	m, err := k.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var start = map[string]string{"a": "one\r\ntwo\n", "dir/b": "b", "dir/c d\n": "odd name", "run": "! #!/bin/sh", "link": "> a", "big": strings.Repeat("x", 1<<20),
	".gitignore": "*.log\n", "x.log": "ignored", ".gitattributes": "* text=auto eol=lf filter=evil ident diff=evil\n", "id": "$Id$"}

func TestRestore(t *testing.T) {
	for _, row := range []struct {
		name         string
		turn, since  map[string]string
		left         map[string]string // differences from the start afterwards
		kept         string
		restored     int
		repositories bool
	}{
		{name: "nothing"},
		{name: "edited", turn: map[string]string{"a": "two\n", "id": "$Id: x $"}, restored: 2},
		{name: "made", turn: map[string]string{"new/deep/x": "x", "y": "! y"}, restored: 2},
		{name: "removed", turn: map[string]string{"dir/b": "-", "dir/c d\n": "-", "big": "-", "link": "-"}, restored: 4},
		{name: "modes and kinds", turn: map[string]string{"a": "! one\r\ntwo\n", "run": "> /etc/passwd", "link": "a file"}, restored: 3},
		{name: "a directory for a file", turn: map[string]string{"a": "-", "a/x": "x"}, restored: 2},
		{name: "a link for a directory", turn: map[string]string{"dir": "> /tmp"}, restored: 3},
		{name: "changed since", turn: map[string]string{"a": "two\n", "dir/b": "c"}, since: map[string]string{"a": "three\n", "run": "mine"},
			left: map[string]string{"a": "three\n", "run": "mine"}, kept: "a", restored: 1},
		{name: "removed since", turn: map[string]string{"y": "y"}, since: map[string]string{"y": "-"}, kept: "y"},
		{name: "a link since", turn: map[string]string{"dir/b": "c"}, since: map[string]string{"dir": "> /tmp"},
			left: map[string]string{"dir": "> /tmp", "dir/b": "-", "dir/c d\n": "-"}, kept: "dir/b"},
		{name: "ignored by the turn", turn: map[string]string{".gitignore": "*\n", "hook.sh": "! x", "dir/.gitignore": "*", "dir/new": "x"}, restored: 4},
		{name: "no longer ignored", turn: map[string]string{".gitignore": "-", "x.log": "changed"}, left: map[string]string{"x.log": "changed"}, restored: 1},
		{name: "a name that git refuses", turn: map[string]string{"git~1": "x", "a": "two\n"}, left: map[string]string{"git~1": "x"}, restored: 1},
		{name: "ignored", turn: map[string]string{"x.log": "changed"}, left: map[string]string{"x.log": "changed"}},
	} {
		for _, repository := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				dir := t.TempDir()
				write(t, dir, start)
				if repository {
					ownRepository(t, dir)
				}
				k := newKeeper(t, dir)
				from := remember(t, k)
				write(t, dir, row.turn)
				to := remember(t, k)
				write(t, dir, row.since)
				r, err := k.Restore(t.Context(), from, to)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(r.Kept, " "); got != "" && got != filepath.Join(k.dirs[0].path, row.kept) || got == "" && row.kept != "" || len(r.Restored) != row.restored {
					t.Errorf("%+v", r)
				}
				want := map[string]string{}
				for _, m := range []map[string]string{start, row.left} {
					for name, text := range m {
						if want[name] = text; text == "-" {
							delete(want, name)
						}
					}
				}
				got := read(t, dir)
				for name, text := range want {
					if got[name] != text {
						t.Errorf("%q is %.40q, want %.40q", name, got[name], text)
					}
					delete(got, name)
				}
				if len(got) > 0 {
					t.Errorf("left over: %.100q", got)
				}
			})
		}
	}
}

// ownRepository makes dir a repository whose configuration would run a program in many places.
func ownRepository(t *testing.T, dir string) {
	t.Helper()
	script := "git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm start && " +
		"for k in filter.evil.clean filter.evil.smudge filter.evil.process core.fsmonitor diff.evil.textconv diff.evil.command diff.external core.hooksPath; do git config $k 'touch " + dir + "/ran;'; done"
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	other := dir + "-other" // is between dir and dir/sub when sorted
	write(t, dir, map[string]string{"sub/a": "one\n"})
	write(t, other, map[string]string{"b": "one\n"})
	k := newKeeper(t, dir, other, dir, filepath.Join(dir, "sub"))
	from := remember(t, k)
	write(t, dir, map[string]string{"sub/a": "two\n", "c": "new\n"})
	write(t, other, map[string]string{"b": "-"})
	got, err := k.Diff(t.Context(), from, remember(t, k), k.dirs[0].path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--- sub/a\n+++ sub/a\n@@ -1 +1 @@\n-one\n+two\n", "--- /dev/null\n+++ c\n", other + "/b\n+++ /dev/null\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := len(k.dirs); n != 2 {
		t.Errorf("%d directories", n)
	}
}

func TestBounds(t *testing.T) {
	defer func(files int, size int64) { MaxFiles, MaxBytes = files, size }(MaxFiles, MaxBytes)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "1", "b": "2", "c": "3"})
	MaxFiles = 2
	_, err := newKeeper(t, dir).Take(t.Context())
	if err == nil || !strings.Contains(err.Error(), "too large for a snapshot: 3 files with 0 MB in total; the limits are 2 files and 512 MB") {
		t.Error(err)
	}
	MaxFiles, MaxBytes = 10, 2
	if _, err = newKeeper(t, dir).Take(t.Context()); err == nil {
		t.Error("too large, and remembered")
	}
}

func TestErrors(t *testing.T) {
	if _, err := New(t.Context(), []string{"/no/such"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	dir := t.TempDir()
	k := newKeeper(t, dir)
	write(t, dir, map[string]string{"inner/a": "1"})
	ownRepository(t, filepath.Join(dir, "inner")) // which git only notes
	remember(t, k)
	write(t, k.dirs[0].gitDir, map[string]string{"index.lock": "x"})
	remember(t, k)
	t.Setenv("PATH", "/nowhere")
	if _, err := New(t.Context(), []string{dir}); err == nil || !strings.Contains(err.Error(), "git is not installed; it is needed for snapshots of the files") {
		t.Error(err)
	}
}

// TestInside has a temporary directory inside the directory that is remembered, named by a link.
func TestInside(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", link)
	write(t, dir, map[string]string{"a": "1"})
	k := newKeeper(t, dir)
	from := remember(t, k)
	write(t, dir, map[string]string{"a": "2"})
	to := remember(t, k)
	if r, err := k.Restore(t.Context(), from, to); err != nil || len(r.Restored) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if got := read(t, dir); len(got) != 1 || got["a"] != "1" {
		t.Error(got)
	}
}

// TestNested has repositories inside the directory whose configuration names a program. It must not run.
func TestNested(t *testing.T) {
	for name, script := range map[string]string{
		"a repository":       "git init -q 'n [1]' && cd 'n [1]' && git commit -qm x --allow-empty && git config core.fsmonitor \"touch $PWD/../../ran; false\" && echo 1 >x",
		"an included file":   "git init -q nested && cd nested && git commit -qm x --allow-empty && git config includeIf.gitdir:**.path more && printf \"[core]\\n\\tfsmonitor = \\\"touch $PWD/../../ran; false\\\"\\n\" >.git/more && git status >/dev/null && echo 1 >x",
		"hooks and filters":  "git init -q nested && cd nested && git commit -qm x --allow-empty && git config core.hooksPath $PWD && git config filter.evil.clean \"touch $PWD/../../ran; cat\" && echo '* filter=evil' | tee .gitattributes >../.gitattributes && printf '#!/bin/sh\\ntouch '$PWD'/../../ran\\n' | tee post-index-change post-checkout pre-commit >/dev/null && chmod +x p* && echo 1 >x",
		"without a commit":   "git init -q nested && cd nested && git config core.fsmonitor \"touch $PWD/../../ran; false\" && echo 1 >x",
		"a file .git":        "git init -q ../away && cd ../away && git commit -qm x --allow-empty && git config core.fsmonitor \"touch $PWD/../ran; false\" && mkdir ../dir/nested && cd ../dir/nested && echo gitdir: ../../away/.git >.git && echo 1 >x",
		"a bare one":         "git init -q --bare nested && git -C nested config core.fsmonitor \"touch $PWD/../ran; false\"",
		"with a .gitmodules": "git init -q nested && cd nested && git commit -qm x --allow-empty && git config core.fsmonitor \"touch $PWD/../../ran; false\" && printf '[submodule \"nested\"]\\n\\tpath = nested\\n\\turl = ./nested\\n\\tignore = none\\n' >../.gitmodules",
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "dir")
			write(t, dir, map[string]string{"a": "1"})
			k := newKeeper(t, dir)
			shell(t, dir, script)
			from := remember(t, k)
			write(t, dir, map[string]string{"a": "2"})
			remember(t, k)
			// One that got into the index, as if it was made while git added files.
			shell(t, dir, "cd "+dir+" && for d in */; do GIT_DIR="+k.dirs[0].gitDir+" GIT_WORK_TREE="+dir+" git update-index --add --cacheinfo 160000,$(printf %040d 1),\"${d%/}\" || true; done")
			_ = os.Remove(filepath.Join(top, "ran"))
			to := remember(t, k)
			if _, err := k.Diff(t.Context(), from, to, dir); err != nil {
				t.Error(err)
			}
			if r, err := k.Restore(t.Context(), from, to); err != nil || len(r.Restored) != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if got := read(t, dir); got["a"] != "1" {
				t.Errorf("the files are %q", got)
			}
			if _, err := os.Stat(filepath.Join(top, "ran")); err == nil {
				t.Error("the program of the repository has run")
			}
		})
	}
}

// shell runs a script in dir.
func shell(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("bash", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestRepositoryInside has turns that make and remove repositories inside the directory. They are named, and
// everything else is restored.
func TestRepositoryInside(t *testing.T) {
	const start = "echo 1 >a; echo 1 >b; mkdir c; echo 1 >c/x; git init -q old; echo 1 >old/x"
	for _, row := range []struct{ name, turn, check, repositories string }{
		{"made", "echo 2 >a; rm b; echo 1 >z; git init -q lib; echo 1 >lib/x; git -C lib add x; git -C lib commit -qm x", "test -e lib/x", "lib"},
		{"made without a commit", "echo 2 >a; rm b; git init -q lib", "test -e lib/.git", "lib"},
		{"in place of a file", "echo 2 >a; rm b; git init -q b; echo 2 >b/x", "rm -r b; echo 1 >b", "b"},
		{"with a commit in place of a file", "echo 2 >a; rm b; git init -q b; echo 2 >b/x; git -C b add x; git -C b commit -qm x", "rm -r b; echo 1 >b", "b"},
		{"in place of a directory", "echo 2 >a; rm -r b c; git init -q c; echo 2 >c/y", "test -e c/y", "c"},
		{"in place of a directory, with its file", "echo 2 >a; rm -r b c; git init -q c; echo 2 >c/x", "test -e c/.git", ""},
		{"in a directory", "echo 2 >a; rm b; git init -q c; echo 2 >c/x; echo 2 >c/new", "test -e c/.git -a ! -e c/new", ""},
		{"removed", "echo 2 >a; rm -rf b old", "test ! -e old; mkdir old; echo 1 >old/x", "old"},
		{"no longer one", "echo 2 >a; rm -rf b old/.git", "true", "old"},
		{"alone", "git init -q lib", "true", "lib"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, start)
			k := newKeeper(t, dir)
			from := remember(t, k)
			shell(t, dir, row.turn)
			to := remember(t, k)
			if slices.Equal(from, to) {
				t.Error("nothing has changed")
			}
			if row.repositories != "" {
				diff, err := k.Diff(t.Context(), from, to, k.dirs[0].path)
				if want := row.repositories + " is or was a separate repository"; err != nil || !strings.Contains(diff, want) {
					t.Errorf("%q is not in %s, %v", want, diff, err)
				}
			}
			r, err := k.Restore(t.Context(), from, to)
			if err != nil || len(r.Failed) > 0 || len(r.Kept) > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			var names []string
			for _, path := range r.Repositories {
				names = append(names, strings.TrimPrefix(path, k.dirs[0].path+"/"))
			}
			if got := strings.Join(names, " "); got != row.repositories {
				t.Errorf("the repositories are %q, want %q", got, row.repositories)
			}
			shell(t, dir, row.check)
			shell(t, dir, "test $(cat a b c/x old/x | tr -d '\\n') = 1111 -a ! -e z")
		})
	}
}

// TestRules compares what is remembered with what git itself would add.
func TestRules(t *testing.T) {
	dir := t.TempDir()
	odd := "o [d]*"
	write(t, dir, map[string]string{
		".gitignore":               "\ufeff*.o\r\n#x\n\\#y\nbuild/\n/top\n!keep.o\nd/e/f\nspace \n\\!bang\n",
		odd + "/.gitignore":        "# c\n*.a\n!x.o\n/only\nsub/deep\n   \n/\n!\n**/far\nall/**\nmid\n",
		odd + "/!s/.gitignore":     "!y.a\n*.o\n",
		odd + "/self/.gitignore":   "*\n",
		odd + "/build/.gitignore":  "!*\n",
		odd + "/linked/.gitignore": "> ../.gitignore",
	})
	for _, d := range []string{"", odd + "/", odd + "/!s/", odd + "/self/", odd + "/sub/", odd + "/all/", odd + "/linked/", "d/e/", "build/", odd + "/mid/"} {
		for _, name := range []string{"x.o", "keep.o", "y.a", "top", "only", "deep", "far", "f", "mid2", "space", "#x", "#y", "!bang", "plain"} {
			write(t, dir, map[string]string{d + name: "1"})
		}
	}
	list := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-ec", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	k := newKeeper(t, dir)
	remember(t, k)
	got := list("GIT_DIR=" + k.dirs[0].gitDir + " git ls-files")
	want := list("git init -q; git ls-files --others --exclude-standard")
	if got != want || strings.Count(want, "\n") < 50 {
		t.Errorf("remembered\n%s\nwant\n%s", got, want)
	}
}

// TestRepositoryRemoved: what is remembered does not depend on the repository of the directory, which is forged, and
// then removed.
func TestRepositoryRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "good\n"})
	ownRepository(t, dir)
	// The object of a has another content.
	id := fmt.Sprintf("%x", sha1.Sum([]byte("blob 5\x00good\n")))
	object := filepath.Join(dir, ".git", "objects", id[:2], id[2:])
	var evil bytes.Buffer
	z := zlib.NewWriter(&evil)
	_, err := z.Write([]byte("blob 5\x00evil\n"))
	if err := errors.Join(err, z.Close(), os.Remove(object), os.WriteFile(object, evil.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	k := newKeeper(t, dir)
	from := remember(t, k)
	write(t, dir, map[string]string{".git": "-", "a": "-"})
	to := remember(t, k)
	if r, err := k.Restore(t.Context(), from, to); err != nil || len(r.Restored) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := read(t, dir); len(got) != 1 || got["a"] != "good\n" {
		t.Errorf("the files are %q", got)
	}
}
