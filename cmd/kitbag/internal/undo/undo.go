// Package undo remembers the files of directories, shows how they have changed, and takes changes back.
//
// It uses git, with a repository of its own for each directory, in a temporary directory. It neither reads nor
// changes a repository of the directory's own, whose configuration may name programs to run; it only borrows the
// objects there, so that they are not copied.
//
// It does not remember files that .gitignore excludes, repositories inside a directory, empty directories, owners,
// times, and modes other than the executable bit. What is above its bounds is not remembered at all.
package undo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MaxFiles and MaxBytes are how many files a directory may have, and how large they may be together.
var (
	MaxFiles = 50_000
	MaxBytes = int64(512 << 20)
)

// within is how long it may take to remember a directory.
const within = 20 * time.Second

// A Keeper remembers directories. It is not safe for concurrent use.
type Keeper struct {
	tmp  string
	dirs []*directory
}

// A Moment is what the files of all directories were at a time: the id of a git tree for each.
type Moment []string

// A directory is one that is remembered.
type directory struct {
	path string // absolute, without links
	git  string // the repository of ours
	used bool   // it has been checked against the bounds
}

// New returns a keeper for directories that exist, of which none needs to be outside of another. Close it.
func New(ctx context.Context, dirs []string) (k *Keeper, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("git, which remembers files, is not installed")
	}
	k = new(Keeper)
	if k.tmp, err = os.MkdirTemp("", "kitbag-undo-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	var real []string
	for _, dir := range dirs {
		name, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return k, err
		}
		real = append(real, name)
	}
	slices.Sort(real)
	for i, path := range slices.Compact(real) {
		if n := len(k.dirs); n > 0 && isBelow(path, k.dirs[n-1].path) {
			continue
		}
		d := &directory{path: path, git: filepath.Join(k.tmp, fmt.Sprint(i))}
		if err := d.init(ctx, k.tmp); err != nil {
			return k, err
		}
		k.dirs = append(k.dirs, d)
	}
	return k, nil
}

