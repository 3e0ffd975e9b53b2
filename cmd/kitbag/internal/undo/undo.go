// Package undo makes snapshots of directories, shows the changes between them, and undoes changes.
//
// It uses git, with a separate repository for each directory in a temporary directory. It neither reads nor changes
// a repository in the directory, whose configuration may name programs to run, and whose objects may be removed or
// forged.
//
// A snapshot does not include files that .gitignore excluded at the first snapshot, repositories inside a
// directory, empty directories, owners, times, and modes other than the executable bit. A .gitignore that is
// written later hides nothing. Directories with more than MaxFiles files or MaxBytes bytes cannot be used.
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

// MaxFiles and MaxBytes limit the number and the total size of the files of a directory.
var (
	MaxFiles = 50_000
	MaxBytes = int64(512 << 20)
)

// timeLimit is the time limit for the snapshot of a directory.
const timeLimit = 20 * time.Second

// A Recorder makes snapshots of directories. It is not safe for concurrent use.
type Recorder struct {
	tmp  string
	dirs []*directory
}

// A Snapshot has, for each directory, the id of a git tree and the names of the repositories in it, separated by NULs.
type Snapshot []string

// directory returns the snapshot of the i-th directory.
func (s Snapshot) directory(i int) (tree string, repositories []string) {
	list := strings.Split(s[i], "\x00")
	return list[0], list[1:]
}

// A directory is one of the directories of a Recorder.
type directory struct {
	path  string // absolute, without links
	git   string // the path of its separate repository
	skip  string // pattern of a path to leave out; "" for none
	ready bool   // its size has been checked, and excludeFile has been written
}

// New returns a Recorder for existing directories, which may overlap. The caller must call Close.
func New(ctx context.Context, dirs []string) (r *Recorder, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("git is not installed; it is needed for snapshots of the files")
	}
	r = new(Recorder)
	if r.tmp, err = os.MkdirTemp("", "kitbag-undo-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	var real []string
	for _, dir := range dirs {
		name, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return r, err
		}
		real = append(real, name)
	}
	slices.Sort(real)
	for i, path := range slices.Compact(real) {
		if slices.ContainsFunc(r.dirs, func(d *directory) bool { return isBelow(path, d.path) }) {
			continue // the snapshots of that directory include this one
		}
		d := &directory{path: path, git: filepath.Join(r.tmp, fmt.Sprint(i))}
		if err := d.init(ctx, r.tmp); err != nil {
			return r, err
		}
		r.dirs = append(r.dirs, d)
	}
	return r, nil
}

