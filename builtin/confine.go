package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// Confines returns nil if commands of profile p are confined to p, or to the profile of [Local.Sandbox], and otherwise
// the reason why they are not.
func (l *Local) Confines(p permission.Profile) error {
	p = cmp.Or(l.Sandbox.Profile, p)
	if p != permission.ProfileRead && p != permission.ProfileWork {
		return errors.New("the sandbox is off")
	}
	return sandbox.Check().Confines()
}

// specFor returns the sandbox for the command; confined is false if the command runs without one.
func (l *Local) specFor(ctx context.Context, c Command) (s sandbox.Spec, confined bool, err error) {
	if l.Confines(c.Profile) != nil {
		return sandbox.Spec{}, false, nil
	}
	if s, err = l.spec(ctx, cmp.Or(l.Sandbox.Profile, c.Profile)); err != nil {
		return s, true, err
	}
	s.Network = s.Network || c.Network
	except, err := coveredPaths(ctx, c.Except, s.Write)
	if err != nil {
		return s, true, err
	}
	keep, err := coveredPaths(ctx, c.Keep, s.Write)
	s.Hide = append(s.Hide, except...)
	s.Protect = append(s.Protect, keep...)
	return s, true, err
}

// Spec returns how a command of the profile read or work is confined. It has the protected and hidden files that exist
// in Dirs now, and fails if there are too many directories to search.
func (l *Local) Spec(p permission.Profile) (sandbox.Spec, error) {
	return l.spec(context.Background(), p)
}

func (l *Local) spec(ctx context.Context, p permission.Profile) (sandbox.Spec, error) {
	s := l.Sandbox
	s.Profile = p
	s.Write = slices.Clone(s.Write)
	for _, dir := range l.Dirs {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			s.Write = append(s.Write, dir)
			if repository := mainRepository(dir); repository != "" {
				s.Write = append(s.Write, repository)
			}
		}
	}
	protected, secret, err := l.inDirs.findBelow(ctx, s.Write)
	if err != nil {
		return sandbox.Spec{}, err
	}
	programDirs, _ := programDirsIn(s.Write)
	s.Protect = slices.Concat(protected, programDirs, s.Protect)
	hide := slices.Concat(secret, l.nearby.secretsNextTo(s.Write), homeSecrets(), s.Hide)
	s.Hide = nil
	for _, name := range hide {
		if l.reveals(name) {
			s.Protect = append(s.Protect, name) // readable, not writable
		} else {
			s.Hide = append(s.Hide, name)
		}
	}
	s.Scratch = slices.Concat(cacheDirs(), s.Scratch)
	return s, nil
}

// reveals reports whether the path is, or is below, one of Reveal.
func (l *Local) reveals(name string) bool {
	return slices.ContainsFunc(l.Reveal, func(revealed string) bool {
		if real, err := filepath.EvalSymlinks(revealed); err == nil && within(real, name) {
			return true
		}
		return within(revealed, name)
	})
}

// within reports whether the path is dir, or below it.
func within(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}

// homeSecrets returns the current paths of credentials in the known home directories. It is called for each
// command, since a login may add credentials.
func homeSecrets() []string {
	homes := []string{"/root"}
	if home, err := os.UserHomeDir(); err == nil {
		homes = append(homes, home)
	}
	others, _ := filepath.Glob("/home/*")
	return pathrule.Secrets(append(homes, others...))
}

// cacheDirs returns the cache directories of compilers and package managers: the default ones, and those that the
// environment names.
func cacheDirs() []string {
	var out []string
	if dir, err := os.UserCacheDir(); err == nil {
		os.MkdirAll(dir, 0o700) // confined commands cannot create it
		out = append(out, dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return out
	}
	for _, name := range []string{".npm", ".cargo/registry", ".cargo/git", ".gradle", ".m2/repository", ".ivy2", ".nuget/packages", ".bun/install/cache", ".deno", ".local/share/pnpm", ".yarn", ".pub-cache", ".ccache"} {
		out = append(out, filepath.Join(home, name))
	}
	gopath := os.Getenv("GOPATH")
	if gopath == "" {
		gopath = filepath.Join(home, "go")
	}
	for _, dir := range filepath.SplitList(gopath) {
		out = append(out, filepath.Join(dir, "pkg"))
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "npm_config_cache", "CARGO_HOME", "CCACHE_DIR"} {
		if dir := os.Getenv(name); filepath.IsAbs(dir) {
			out = append(out, dir)
		}
	}
	return out
}

// A finder finds protected and secret files in working directories. It caches the content of a directory until
// the directory changes. The zero finder is ready for use; it is safe for concurrent use.
type finder struct {
	mu       sync.Mutex
	listings map[string]*listing // by path
	dirsLeft int                 // directories that the current search may still look at
}

// Limits on a search before each command, which takes microseconds for each directory. Tests change some of them.
var (
	maxDirs       = 50_000           // directories below the working directories
	maxNeighbours = 1_000            // directories next to the working directories
	maxSearch     = 20 * time.Second // how long a command waits for a search
)

// A listing is the content of a directory. Names are relative to the directory.
type listing struct {
	changed    time.Time // last change of the directory, by a clock that programs cannot set
	readAt     time.Time
	dirs       []string // names of directories to search
	protected  []string // names of protected entries
	secret     []string // names of entries with credentials
	unreadable bool     // the directory cannot be listed
}

// settled is how old a directory's last change must be for a listing to be reused: a change soon after could
// have the same time, as the clocks of file systems are coarse.
const settled = 100 * time.Millisecond

// findBelow returns the absolute paths of protected and secret files below dirs. It does not search in
// node_modules, nor in a directory that is protected or secret as a whole. If ctx stops a search, the next search gets
// further, since it need not read the cached listings again.
func (f *finder) findBelow(ctx context.Context, dirs []string) (protected, secret []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, maxSearch, fmt.Errorf("took more than %s; try again, or use a smaller working directory", maxSearch))
	defer cancel()
	f.dirsLeft = maxDirs
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if real == "/" {
			return nil, nil, errors.New("a command cannot be confined to the working directory /, the whole machine; use a smaller one")
		}
		f.walk(ctx, real, "", &protected, &secret)
		if f.dirsLeft < 0 {
			clear(f.listings) // too many to keep in memory
			return nil, nil, fmt.Errorf("%s has more than %d directories, too many to search for protected and secret files before each command; use a smaller working directory", dir, maxDirs)
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("the search of %s for protected and secret files, before each command: %w", dir, context.Cause(ctx))
		}
		for _, name := range pathrule.ProtectedNames() {
			// Include missing paths: sandbox.Result.Made then reports those that the command creates.
			protected = append(protected, filepath.Join(real, name))
		}
	}
	slices.Sort(protected)
	// A secret file is hidden, which protects it too.
	protected = slices.DeleteFunc(slices.Compact(protected), func(name string) bool { return slices.Contains(secret, name) })
	return protected, secret, nil
}

