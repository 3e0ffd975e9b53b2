// Package undo makes snapshots of directories, shows the changes between them, and undoes changes.
//
// The snapshots of each directory are in a git repository of their own, in a temporary directory. The package neither
// reads nor changes the user's repositories: their configuration may name programs to run, and their objects may be
// removed or forged.
//
// A snapshot does not include files that a .gitignore excluded at the first snapshot, repositories inside a
// directory, empty directories, owners, times, and modes other than the executable bit. Later changes of a .gitignore
// have no effect. A directory with more than MaxFiles files or MaxBytes bytes is an error at the first snapshot.
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

// MaxFiles and MaxBytes limit the number and the total size of the files of a directory. Only tests change them.
var (
	MaxFiles = 50_000
	MaxBytes = int64(512 << 20)
)

// maxSnapshotTime is the time limit for the snapshot of a directory.
const maxSnapshotTime = 20 * time.Second

// A Recorder makes snapshots of directories. It is not safe for concurrent use.
type Recorder struct {
	tmp  string // the temporary directory with the repositories
	dirs []*directory
}

// A Snapshot has a dirSnapshot for each directory, as a string: its tree and repositories, separated by NULs. Snapshots
// of the same files are equal.
type Snapshot []string

// directory returns the snapshot of the i-th directory.
func (s Snapshot) directory(i int) dirSnapshot {
	list := strings.Split(s[i], "\x00")
	return dirSnapshot{list[0], list[1:]}
}

// A dirSnapshot is a snapshot of one directory.
type dirSnapshot struct {
	tree         string   // the id of a git tree
	repositories []string // the paths of the repositories inside the directory, whose files are not in the tree
}

// A directory is one of the directories of a Recorder.
type directory struct {
	path        string // absolute, without links
	gitDir      string // the path of the repository with the snapshots
	skip        string // the pattern of the temporary directory, if it is below path
	hasSnapshot bool   // the first snapshot has written excludeFile and checked the limits
}

