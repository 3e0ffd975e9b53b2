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

// isSkillFile knows the specification's name and the spellings people use.
func isSkillFile(name string) bool { return strings.EqualFold(name, skillFile) }

// A scanner loads the skills of a place and keeps them. A scan of what did not
// change since the last one opens nothing: it asks for the size and the time of
// each file and folder it looked at.
type scanner struct {
	place
	depth  int // how many levels of folders below the place to look into
	broken error

	mu     sync.Mutex
	found  *findings        // of the last scan; nil when it cannot be kept
	stamps []stamp          // what it looked at
	kept   map[string]visit // by folder
}

// A stamp is what a file or folder was like when it was looked at.
type stamp struct {
	path  string // for [place.stat]
	size  int64
	mtime time.Time
	mode  fs.FileMode
}

func (s *scanner) stamp(name string, info fs.FileInfo) stamp {
	return stamp{s.path(name), info.Size(), info.ModTime(), info.Mode().Type()}
}

// fresh says whether the file or folder is as it was.
func (s stamp) fresh(info fs.FileInfo) bool {
	return info.Size() == s.size && info.ModTime().Equal(s.mtime) && info.Mode().Type() == s.mode
}

// A visit is what was found in one folder: a skill, or something wrong, or
// folders to look into.
type visit struct {
	skill    *Skill
	list     []Diagnostic
	stamps   []stamp
	folders  []string
	volatile bool // it may change without any stamp telling
}

// find holds the lock while it scans, so that callers at the same time share one
// scan instead of making one each.
func (s *scanner) find(ctx context.Context) (*findings, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != nil && s.unchanged() {
		return s.found, ctx.Err()
	}
	return s.scan(ctx)
}

// unchanged asks the system once for each file, and opens none. It stops at the
// first that differs: the scan that follows finds the others.
func (s *scanner) unchanged() bool {
	for _, st := range s.stamps {
		if info, err := s.stat(st.path); err != nil || !st.fresh(info) {
			return false
		}
	}
	return true
}

// scan visits the folders level by level, those of a level in parallel, and
// orders what it found by folder.
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
	return s.keep(seen), nil
}

// keep puts together what was found, in the order of the folders.
func (s *scanner) keep(seen map[string]visit) *findings {
	f, volatile := &findings{}, false
	s.kept, s.stamps = seen, nil
	for _, folder := range slices.Sorted(maps.Keys(seen)) {
		v := seen[folder]
		s.stamps = append(s.stamps, v.stamps...)
		f.list = append(f.list, v.list...)
		if v.skill != nil {
			f.all = append(f.all, v.skill)
		}
		volatile = volatile || v.volatile
	}
	if s.found = f; volatile {
		s.found = nil
	}
	return f
}

// parallel calls fn(0) to fn(n-1) from as many goroutines as run at once.
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

// visit looks into one folder.
func (s *scanner) visit(files fs.FS, folder string, depth int) visit {
	name := path.Join(folder, skillFile)
	info, err := fs.Stat(files, name)
	switch {
	case err == nil:
		return s.load(files, folder, name, info)
	case errors.Is(err, fs.ErrNotExist) && !isLink(files, name):
		return s.look(files, folder, depth)
	}
	return s.refuse(files, folder, name, err)
}

// load reads the skill file of a folder, unless it is the one that is kept.
func (s *scanner) load(files fs.FS, folder, name string, info fs.FileInfo) visit {
	st := s.stamp(name, info)
	if old, ok := s.kept[folder]; ok && len(old.stamps) == 1 && old.stamps[0].path == st.path && old.stamps[0].fresh(info) {
		return old
	}
	r := &report{file: s.path(name)}
	v := visit{stamps: []stamp{st}}
	if tooLarge(r, info.Size()) {
		v.list = r.list
		return v
	}
	content, err := readKnown(files, name, info, maxSkillFile)
	if err != nil {
		r.fatal("unreadable", 0, "the file cannot be read: %v", err)
		v.list, v.volatile = r.list, info.Mode().IsRegular()
		return v
	}
	if v.skill = parse(r, content, s.folderName(folder)); v.skill != nil {
		v.skill.at, v.skill.folder = s.place, folder
		if s.dir != "" {
			v.skill.Dir = s.path(folder)
		}
	}
	v.list = r.list
	return v
}

// folderName is what the name of the skill in folder has to be; "" when the
// folder has no name.
func (s *scanner) folderName(folder string) string {
	if folder != "." {
		return path.Base(folder)
	}
	if s.dir == "" {
		return ""
	}
	return filepath.Base(s.dir)
}

// look lists a folder without a SKILL.md: for a file that was meant as one, and
// for the folders below.
func (s *scanner) look(files fs.FS, folder string, depth int) visit {
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
		return visit{list: r.list, volatile: true}
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
			s.follow(files, name, &v)
		}
	}
	if s.depth == 0 {
		r.fatal("skill-file", 0, "the folder has no file SKILL.md, so it is no skill")
	}
	v.list = append(v.list, r.list...)
	return v
}

// misnamed loads a file such as skill.md.
func (s *scanner) misnamed(files fs.FS, folder, name string, v visit) visit {
	info, err := fs.Stat(files, name)
	if err != nil {
		return s.refuse(files, folder, name, err)
	}
	found := s.load(files, folder, name, info)
	r := &report{file: s.path(name)}
	tell := r.fault
	if path.Base(name) == "skill.md" { // which the specification's reference implementation takes
		tell = r.warn
	}
	tell("skill-file", 0, "the file has to be called SKILL.md; some programs will not find it")
	found.list = append(r.list, found.list...)
	found.stamps = append(found.stamps, v.stamps...)
	return found
}

// follow takes a link to a skill's folder within the place. It looks no deeper,
// so that a link cannot lead in circles.
func (s *scanner) follow(files fs.FS, name string, v *visit) {
	info, err := fs.Stat(files, name)
	switch {
	case err == nil && !info.IsDir():
	case err == nil:
		if _, err := fs.Stat(files, path.Join(name, skillFile)); err == nil {
			v.folders = append(v.folders, name)
		}
	default:
		if target, outside := s.stat(s.path(name)); outside == nil && !target.IsDir() {
			return // a link to some file
		}
		v.list = append(v.list, s.refuse(files, path.Dir(name), name, err).list...)
	}
}

// refuse reports a file or folder, in a folder, that cannot be reached.
func (s *scanner) refuse(files fs.FS, folder, name string, err error) visit {
	r := &report{file: s.path(name)}
	if !isLink(files, name) {
		r.fatal("unreadable", 0, "it cannot be read: %v", err)
		return visit{list: r.list, volatile: true}
	}
	if _, dangling := s.stat(s.path(name)); dangling != nil {
		r.fatal("symlink", 0, "the link leads nowhere; remove it or mend it")
	} else {
		r.fatal("symlink", 0, "the link leads out of %s, or names its target from the root, and is not followed; copy what it points to, or load that folder itself", s.path("."))
	}
	v := visit{list: r.list}
	if info, err := fs.Stat(files, folder); err == nil { // another link in its place changes the folder
		v.stamps = append(v.stamps, s.stamp(folder, info))
	}
	return v
}

func isLink(files fs.FS, name string) bool {
	info, err := fs.Lstat(files, name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}