// secretsNextTo returns secret files of other projects: those directly in the parents of dirs, and directly in the
// parents' other directories, if the parent is the home directory or below it. It looks at no more than maxNeighbours
// directories.
func (f *finder) secretsNextTo(dirs []string) []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirsLeft = maxNeighbours
	var secrets []string
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !within(home, real) || real == home {
			continue
		}
		parent := filepath.Dir(real)
		l := f.list(context.Background(), parent, "")
		if l == nil {
			continue
		}
		secrets = appendJoined(secrets, parent, l.secret)
		for _, sibling := range appendJoined(nil, parent, l.dirs) {
			if l := f.list(context.Background(), sibling, ""); l != nil && sibling != real {
				secrets = appendJoined(secrets, sibling, l.secret)
			}
		}
	}
	slices.Sort(secrets)
	return slices.Compact(secrets)
}

// appendJoined appends the paths of the names in dir to paths.
func appendJoined(paths []string, dir string, names []string) []string {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// walk adds the paths of the protected and secret files below the directory rel of root.
func (f *finder) walk(ctx context.Context, root, rel string, protected, secret *[]string) {
	dir := filepath.Join(root, rel)
	l := f.list(ctx, dir, rel)
	if l == nil {
		return
	}
	if l.unreadable {
		*secret = append(*secret, dir)
		return
	}
	*protected = appendJoined(*protected, dir, l.protected)
	*secret = appendJoined(*secret, dir, l.secret)
	for _, name := range l.dirs {
		f.walk(ctx, root, path.Join(rel, name), protected, secret)
	}
}

// list returns the content of dir, which is at rel in its working directory. It returns nil if dir is not a
// directory, if the search has reached its limit, or if ctx has ended and the content is not cached.
func (f *finder) list(ctx context.Context, dir, rel string) *listing {
	if f.dirsLeft--; f.dirsLeft < 0 {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		delete(f.listings, dir)
		return nil
	}
	changed := lastChange(info)
	if l := f.listings[dir]; l != nil && l.changed.Equal(changed) && l.readAt.Sub(l.changed) > settled {
		return l
	}
	if ctx.Err() != nil {
		return nil
	}
	l := &listing{changed: changed, readAt: time.Now()}
	entries, err := os.ReadDir(dir)
	l.unreadable = err != nil && !errors.Is(err, fs.ErrNotExist)
	for _, e := range entries {
		l.add(e, rel)
	}
	if isRepository(entries) { // a bare repository, or one outside of its working tree
		l.protected = append(l.protected, pathrule.ControlPaths[".git"]...)
	}
	if f.listings == nil {
		f.listings = map[string]*listing{}
	}
	f.listings[dir] = l
	return l
}

// add adds an entry of the directory at rel.
func (l *listing) add(e fs.DirEntry, rel string) {
	name := e.Name()
	entryRel := path.Join(rel, name)
	controlPaths := pathrule.ControlPaths[name]
	switch {
	case inGitSubdirs(rel) && e.IsDir() && name != "modules":
		// The directory has the git data of a submodule or working tree, or is above such a directory.
		l.protected = appendJoined(l.protected, name, pathrule.ControlPaths[".git"])
		l.dirs = append(l.dirs, name)
	case controlPaths != nil && e.IsDir():
		l.protected = appendJoined(l.protected, name, controlPaths)
		l.dirs = append(l.dirs, path.Join(name, "modules"), path.Join(name, "worktrees"))
	case controlPaths != nil: // a file .git, which names the repository
		l.protected = append(l.protected, name)
	case pathrule.HoldsCredentials(entryRel):
		l.secret = append(l.secret, name)
	case (pathrule.Protected{}).ReadOnly(entryRel):
		l.protected = append(l.protected, name)
	case e.IsDir() && name != "node_modules":
		l.dirs = append(l.dirs, name)
	}
}
