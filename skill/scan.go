package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	anyDepth  = math.MaxInt
	skillFile = "SKILL.md"
)

func isSkillFile(name string) bool { return strings.EqualFold(name, skillFile) }

// A scanner loads the skills in a fileTree and caches them. If nothing has changed since the
// last scan it opens nothing: it only checks the size and time of each file and folder.
type scanner struct {
	fileTree
	depth   int // how many levels of folders to look into, below the top folder
	pathErr error

	mu     sync.Mutex
	found  *findings        // of the last scan; nil to scan again
	stamps []stamp          // of every file and folder that the last scan read
	cached map[string]visit // by folder
}

// A stamp is the state of a file or folder when it was read.
type stamp struct {
	path  string // for [fileTree.stat]
	size  int64
	mtime time.Time
	mode  fs.FileMode
}

func (s *scanner) stamp(name string, info fs.FileInfo) stamp {
	return stamp{s.path(name), info.Size(), info.ModTime(), info.Mode().Type()}
}

// matches reports whether the file or folder with this info is unchanged.
func (s stamp) matches(info fs.FileInfo) bool {
	return info.Size() == s.size && info.ModTime().Equal(s.mtime) && info.Mode().Type() == s.mode
}

// A visit is the result of one folder: a skill, or diagnostics, or folders to search.
type visit struct {
	skill    *Skill
	problems []Diagnostic
	stamps   []stamp
	folders  []string
	volatile bool // the result may change although no stamp does
}