func isBelow(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Close removes all snapshots.
func (r *Recorder) Close() error { return os.RemoveAll(r.tmp) }

// init creates the repository. skip is a path to leave out, if it is in the directory.
func (d *directory) init(ctx context.Context, skip string) error {
	if _, err := d.run(ctx, nil, "init", "--quiet", "--template=", "--object-format=sha1"); err != nil {
		return err
	}
	if isBelow(skip, d.path) {
		d.skip = pattern(filepath.ToSlash(strings.TrimPrefix(skip, d.path+"/")) + "/")
	}
	info := filepath.Join(d.git, "info")
	attributes := "* -text -ident -filter -working-tree-encoding -diff\n* !diff\n" // git converts no contents, and decides itself which are binary
	return errors.Join(os.MkdirAll(info, 0o700), os.WriteFile(filepath.Join(info, "attributes"), []byte(attributes), 0o600),
		os.WriteFile(d.excludeFile(), []byte(d.skip+"\n"), 0o600))
}

// excludeFile returns the path of the file with the patterns of files to leave out.
func (d *directory) excludeFile() string { return filepath.Join(d.git, "info", "exclude") }

// writeExcludes copies the patterns of all .gitignore files into excludeFile, so that a later one cannot hide a file.
func (d *directory) writeExcludes(ctx context.Context) error {
	// The list includes .gitignore files that exclude themselves, but none in excluded directories.
	out, err := d.run(ctx, nil, "ls-files", "-z", "--others", "--exclude-standard", "--exclude=!.gitignore")
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(strings.Split(string(out), "\x00"), func(name string) bool { return path.Base(name) != ".gitignore" })
	slices.SortStableFunc(names, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") }) // the last rule decides
	var all strings.Builder
	for _, name := range names {
		file := filepath.Join(d.path, name)
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() { // git follows no links there
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		dir := ""
		if parent := path.Dir(name); parent != "." {
			dir = pattern(parent)
		}
		for line := range strings.SplitSeq(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
			all.WriteString(topLevelRule(dir, strings.TrimSuffix(line, "\r")))
		}
	}
	return os.WriteFile(d.excludeFile(), []byte(all.String()+d.skip+"\n"), 0o600)
}

// topLevelRule converts a line of the .gitignore in dir to a line of one in the top directory.
func topLevelRule(dir, line string) string {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	negation := ""
	text, ok := strings.CutPrefix(line, "!")
	if ok {
		negation = "!"
	}
	switch {
	case strings.HasPrefix(line, "#"), strings.Trim(text, "/") == "":
		return ""
	case strings.Contains(strings.TrimSuffix(text, "/"), "/"):
		return negation + dir + "/" + strings.TrimPrefix(text, "/") + "\n"
	default:
		return negation + dir + "/**/" + text + "\n"
	}
}

// pattern returns the pattern of .gitignore that matches a path. A line break becomes ?, since no pattern can have one.
func pattern(path string) string {
	return "/" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "\n", "?", "\r", "?", " ", `\ `).Replace(path)
}

// Take makes a snapshot.
func (r *Recorder) Take(ctx context.Context) (Snapshot, error) {
	var s Snapshot
	for _, d := range r.dirs {
		tree, repositories, err := d.snapshot(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.path, err)
		}
		s = append(s, strings.Join(append([]string{tree}, repositories...), "\x00"))
	}
	return s, nil
}

func (d *directory) snapshot(ctx context.Context) (tree string, repositories []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("the snapshot of the files took more than %s", timeLimit))
	defer cancel()
	// A killed git may have left the lock; no other process uses the repository.
	if err := os.Remove(filepath.Join(d.git, "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	if err := d.removeRepositories(ctx); err != nil {
		return "", nil, err
	}
	_, err = d.run(ctx, nil, "add", "--update", "--ignore-errors")
	// Exit code 1 means that some files could not be added.
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		return "", nil, err
	}
	if err := d.removeRepositories(ctx); err != nil { // a repository may have replaced a file
		return "", nil, err
	}
	files, repositories, err := d.untracked(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := d.add(ctx, files); err != nil {
		return "", nil, err
	}
	if err := d.removeRepositories(ctx); err != nil { // a repository may have been created meanwhile
		return "", nil, err
	}
	out, err := d.run(ctx, nil, "write-tree")
	return strings.TrimSpace(string(out)), repositories, err
}

// add adds files to the index, except those that git cannot add, such as files that only another user can read.
func (d *directory) add(ctx context.Context, files []string) error {
	if len(files) == 0 {
		return nil
	}
	_, err := d.run(ctx, []byte(strings.Join(files, "\x00")), "update-index", "-z", "--add", "--replace", "--remove", "--stdin")
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		return err
	}
	half := len(files) / 2 // find the files that git cannot add, by halving
	if half == 0 {
		return nil
	}
	if err := d.add(ctx, files[:half]); err != nil {
		return err
	}
	return d.add(ctx, files[half:])
}

