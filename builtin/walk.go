package builtin

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/builtin/internal/gitignore"
	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

const (
	maxWalkers    = 8       // directories that are read in parallel; more would only wait for the kernel
	filesPerTask  = 64      // so that workers share the files of a large directory
	maxIgnoreFile = 1 << 20 // bytes; the rest of an ignore file is not read
)

// A walk visits the regular files below a directory, several at a time.
// Symbolic links are not followed, and unreadable entries are skipped.
type walk struct {
	backend    Backend
	real       string   // the path of the root with its links resolved
	except     []string // patterns of real paths to skip
	obeyIgnore bool     // obey .gitignore, .ignore, .rgignore and .git/info/exclude

	// enter decides whether to search a directory, wants whether a file may be visited, and forced whether a file
	// is visited even if the ignore rules exclude it. Paths are absolute.
	enter  func(path, name string) bool
	wants  func(path string) bool
	forced func(path string) bool

	// file is called for each file. Calls with the same worker do not overlap.
	file func(worker int, f walkFile)

	rootLen int                 // the length of the root's path, with which all walked paths begin
	leftOut atomic.Int64        // skipped paths that are secret or covered by except
	unread  atomic.Int64        // directories that could not be read
	panics  atomic.Pointer[any] // the first panic of a worker

	mu      sync.Mutex
	changed sync.Cond
	tasks   []walkTask // last in, first out, so that few directories are open
	active  int        // workers that run a task, and so may add tasks
}

// A walkFile is a regular file found by a walk.
type walkFile struct {
	path  string
	entry fs.DirEntry
	dir   *walkDir
}

// A walkDir is an open directory. It is closed when users drops to 0.
type walkDir struct {
	path    string
	file    fs.File
	backend Backend
	users   atomic.Int32
	git     *gitignore.Dir // the rules of .gitignore and .git/info/exclude
	ripgrep *gitignore.Dir // the rules of .ignore and .rgignore, which override git
}

// A walkTask is a directory to enter, or files to visit.
type walkTask struct {
	parent *walkDir
	name   string
	files  []fs.DirEntry
}

func workers() int { return min(runtime.GOMAXPROCS(0), maxWalkers) }

// run walks below the open directory top, which it closes.
func (w *walk) run(ctx context.Context, root string, top fs.File) {
	w.changed.L = &w.mu
	d := &walkDir{path: strings.TrimSuffix(root, "/"), file: top, backend: w.backend}
	d.users.Store(1)
	w.rootLen, w.real = len(d.path), strings.TrimSuffix(w.real, "/")
	if w.obeyIgnore {
		d.git = w.rulesAbove(ctx, root)
	}
	w.scan(ctx, d)
	d.release()
	var wg sync.WaitGroup
	for i := range workers() {
		wg.Go(func() { w.work(ctx, i) })
	}
	wg.Wait()
	if p := w.panics.Load(); p != nil {
		panic(*p) // in the caller's goroutine, which can recover it
	}
}

func (w *walk) work(ctx context.Context, worker int) {
	for {
		w.mu.Lock()
		for len(w.tasks) == 0 && w.active > 0 {
			w.changed.Wait()
		}
		if len(w.tasks) == 0 {
			w.mu.Unlock()
			return
		}
		t := w.tasks[len(w.tasks)-1]
		w.tasks = w.tasks[:len(w.tasks)-1]
		w.active++
		w.mu.Unlock()

		w.runTask(ctx, worker, t)

		w.mu.Lock()
		if w.active--; w.active == 0 {
			w.changed.Broadcast()
		}
		w.mu.Unlock()
	}
}

func (w *walk) runTask(ctx context.Context, worker int, t walkTask) {
	defer t.parent.release()
	defer func() {
		if p := recover(); p != nil {
			w.panics.CompareAndSwap(nil, &p)
		}
	}()
	if ctx.Err() != nil || w.panics.Load() != nil {
		return // only release the directory
	}
	if t.files != nil {
		for _, e := range t.files {
			if ctx.Err() != nil {
				return
			}
			w.file(worker, walkFile{path: t.parent.path + "/" + e.Name(), entry: e, dir: t.parent})
		}
		return
	}
	f, err := t.parent.sub(ctx, t.name)
	if err != nil {
		w.unread.Add(1)
		return
	}
	d := &walkDir{path: t.parent.path + "/" + t.name, file: f, backend: w.backend, git: t.parent.git, ripgrep: t.parent.ripgrep}
	d.users.Store(1)
	w.scan(ctx, d)
	d.release()
}

