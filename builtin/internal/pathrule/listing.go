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

// A Listing describes the names of files below a directory that a command prints.
type Listing struct {
	Dir     string   // absolute, may have wildcards
	Deep    bool     // includes the names below its subdirectories
	Hidden  bool     // includes hidden names
	Through bool     // includes names in directories that are reached through a link
	Regular bool     // no name is a link
	Bases   []string // patterns, one of which the last segment matches; nil matches any
}

// maxListed is how many names of a listing are checked.
const maxListed = 50_000

// separators are the characters that may end a word, or change it, where a shell or xargs reads names.
const separators = " \t\n\v\f\r'\"\\*?["

// Harmful returns why one of the names of a listing is harmful, or "". It calls isHarmful for links and for names that
// are reached through links. If cwd is not empty, a program in cwd will split the names into words, and isHarmful is also
// called for the words: the file "d /etc/passwd" is read as the words "d" and "/etc/passwd".
func (p Place) Harmful(l Listing, cwd string, isHarmful func(abs string, link bool) bool) string {
	dirs, all := []string{l.Dir}, true
	s := search{Place: p, Listing: l, root: l.Dir, cwd: cwd, left: maxListed, isHarmful: isHarmful}
	if strings.ContainsAny(l.Dir, "*?[") {
		s.root, _ = Fixed(l.Dir)
		dirs, all = p.Glob(l.Dir)
	}
	for _, dir := range dirs {
		s.linked = p.Real(dir) != dir
		if why := s.below(strings.TrimPrefix(dir, s.root)); why != "" {
			return why
		}
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
	root      string // Dir up to the first wildcard; names are relative to root
	cwd       string
	left      int  // how many names may still be checked
	linked    bool // the directory that is searched is reached through a link
	isHarmful func(abs string, link bool) bool
}

// below returns why a name below the directory rel is harmful, or "".
func (s *search) below(rel string) string {
	entries, err := s.entries(path.Join(s.root, rel))
	if err != nil {
		return "" // the command cannot list the directory either
	}
	for _, e := range entries {
		if s.left--; s.left < 0 {
			return s.Dir + " has too many names to check"
		}
		if strings.HasPrefix(e.Name(), ".") && !s.Hidden {
			continue
		}
		name, matches := path.Join(rel, e.Name()), NameMatches(e.Name(), s.Bases)
		if matches && s.cwd != "" && strings.ContainsAny(name, separators) && s.hasHarmfulWord(name) {
			return "words of the name " + strconv.Quote(path.Join(s.root, name)) + " may be names of other files"
		}
		isLink := s.linked || !s.Regular && e.Type()&fs.ModeSymlink != 0
		if isLink && (matches || s.Through) && s.isHarmful(path.Join(s.root, name), true) {
			return path.Join(s.root, name) + " is reached through a link"
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
	isHarmful := func(abs string) bool { return s.isHarmful(abs, false) }
	if strings.ContainsAny(name, `'"\`) { // xargs removes these, which changes the words
		return true
	}
	for word := range strings.FieldsSeq(name) {
		for _, from := range []string{s.root, s.cwd} { // the printed name may begin with the path of root
			abs := path.Join(from, word)
			if path.IsAbs(word) {
				abs = path.Clean(word)
			}
			var matches []string
			all := true
			if strings.ContainsAny(word, "*?[") {
				matches, all = s.Glob(abs)
			}
			if !all || isHarmful(abs) || slices.ContainsFunc(matches, isHarmful) {
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