// removeRepositories removes repositories inside the directory from the index. Otherwise git would run itself in
// each of them, with their configuration.
func (d *directory) removeRepositories(ctx context.Context) error {
	out, err := d.run(ctx, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return err
	}
	var names []string
	for entry := range strings.SplitSeq(string(out), "\x00") { // MODE ID STAGE, a tab, NAME
		if _, name, ok := strings.Cut(entry, "\t"); ok && strings.HasPrefix(entry, "160000 ") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err = d.run(ctx, []byte(strings.Join(names, "\x00")), "update-index", "-z", "--force-remove", "--stdin")
	return err
}

// untracked returns the files that are not in the index, and the repositories inside the directory. The first call
// copies the patterns of .gitignore files and checks the limits.
func (d *directory) untracked(ctx context.Context) (files, repositories []string, err error) {
	if !d.ready {
		if err := d.writeExcludes(ctx); err != nil {
			return nil, nil, err
		}
	}
	out, err := d.run(ctx, nil, "ls-files", "-z", "--others", "--exclude-from="+d.excludeFile())
	if err != nil {
		return nil, nil, err
	}
	size := int64(0)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if repository, ok := strings.CutSuffix(name, "/"); ok {
			repositories = append(repositories, repository)
		} else if info, err := os.Lstat(filepath.Join(d.path, name)); err == nil && name != "" {
			files = append(files, name)
			size += info.Size()
		}
	}
	if !d.ready && (len(files) > MaxFiles || size > MaxBytes) {
		return nil, nil, fmt.Errorf("%d files with %d MB in total are too much for a snapshot; at most %d files with %d MB are possible", len(files), size>>20, MaxFiles, MaxBytes>>20)
	}
	d.ready = true
	return files, repositories, nil
}

// Diff returns the changes between two snapshots as unified diffs. Paths in base are relative to it.
func (r *Recorder) Diff(ctx context.Context, from, to Snapshot, base string) (string, error) {
	var all strings.Builder
	for i, d := range r.dirs {
		before, beforeRepos := from.directory(i)
		after, afterRepos := to.directory(i)
		prefix, err := filepath.Rel(base, d.path)
		if err != nil || prefix == ".." || strings.HasPrefix(prefix, "../") {
			prefix = d.path
		}
		prefix = filepath.ToSlash(filepath.Clean(prefix)) + "/"
		out, err := d.run(ctx, nil, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
			"--src-prefix="+strings.TrimPrefix(prefix, "./"), "--dst-prefix="+strings.TrimPrefix(prefix, "./"), before, after)
		if err != nil {
			return "", err
		}
		all.Write(out)
		for _, name := range inOneOnly(beforeRepos, afterRepos) {
			fmt.Fprintf(&all, "%s is or was a separate repository, whose files are not in snapshots\n", strings.TrimPrefix(prefix, "./")+name)
		}
	}
	return all.String(), nil
}

// A Report is the result of [Recorder.Restore]. The paths are absolute, and sorted in each directory.
type Report struct {
	Restored     []string
	Kept         []string // left unchanged, since they have changed after the second snapshot
	Failed       []string // could not be restored
	Err          error    // the reasons for some of Failed
	Repositories []string // inside a directory; left unchanged with all their files
}

// A plan has the changes that [Recorder.Restore] will make in a directory.
type plan struct {
	tree    string
	remove  []string // files that were created
	restore []string // files that were changed or removed
}

// Restore undoes the changes from one snapshot to a later one, except in files that have changed since. If it returns
// an error, it has changed nothing.
func (r *Recorder) Restore(ctx context.Context, from, to Snapshot) (report Report, err error) {
	now, err := r.Take(ctx)
	if err != nil {
		return report, err
	}
	plans := make([]plan, len(r.dirs))
	for i, d := range r.dirs {
		if plans[i], err = d.plan(ctx, i, from, to, now, &report); err != nil {
			return Report{}, err
		}
	}
	for i, d := range r.dirs {
		report.Err = errors.Join(report.Err, d.restore(ctx, plans[i]))
	}
	after, err := r.Take(ctx)
	for i, d := range r.dirs {
		var notRestored []change
		if err == nil {
			tree, repositories := after.directory(i)
			notRestored, err = d.diffTrees(ctx, plans[i].tree, tree)
			notRestored = slices.DeleteFunc(notRestored, func(c change) bool { // in a repository: there a file is never in a tree, even if it was restored
				_, err := os.Lstat(filepath.Join(d.path, c.name))
				return err == nil && slices.ContainsFunc(repositories, func(repository string) bool { return isBelow(c.name, repository) })
			})
		}
		for _, name := range slices.Sorted(slices.Values(slices.Concat(plans[i].remove, plans[i].restore))) {
			path := filepath.Join(d.path, name)
			if err != nil || slices.ContainsFunc(notRestored, func(c change) bool { return c.name == name }) {
				report.Failed = append(report.Failed, path)
			} else {
				report.Restored = append(report.Restored, path)
			}
		}
	}
	report.Err = errors.Join(report.Err, err)
	return report, nil
}