func isBelow(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Close forgets everything.
func (k *Keeper) Close() error { return os.RemoveAll(k.tmp) }

// init makes the repository. skip is a path that is not remembered, should it be in the directory.
func (d *directory) init(ctx context.Context, skip string) error {
	if _, err := d.run(ctx, nil, "init", "--quiet", "--template=", "--object-format=sha1"); err != nil {
		return err
	}
	exclude := ""
	if isBelow(skip, d.path) {
		exclude = "/" + filepath.ToSlash(strings.TrimPrefix(skip, d.path+"/")) + "/\n"
	}
	files := map[string]string{
		"info/exclude":    exclude,
		"info/attributes": "* -text -ident -filter -working-tree-encoding -diff\n* !diff\n", // bytes as they are
	}
	objects := filepath.Join(d.path, ".git", "objects")
	if info, err := os.Lstat(objects); err == nil && info.IsDir() && !strings.Contains(objects, "\n") && !strings.HasPrefix(objects, `"`) {
		files["objects/info/alternates"] = objects + "\n"
	}
	for name, text := range files {
		name = filepath.Join(d.git, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// Remember returns what the files are now.
func (k *Keeper) Remember(ctx context.Context) (Moment, error) {
	var m Moment
	for _, d := range k.dirs {
		tree, err := d.remember(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.path, err)
		}
		m = append(m, tree)
	}
	return m, nil
}

func (d *directory) remember(ctx context.Context) (tree string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("remembering the files took more than %s", within))
	defer cancel()
	if err := d.checkBounds(ctx); err != nil {
		return "", err
	}
	// A run that was cut off may have left it; no other process uses the repository.
	if err := os.Remove(filepath.Join(d.git, "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// An error about some files, such as those that only another user may read, is no reason to forget the others.
	_, err = d.run(ctx, nil, "add", "--all", "--ignore-errors", ".")
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		return "", err
	}
	out, err := d.run(ctx, nil, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// checkBounds looks at what would be added, the first time.
func (d *directory) checkBounds(ctx context.Context) error {
	if d.used {
		return nil
	}
	out, err := d.run(ctx, nil, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	files, size := 0, int64(0)
	for name := range strings.SplitSeq(string(out), "\x00") {
		info, err := os.Lstat(filepath.Join(d.path, name))
		if name == "" || err != nil {
			continue
		}
		files++
		size += info.Size()
	}
	if files > MaxFiles || size > MaxBytes {
		return fmt.Errorf("%d files of %d MB are too many to remember; at most %d of %d MB are", files, size>>20, MaxFiles, MaxBytes>>20)
	}
	d.used = true
	return nil
}

// Diff returns the changes between two moments as unified diffs, with paths that are relative to base where they
// are in it.
func (k *Keeper) Diff(ctx context.Context, from, to Moment, base string) (string, error) {
	var all strings.Builder
	for i, d := range k.dirs {
		prefix, err := filepath.Rel(base, d.path)
		if err != nil || prefix == ".." || strings.HasPrefix(prefix, "../") {
			prefix = d.path
		}
		prefix = filepath.ToSlash(filepath.Clean(prefix)) + "/"
		out, err := d.run(ctx, nil, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
			"--src-prefix="+strings.TrimPrefix(prefix, "./"), "--dst-prefix="+strings.TrimPrefix(prefix, "./"), from[i], to[i])
		if err != nil {
			return "", err
		}
		all.Write(out)
	}
	return all.String(), nil
}

// A Report says what [Keeper.Restore] has done. The paths are absolute and sorted.
type Report struct {
	Restored []string
	Kept     []string // changed by somebody after the second moment, and left as they are
}

// Restore takes back what has changed from one moment to a later one, except in files that have changed since.
func (k *Keeper) Restore(ctx context.Context, from, to Moment) (r Report, err error) {
	now, err := k.Remember(ctx)
	if err != nil {
		return r, err
	}
	for i, d := range k.dirs {
		changed, err := d.changed(ctx, from[i], to[i])
		if err != nil {
			return r, err
		}
		since, err := d.changed(ctx, to[i], now[i])
		if err != nil {
			return r, err
		}
		var made, others []string
		for _, c := range changed {
			path := filepath.Join(d.path, c.name)
			switch {
			case touches(since, c.name):
				r.Kept = append(r.Kept, path)
				continue
			case c.made:
				made = append(made, c.name)
			default:
				others = append(others, c.name)
			}
			r.Restored = append(r.Restored, path)
		}
		if err := d.restore(ctx, from[i], made, others); err != nil {
			return r, err
		}
	}
	return r, nil
}

// restore removes the files that were made, with the directories that are empty then, and gives others the content
// that they have in a tree.
func (d *directory) restore(ctx context.Context, tree string, made, others []string) error {
	root, err := os.OpenRoot(d.path) // a link that was put there meanwhile leads nowhere else
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range made {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for dir := path.Dir(name); dir != "." && root.Remove(dir) == nil; {
			dir = path.Dir(dir)
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err = d.run(ctx, []byte(strings.Join(others, "\x00")), "restore", "--source="+tree, "--worktree",
		"--no-overlay", "--pathspec-from-file=-", "--pathspec-file-nul")
	return err
}

// touches reports whether one of the changes is to name, to what is in it, or to what it is in.
func touches(changes []change, name string) bool {
	return slices.ContainsFunc(changes, func(c change) bool {
		return c.name == name || isBelow(c.name, name) || isBelow(name, c.name)
	})
}

// A change is a file that differs between two trees.
type change struct {
	name string // relative
	made bool   // it is only in the later one
}

func (d *directory) changed(ctx context.Context, from, to string) ([]change, error) {
	out, err := d.run(ctx, nil, "diff-tree", "-r", "-z", "--name-status", "--no-renames", from, to)
	if err != nil {
		return nil, err
	}
	var list []change
	for pair := range slices.Chunk(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), 2) {
		if len(pair) == 2 {
			list = append(list, change{name: pair[1], made: pair[0] == "A"})
		}
	}
	return list, nil
}

// run runs git in the repository of ours, without any configuration of the user's or the directory's.
func (d *directory) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	settings := []string{"-c", "core.looseCompression=0", "-c", "core.bare=false", "-c", "core.autocrlf=false",
		"-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null", "-c", "advice.addEmbeddedRepo=false", "-c", "gc.auto=0"}
	cmd := exec.CommandContext(ctx, "git", append(settings, args...)...)
	cmd.Dir, cmd.Stdin = d.path, bytes.NewReader(input)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.git, "GIT_DIR=" + d.git, "GIT_WORK_TREE=" + d.path, "LC_ALL=C",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_LITERAL_PATHSPECS=1", "GIT_TERMINAL_PROMPT=0"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	return nil, fmt.Errorf("git %s: %w: %s", args[0], err, first)
}
