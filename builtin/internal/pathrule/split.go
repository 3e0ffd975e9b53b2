package pathrule

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Listing describes names of files below a directory that a command prints.
type Listing struct {
	Dir     string   // absolute, may have wildcards
	Deep    bool     // includes the names below its subdirectories
	Hidden  bool     // includes hidden names
	Through bool     // names may be in a directory that is reached through a link
	Regular bool     // no name is a link
	Bases   []string // patterns, one of which the last segment matches; nil matches any
}

// maxListed is how many names of a listing are checked.
const maxListed = 50_000

// separators are the characters that may end a word, or change it, where a shell or xargs reads names.
const separators = " \t\n\v\f\r'\"\\*?["

// Harmful returns why one of the names of a listing is harmful, or "". It calls harmful for links and for names that
// are reached through links. If cwd is not empty, a program will split the names into words, and harmful is also called
// for the words, relative to cwd: the file "d /etc/passwd" is read as the words "d" and "/etc/passwd".
func (p Place) Harmful(l Listing, cwd string, harmful func(abs string, link bool) bool) string {
	dirs, all := []string{l.Dir}, true
	fixed := l.Dir
	if strings.ContainsAny(l.Dir, "*?[") {
		fixed, _ = Fixed(l.Dir)
		dirs, all = p.Glob(l.Dir)
	}
	left := maxListed
	for _, dir := range dirs {
		s := search{Place: p, Listing: l, dir: fixed, cwd: cwd, left: left, linked: p.Real(dir) != dir, harmful: harmful}
		why := s.below(strings.TrimPrefix(dir, fixed))
		if why != "" {
			return why
		}
		left = s.left
	}
	if !all {
		return l.Dir + " matches too many names to check"
	}
	return ""
}

// A search checks the names of a listing.
type search struct {
	Place
	Listing
	dir, cwd string
	left     int  // how many names may still be checked
	linked   bool // the directory is reached through a link
	harmful  func(abs string, link bool) bool
}

func (s *search) below(rel string) string {
	entries, err := s.entries(path.Join(s.dir, rel))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if s.left--; s.left < 0 {
			return s.Dir + " has too many names to check"
		}
		name := path.Join(rel, e.Name())
		if strings.HasPrefix(e.Name(), ".") && !s.Hidden {
			continue
		}
		if matches := NameMatches(e.Name(), s.Bases); matches && s.cwd != "" && strings.ContainsAny(name, separators) && s.hasHarmfulWord(name) {
			return "words of the name " + strconv.Quote(path.Join(s.dir, name)) + " may be names of other files"
		} else if link := s.linked || !s.Regular && e.Type()&fs.ModeSymlink != 0; link && (matches || s.Through) && s.harmful(path.Join(s.dir, name), true) {
			return path.Join(s.dir, name) + " is reached through a link"
		}
		if s.Deep && e.IsDir() {
			if why := s.below(name); why != "" {
				return why
			}
		}
	}
	return ""
}

// hasHarmfulWord reports whether a word of the name is harmful.
func (s *search) hasHarmfulWord(name string) bool {
	harmful := func(abs string) bool { return s.harmful(abs, false) }
	if strings.ContainsAny(name, `'"\`) { // xargs removes them
		return true
	}
	for word := range strings.FieldsSeq(name) {
		for _, from := range []string{s.dir, s.cwd} {
			abs := path.Join(from, word)
			if path.IsAbs(word) {
				abs = path.Clean(word)
			}
			matches, all := []string{}, true
			if strings.ContainsAny(word, "*?[") {
				matches, all = s.Glob(abs)
			}
			if !all || harmful(abs) || slices.ContainsFunc(matches, harmful) {
				return true
			}
		}
	}
	return false
}

// entries returns the content of a directory. On another machine anything may be a directory.
func (p Place) entries(dir string) ([]fs.DirEntry, error) {
	if p.ReadDir == nil {
		return os.ReadDir(filepath.FromSlash(dir))
	}
	names, err := p.ReadDir(dir)
	out := make([]fs.DirEntry, len(names))
	for i, name := range names {
		out[i] = remoteEntry{name, fs.ModeDir}
		if _, err := p.Target(path.Join(dir, name)); err == nil {
			out[i] = remoteEntry{name, fs.ModeSymlink}
		}
	}
	return out, err
}

// A remoteEntry is a name in a directory of another machine: a link, or something that may be a directory.
type remoteEntry struct {
	name string
	mode fs.FileMode
}

func (e remoteEntry) Name() string             { return e.name }
func (e remoteEntry) IsDir() bool              { return e.mode.IsDir() }
func (e remoteEntry) Type() fs.FileMode        { return e.mode }
func (remoteEntry) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