// plan returns the plan for a directory, and adds the files that will be left unchanged to the report.
func (d *directory) plan(ctx context.Context, i int, from, to, now Snapshot, report *Report) (plan, error) {
	before, beforeRepos := from.directory(i)
	after, afterRepos := to.directory(i)
	current, currentRepos := now.directory(i)
	p := plan{tree: before}
	changed, err := d.diffTrees(ctx, before, after)
	if err != nil {
		return p, err
	}
	since, err := d.diffTrees(ctx, after, current)
	if err != nil {
		return p, err
	}
	repositories := slices.Concat(beforeRepos, currentRepos)
	untouched := inOneOnly(beforeRepos, afterRepos)
	for _, c := range changed {
		path := filepath.Join(d.path, c.name)
		_, err := os.Lstat(path)
		overlap := slices.IndexFunc(repositories, func(name string) bool { return touches([]change{{name: name}}, c.name) })
		switch {
		case overlap >= 0 && err == nil: // it is, contains or is in a repository, whose files are in no snapshot
			untouched = append(untouched, repositories[overlap])
		case touches(since, c.name):
			report.Kept = append(report.Kept, path)
		case c.created:
			p.remove = append(p.remove, c.name)
		default:
			p.restore = append(p.restore, c.name)
		}
	}
	slices.Sort(untouched)
	for _, name := range slices.Compact(untouched) {
		report.Repositories = append(report.Repositories, filepath.Join(d.path, name))
	}
	return p, nil
}

// inOneOnly returns the names that are in only one of the lists.
func inOneOnly(a, b []string) []string {
	return slices.DeleteFunc(slices.Concat(a, b), func(name string) bool { return slices.Contains(a, name) && slices.Contains(b, name) })
}

// restore carries out the plan. It also removes directories that become empty. After an error about one file it
// continues with the next.
func (d *directory) restore(ctx context.Context, p plan) error {
	root, err := os.OpenRoot(d.path) // a link that was created meanwhile cannot lead out of the directory
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, name := range p.remove {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		for dir := path.Dir(name); dir != "." && root.Remove(dir) == nil; {
			dir = path.Dir(dir)
		}
	}
	if len(p.restore) > 0 {
		_, err = d.run(ctx, []byte(strings.Join(p.restore, "\x00")), "restore", "--source="+p.tree, "--worktree",
			"--no-overlay", "--pathspec-from-file=-", "--pathspec-file-nul")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// touches reports whether one of the changes is to name, or to a path below or above it.
func touches(changes []change, name string) bool {
	return slices.ContainsFunc(changes, func(c change) bool {
		return c.name == name || isBelow(c.name, name) || isBelow(name, c.name)
	})
}

// A change is a file that differs between two trees.
type change struct {
	name    string // relative
	created bool   // the file is only in the later tree
}

// diffTrees returns the files that differ between two trees.
func (d *directory) diffTrees(ctx context.Context, from, to string) ([]change, error) {
	out, err := d.run(ctx, nil, "diff-tree", "-r", "-z", "--name-status", "--no-renames", from, to)
	if err != nil {
		return nil, err
	}
	var list []change
	for pair := range slices.Chunk(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), 2) {
		if len(pair) == 2 {
			list = append(list, change{name: pair[1], created: pair[0] == "A"})
		}
	}
	return list, nil
}

// run runs git on the separate repository, without the configurations of the user and of the directory.
func (d *directory) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	settings := []string{"-c", "core.looseCompression=0", "-c", "core.bare=false", "-c", "core.autocrlf=false",
		"-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null", "-c", "advice.addEmbeddedRepo=false", "-c", "gc.auto=0",
		"-c", "diff.ignoreSubmodules=all", "-c", "submodule.recurse=false"}
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