// New returns a Recorder for existing directories, which may overlap. The caller must call Close.
func New(ctx context.Context, dirs []string) (r *Recorder, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("git is not installed; it is needed for snapshots of the files")
	}
	r = new(Recorder)
	tmp, err := filepath.EvalSymlinks(os.TempDir()) // comparable to the paths of directories
	if err == nil {
		r.tmp, err = os.MkdirTemp(tmp, "kitbag-undo-")
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
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
		d := &directory{path: path, gitDir: filepath.Join(r.tmp, fmt.Sprint(i))}
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

// init creates the repository. Snapshots leave out tmp, the temporary directory.
func (d *directory) init(ctx context.Context, tmp string) error {
	if _, err := d.run(ctx, nil, "init", "--quiet", "--template=", "--object-format=sha1"); err != nil {
		return err
	}
	if isBelow(tmp, d.path) {
		d.skip = pattern(filepath.ToSlash(strings.TrimPrefix(tmp, d.path+"/")) + "/")
	}
	info := filepath.Join(d.gitDir, "info")
	// These attributes override all .gitattributes: git must not convert contents, and must decide itself which are binary.
	attributes := "* -text -ident -filter -working-tree-encoding -diff\n* !diff\n"
	return errors.Join(os.MkdirAll(info, 0o700), os.WriteFile(filepath.Join(info, "attributes"), []byte(attributes), 0o600),
		os.WriteFile(d.excludeFile(), []byte(d.skip+"\n"), 0o600))
}

// excludeFile returns the path of the file with the patterns of files to leave out.
func (d *directory) excludeFile() string { return filepath.Join(d.gitDir, "info", "exclude") }

// writeExcludes copies the patterns of all .gitignore files into excludeFile, which snapshots use instead of these files:
// a .gitignore that is written later must not hide a file.
func (d *directory) writeExcludes(ctx context.Context) error {
	// The list includes .gitignore files that exclude themselves, but none in excluded directories.
	out, err := d.run(ctx, nil, "ls-files", "-z", "--others", "--exclude-standard", "--exclude=!.gitignore")
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(strings.Split(string(out), "\x00"), func(name string) bool { return path.Base(name) != ".gitignore" })
	// The deepest .gitignore comes last, since the last matching pattern decides.
	slices.SortStableFunc(names, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	var all strings.Builder
	for _, name := range names {
		file := filepath.Join(d.path, name)
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() { // git ignores a link
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil { // git also ignores a file that it cannot read
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

// topLevelRule converts a line of the .gitignore in dir, a pattern, to a line for the .gitignore of the top directory.
func topLevelRule(dir, line string) string {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	rule := strings.TrimPrefix(line, "!")
	negation := line[:len(line)-len(rule)]
	switch {
	case strings.HasPrefix(line, "#"), strings.Trim(rule, "/") == "": // a comment, or no rule
		return ""
	case strings.Contains(strings.TrimSuffix(rule, "/"), "/"): // a path from dir
		return negation + dir + "/" + strings.TrimPrefix(rule, "/") + "\n"
	default: // a name at any depth below dir
		return negation + dir + "/**/" + rule + "\n"
	}
}

// pattern returns the .gitignore pattern that matches a path. A line break becomes ?, which matches any character, since
// no pattern can contain a line break.
func pattern(path string) string {
	return "/" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "\n", "?", "\r", "?", " ", `\ `).Replace(path)
}

// Take makes a snapshot.
func (r *Recorder) Take(ctx context.Context) (Snapshot, error) {
	var s Snapshot
	for _, d := range r.dirs {
		taken, err := d.snapshot(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.path, err)
		}
		s = append(s, strings.Join(append([]string{taken.tree}, taken.repositories...), "\x00"))
	}
	return s, nil
}

// snapshot updates the index, first for the files in it and then for new files, and writes the index as a tree.
func (d *directory) snapshot(ctx context.Context) (s dirSnapshot, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxSnapshotTime, fmt.Errorf("the snapshot of the files took more than %s", maxSnapshotTime))
	defer cancel()
	// A killed git may have left the lock; no other process uses the repository.
	if err := os.Remove(filepath.Join(d.gitDir, "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if err := d.removeRepositories(ctx); err != nil { // an earlier snapshot may have failed before it removed them
		return s, err
	}
	_, err = d.run(ctx, nil, "add", "--update", "--ignore-errors")
	// Exit code 1 means that some files could not be added.
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		return s, err
	}
	if err := d.removeRepositories(ctx); err != nil { // a repository may have replaced a file
		return s, err
	}
	files, repositories, err := d.untracked(ctx)
	if err != nil {
		return s, err
	}
	if err := d.add(ctx, files); err != nil {
		return s, err
	}
	if err := d.removeRepositories(ctx); err != nil { // a repository may have been created meanwhile
		return s, err
	}
	out, err := d.run(ctx, nil, "write-tree")
	return dirSnapshot{strings.TrimSpace(string(out)), repositories}, err
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

// removeRepositories removes repositories inside the directory from the index. Otherwise git would start another git in
// each repository, with that repository's configuration.
func (d *directory) removeRepositories(ctx context.Context) error {
	out, err := d.run(ctx, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return err
	}
	var names []string
	for entry := range strings.SplitSeq(string(out), "\x00") { // MODE ID STAGE, a tab, NAME
		if _, name, ok := strings.Cut(entry, "\t"); ok && strings.HasPrefix(entry, "160000 ") { // the mode of a repository
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err = d.run(ctx, []byte(strings.Join(names, "\x00")), "update-index", "-z", "--force-remove", "--stdin")
	return err
}

// untracked returns the files that are not in the index, and the repositories inside the directory. For the first
// snapshot it writes excludeFile and checks the limits.
func (d *directory) untracked(ctx context.Context) (files, repositories []string, err error) {
	if !d.hasSnapshot {
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
		if repository, ok := strings.CutSuffix(name, "/"); ok { // git lists a repository, but not its files
			repositories = append(repositories, repository)
		} else if info, err := os.Lstat(filepath.Join(d.path, name)); err == nil && name != "" {
			files = append(files, name)
			size += info.Size()
		}
	}
	if !d.hasSnapshot && (len(files) > MaxFiles || size > MaxBytes) {
		return nil, nil, fmt.Errorf("too large for a snapshot: %d files with %d MB in total; the limits are %d files and %d MB", len(files), size>>20, MaxFiles, MaxBytes>>20)
	}
	d.hasSnapshot = true
	return files, repositories, nil
}

// Diff returns the changes between two snapshots as unified diffs. The paths of files below base are relative to base.
func (r *Recorder) Diff(ctx context.Context, from, to Snapshot, base string) (string, error) {
	var all strings.Builder
	for i, d := range r.dirs {
		before, after := from.directory(i), to.directory(i)
		prefix, err := filepath.Rel(base, d.path)
		if err != nil || prefix == ".." || strings.HasPrefix(prefix, "../") {
			prefix = d.path
		}
		prefix = strings.TrimPrefix(filepath.ToSlash(filepath.Clean(prefix))+"/", "./")
		out, err := d.run(ctx, nil, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
			"--src-prefix="+prefix, "--dst-prefix="+prefix, before.tree, after.tree)
		if err != nil {
			return "", err
		}
		all.Write(out)
		for _, name := range inOneOnly(before.repositories, after.repositories) {
			fmt.Fprintf(&all, "%s is or was a separate repository, whose files are not in snapshots\n", prefix+name)
		}
	}
	return all.String(), nil
}

// A Report is the result of [Recorder.Restore]. All paths are absolute, and sorted within each directory.
type Report struct {
	Restored     []string // files
	Kept         []string // files that were left as they are, since they have changed after the second snapshot
	Failed       []string // files that could not be restored
	Err          error    // why files could not be restored, as far as known
	Repositories []string // repositories inside a directory, which were left as they are
}

// A plan has the changes that [Recorder.Restore] will make in a directory.
type plan struct {
	tree      string   // the tree to take files from
	remove    []string // files that are not in the tree
	overwrite []string // files that are in the tree
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
		if plans[i], err = d.plan(ctx, from.directory(i), to.directory(i), now.directory(i), &report); err != nil {
			return Report{}, err
		}
	}
	for i, d := range r.dirs {
		report.Err = errors.Join(report.Err, d.execute(ctx, plans[i]))
	}
	after, err := r.Take(ctx)
	for i, d := range r.dirs { // after an error all files count as failed, since their state is unknown
		var notRestored []change
		if err == nil {
			notRestored, err = d.notRestored(ctx, plans[i].tree, after.directory(i))
		}
		for _, name := range slices.Sorted(slices.Values(slices.Concat(plans[i].remove, plans[i].overwrite))) {
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

// plan returns the plan that undoes the changes from before to after. It reports what the plan leaves as it is.
func (d *directory) plan(ctx context.Context, before, after, now dirSnapshot, report *Report) (plan, error) {
	p := plan{tree: before.tree}
	changes, err := d.diffTrees(ctx, before.tree, after.tree)
	if err != nil {
		return p, err
	}
	laterChanges, err := d.diffTrees(ctx, after.tree, now.tree)
	if err != nil {
		return p, err
	}
	repositories := slices.Concat(before.repositories, now.repositories)
	skipped := inOneOnly(before.repositories, after.repositories)
	for _, c := range changes {
		path := filepath.Join(d.path, c.name)
		_, err := os.Lstat(path)
		repository := slices.IndexFunc(repositories, func(name string) bool { return overlap(name, c.name) })
		switch {
		case repository >= 0 && err == nil: // restoring the path could change files that are in no snapshot
			skipped = append(skipped, repositories[repository])
		case slices.ContainsFunc(laterChanges, func(later change) bool { return overlap(later.name, c.name) }):
			report.Kept = append(report.Kept, path)
		case c.created:
			p.remove = append(p.remove, c.name)
		default:
			p.overwrite = append(p.overwrite, c.name)
		}
	}
	slices.Sort(skipped)
	for _, name := range slices.Compact(skipped) {
		report.Repositories = append(report.Repositories, filepath.Join(d.path, name))
	}
	return p, nil
}

// inOneOnly returns the names that are in only one of the lists.
func inOneOnly(a, b []string) []string {
	return slices.DeleteFunc(slices.Concat(a, b), func(name string) bool { return slices.Contains(a, name) && slices.Contains(b, name) })
}

// execute makes the changes of the plan, and removes directories that become empty. An error about a file does not end it.
func (d *directory) execute(ctx context.Context, p plan) error {
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
	if len(p.overwrite) > 0 {
		_, err = d.run(ctx, []byte(strings.Join(p.overwrite, "\x00")), "restore", "--source="+p.tree, "--worktree",
			"--no-overlay", "--pathspec-from-file=-", "--pathspec-file-nul")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// notRestored returns the files that differ between the tree and a snapshot made after the restoration. Existing files in
// a repository, which no snapshot has, count as restored.
func (d *directory) notRestored(ctx context.Context, tree string, s dirSnapshot) ([]change, error) {
	changes, err := d.diffTrees(ctx, tree, s.tree)
	return slices.DeleteFunc(changes, func(c change) bool {
		_, err := os.Lstat(filepath.Join(d.path, c.name))
		return err == nil && slices.ContainsFunc(s.repositories, func(repository string) bool { return isBelow(c.name, repository) })
	}), err
}

// overlap reports whether two paths are equal, or one is below the other.
func overlap(a, b string) bool { return a == b || isBelow(a, b) || isBelow(b, a) }

// A change is a file that differs between two trees.
type change struct {
	name    string // relative to the directory
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

// run runs git on the repository with the snapshots, without the configuration of the user or of another repository.
func (d *directory) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	settings := []string{"-c", "core.looseCompression=0", "-c", "core.bare=false", "-c", "core.autocrlf=false",
		"-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null", "-c", "advice.addEmbeddedRepo=false", "-c", "gc.auto=0",
		"-c", "diff.ignoreSubmodules=all", "-c", "submodule.recurse=false"}
	cmd := exec.CommandContext(ctx, "git", append(settings, args...)...)
	cmd.Dir, cmd.Stdin = d.path, bytes.NewReader(input)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.gitDir, "GIT_DIR=" + d.gitDir, "GIT_WORK_TREE=" + d.path, "LC_ALL=C",
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
	reason, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	return nil, fmt.Errorf("git %s: %w: %s", args[0], err, reason)
}