// scan lists d and adds tasks for its entries.
func (w *walk) scan(ctx context.Context, d *walkDir) {
	dir, ok := d.file.(fs.ReadDirFile)
	if !ok {
		w.unread.Add(1)
		return
	}
	entries, err := dir.ReadDir(-1)
	if err != nil { // entries has what was read before the error
		w.unread.Add(1)
	}
	if w.obeyIgnore {
		d.readRules(ctx, entries)
	}
	var tasks []walkTask
	var files []fs.DirEntry
	for _, e := range entries {
		name := e.Name()
		full := d.path + "/" + name
		switch {
		case e.IsDir():
			if w.enter(full, name) && !d.ignored(full, true) && !w.leavesOut(full, true) {
				tasks = append(tasks, walkTask{parent: d, name: name})
			}
		case e.Type().IsRegular():
			if w.wants(full) && (w.forced(full) || !d.ignored(full, false)) && !w.leavesOut(full, false) {
				files = append(files, e)
			}
		}
	}
	// Files come last, so that they are visited first and their directory is closed soon.
	for len(files) > 0 {
		n := min(filesPerTask, len(files))
		tasks = append(tasks, walkTask{parent: d, files: files[:n]})
		files = files[n:]
	}
	d.users.Add(int32(len(tasks)))
	w.mu.Lock()
	w.tasks = append(w.tasks, tasks...)
	w.changed.Broadcast()
	w.mu.Unlock()
}

// leavesOut reports whether to skip path, and counts skipped paths: a search must not show what would need
// approval if the call had named it.
func (w *walk) leavesOut(path string, dir bool) bool {
	real := w.real + path[w.rootLen:] // links below the root are not followed
	covered := pathrule.CoveredBy
	if dir {
		covered = pathrule.TreeCoveredBy
	}
	if pathrule.SecretName(real) == "" && !covered(w.except, real) && (real == path || !covered(w.except, path)) {
		return false
	}
	w.leftOut.Add(1)
	return true
}

// except returns the patterns of paths that the judgement of the call tells a search to skip.
func except(ctx context.Context) []string {
	if j := tool.CallFrom(ctx).Judgement; j != nil {
		return j.Except
	}
	return nil
}

// open opens the regular file name in d.
func (d *walkDir) open(ctx context.Context, name string) (fs.File, error) {
	if fsys, ok := d.file.(fs.SubFS); ok {
		return fsys.Open(name)
	}
	return d.backend.Open(ctx, permission.File{Path: d.path + "/" + name})
}

// sub opens the directory name in d.
func (d *walkDir) sub(ctx context.Context, name string) (fs.File, error) {
	fsys, ok := d.file.(fs.SubFS)
	if !ok {
		return d.backend.Open(ctx, permission.File{Path: d.path + "/" + name})
	}
	sub, err := fsys.Sub(name)
	if err != nil {
		return nil, err
	}
	if f, ok := sub.(fs.File); ok {
		return f, nil
	}
	return nil, fmt.Errorf("%s/%s: Sub returned a %T, which is not a file", d.path, name, sub)
}

func (d *walkDir) release() {
	if d.users.Add(-1) == 0 {
		d.file.Close()
	}
}

func (d *walkDir) ignored(path string, dir bool) bool {
	if ignored, decided := d.ripgrep.Decide(path, dir); decided {
		return ignored
	}
	return d.git.Ignored(path, dir)
}

// readRules reads the ignore files among the entries of d.
func (d *walkDir) readRules(ctx context.Context, entries []fs.DirEntry) {
	var has struct{ git, gitignore, ignore, rgignore bool }
	for _, e := range entries {
		switch e.Name() {
		case ".git":
			has.git = true
		case ".gitignore":
			has.gitignore = true
		case ".ignore":
			has.ignore = true
		case ".rgignore":
			has.rgignore = true
		}
	}
	if has.git { // rules of parent directories do not apply to a repository
		d.git = gitignore.Top(d.path, d.readIgnoreFile(ctx, ".git/info/exclude"))
	}
	if has.gitignore {
		d.git = d.git.Sub(d.path, d.readIgnoreFile(ctx, ".gitignore"))
	}
	if has.ignore {
		d.ripgrep = d.ripgrep.Sub(d.path, d.readIgnoreFile(ctx, ".ignore"))
	}
	if has.rgignore {
		d.ripgrep = d.ripgrep.Sub(d.path, d.readIgnoreFile(ctx, ".rgignore"))
	}
}

// readIgnoreFile returns the rules of an ignore file; none if it is missing or unreadable.
func (d *walkDir) readIgnoreFile(ctx context.Context, name string) *gitignore.Rules {
	f, err := d.open(ctx, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
	if err != nil {
		return nil
	}
	return gitignore.Parse(data)
}

// rulesAbove returns the rules of the directories above root, up to the top of the repository, so that a search from a
// subdirectory skips the same files as a search from the top. Outside of a repository there are none, as in git.
func (w *walk) rulesAbove(ctx context.Context, root string) *gitignore.Dir {
	var above []*walkDir // the top of the repository last
	for dir := path.Dir(root); ; dir = path.Dir(dir) {
		f, err := w.backend.Open(ctx, permission.File{Path: dir})
		if err != nil {
			return nil
		}
		defer f.Close()
		above = append(above, &walkDir{path: strings.TrimSuffix(dir, "/"), file: f, backend: w.backend})
		git, err := w.backend.Open(ctx, permission.File{Path: dir + "/.git"})
		if err == nil {
			git.Close()
			break
		}
		if dir == path.Dir(dir) { // the root of the file system
			return nil
		}
	}
	top := above[len(above)-1]
	rules := gitignore.Top(top.path, top.readIgnoreFile(ctx, ".git/info/exclude"))
	for _, d := range slices.Backward(above) {
		rules = rules.Sub(d.path, d.readIgnoreFile(ctx, ".gitignore"))
	}
	return rules
}