// find scans if something has changed. It holds the lock meanwhile, so that concurrent callers share one scan.
func (s *scanner) find(ctx context.Context) (*findings, error) {
	if s.pathErr != nil {
		return nil, s.pathErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != nil && s.unchanged() {
		return s.found, ctx.Err()
	}
	return s.scan(ctx)
}

func (s *scanner) unchanged() bool {
	for _, st := range s.stamps {
		if info, err := s.stat(st.path); err != nil || !st.matches(info) {
			return false
		}
	}
	return true
}

// scan visits the folders level by level, and the folders of one level in parallel.
func (s *scanner) scan(ctx context.Context) (*findings, error) {
	files, done, err := s.open(".")
	if err != nil {
		return nil, fmt.Errorf("load skills from %s: %w", quote(s.path(".")), err)
	}
	defer done()
	seen := map[string]visit{}
	level := []string{"."}
	for depth := 0; len(level) > 0; depth++ {
		visits := make([]visit, len(level))
		parallel(len(level), func(i int) {
			if ctx.Err() == nil {
				visits[i] = s.visit(files, level[i], depth)
			}
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var below []string
		for i, v := range visits {
			seen[level[i]] = v
			below = append(below, v.folders...)
		}
		level = below
	}
	return s.cache(seen), nil
}

// cache stores the results, and joins them sorted by folder.
func (s *scanner) cache(seen map[string]visit) *findings {
	f, volatile := &findings{}, false
	s.cached, s.stamps = seen, nil
	for _, folder := range slices.Sorted(maps.Keys(seen)) {
		v := seen[folder]
		s.stamps = append(s.stamps, v.stamps...)
		f.problems = append(f.problems, v.problems...)
		if v.skill != nil {
			f.skills = append(f.skills, v.skill)
		}
		volatile = volatile || v.volatile
	}
	if s.found = f; volatile {
		s.found = nil
	}
	return f
}

// parallel calls fn(0) to fn(n-1) on GOMAXPROCS goroutines.
func parallel(n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	wg.Wait()
}

func (s *scanner) visit(files fs.FS, folder string, depth int) visit {
	name := path.Join(folder, skillFile)
	info, err := fs.Stat(files, name)
	switch {
	case err == nil:
		return s.load(files, folder, name, info)
	case errors.Is(err, fs.ErrNotExist) && !isLink(files, name):
		return s.list(files, folder, depth)
	}
	return s.unreachable(files, folder, name, err)
}

// load reads the skill file of a folder, or returns the cached one.
func (s *scanner) load(files fs.FS, folder, name string, info fs.FileInfo) visit {
	st := s.stamp(name, info)
	if old, ok := s.cached[folder]; ok && !old.volatile && len(old.stamps) == 1 && old.stamps[0].path == st.path && old.stamps[0].matches(info) {
		return old
	}
	r := &report{file: s.path(name)}
	v := visit{stamps: []stamp{st}}
	if tooLarge(r, info.Size()) {
		v.problems = r.problems
		return v
	}
	content, err := readWithInfo(files, name, info, maxSkillFile)
	if err != nil {
		r.fatal("unreadable", 0, "the file cannot be read: %v", err)
		v.problems, v.volatile = r.problems, info.Mode().IsRegular() // no stamp shows a change of the permissions
		return v
	}
	if v.skill = parse(r, content, s.folderName(folder)); v.skill != nil {
		v.skill.at, v.skill.folder = s.fileTree, folder
		if s.dir != "" {
			v.skill.Dir = s.path(folder)
		}
	}
	v.problems = r.problems
	return v
}

// folderName returns the name of a folder, which the skill in it must have; "" for the top of an fs.FS.
func (s *scanner) folderName(folder string) string {
	if folder != "." {
		return path.Base(folder)
	}
	if s.dir == "" {
		return ""
	}
	return filepath.Base(s.dir)
}

// list reads a folder without a SKILL.md: it looks for a misspelled SKILL.md and for folders below.
func (s *scanner) list(files fs.FS, folder string, depth int) visit {
	r := &report{file: s.path(folder)}
	v := visit{}
	info, err := fs.Stat(files, folder)
	var entries []fs.DirEntry
	if err == nil {
		v.stamps = append(v.stamps, s.stamp(folder, info))
		entries, err = fs.ReadDir(files, folder)
	}
	if err != nil {
		r.fatal("unreadable", 0, "the folder cannot be read: %v", err)
		return visit{problems: r.problems, volatile: true}
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case isSkillFile(e.Name()):
			return s.misnamed(files, folder, name, v)
		case ignored(e.Name()) || depth >= s.depth:
		case e.IsDir():
			v.folders = append(v.folders, name)
		case e.Type()&fs.ModeSymlink != 0:
			s.followLink(files, name, &v)
		}
	}
	if s.depth == 0 {
		r.fatal("skill-file", 0, "the folder has no file SKILL.md; add one, or load the folder above")
	}
	v.problems = append(v.problems, r.problems...)
	return v
}

// misnamed loads a file such as skill.md.
func (s *scanner) misnamed(files fs.FS, folder, name string, v visit) visit {
	info, err := fs.Stat(files, name)
	if err != nil {
		return s.unreachable(files, folder, name, err)
	}
	found := s.load(files, folder, name, info)
	r := &report{file: s.path(name)}
	diagnose := r.nonfatal
	if path.Base(name) == "skill.md" { // accepted by the specification's reference implementation
		diagnose = r.warn
	}
	diagnose("skill-file", 0, "the file must be called SKILL.md; some programs will not find it")
	found.problems = append(r.problems, found.problems...)
	found.stamps = append(found.stamps, v.stamps...)
	return found
}

// followLink adds the folder that a link leads to, if it is inside the tree and has a SKILL.md. It does not search
// below the folder, so that links cannot form a loop.
func (s *scanner) followLink(files fs.FS, name string, v *visit) {
	info, err := fs.Stat(files, name)
	switch {
	case err == nil && !info.IsDir():
	case err == nil:
		if _, err := fs.Stat(files, path.Join(name, skillFile)); err == nil {
			v.folders = append(v.folders, name)
		}
	default:
		if target, statErr := s.stat(s.path(name)); statErr == nil && !target.IsDir() {
			return // it leads to a file, not to a skill's folder
		}
		v.problems = append(v.problems, s.unreachable(files, path.Dir(name), name, err).problems...)
	}
}

// unreachable reports that name, a file or folder in folder, cannot be read.
func (s *scanner) unreachable(files fs.FS, folder, name string, err error) visit {
	r := &report{file: s.path(name)}
	if !isLink(files, name) {
		r.fatal("unreadable", 0, "cannot be read: %v", err)
		return visit{problems: r.problems, volatile: true}
	}
	if _, dangling := s.stat(s.path(name)); dangling != nil {
		r.fatal("symlink", 0, "the link's target does not exist; remove or repair the link")
	} else {
		r.fatal("symlink", 0, "the link leads out of %s, or is absolute, and is not followed; replace it with a copy, or load its target's folder", s.path("."))
	}
	v := visit{problems: r.problems}
	if info, err := fs.Stat(files, folder); err == nil { // replacing the link changes the folder
		v.stamps = append(v.stamps, s.stamp(folder, info))
	}
	return v
}

func isLink(files fs.FS, name string) bool {
	info, err := fs.Lstat(files, name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}
