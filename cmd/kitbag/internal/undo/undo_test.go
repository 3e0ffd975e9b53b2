package undo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// write changes files of dir: a text, "-" to remove it, "> x" for a link to x, "! text" for a program.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
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

func newKeeper(t *testing.T, dirs ...string) *Keeper {
	t.Helper()
	k, err := New(t.Context(), dirs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func remember(t *testing.T, k *Keeper) Moment {
	t.Helper()
	m, err := k.Remember(t.Context())
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
	dir, other := t.TempDir(), t.TempDir()
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
	_, err := newKeeper(t, dir).Remember(t.Context())
	if err == nil || !strings.Contains(err.Error(), "3 files of 0 MB are too many to remember; at most 2 of 512 MB are") {
		t.Error(err)
	}
	MaxFiles, MaxBytes = 10, 2
	if _, err = newKeeper(t, dir).Remember(t.Context()); err == nil {
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
	write(t, k.dirs[0].git, map[string]string{"index.lock": "x"})
	remember(t, k)
	t.Setenv("PATH", "/nowhere")
	if _, err := New(t.Context(), []string{dir}); err == nil || !strings.Contains(err.Error(), "git, which remembers files, is not installed") {
		t.Error(err)
	}
}

// TestInside has a temporary directory inside the directory that is remembered.
func TestInside(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
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
