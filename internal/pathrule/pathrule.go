// Package pathrule judges paths: which rule patterns cover them, whether they
// lie inside a working directory, and whether they are protected.
//
// A [Place] is where a path is judged from. Paths are made absolute and clean
// before anything is compared. Nothing here opens a file; symbolic links are
// read so that a link and its target are judged alike.
//
//	at := pathrule.Place{Cwd: "/work", Home: "/home/u", Dirs: []string{"/work"}}
//	at.Inside("src/main.go")             // below a working directory, links resolved
//	at.Match("src/**", "src/main.go")    // allow: the path as written and its target
//	at.MatchAny("/etc/**", "src/link")   // deny, ask: either of them
//	at.MatchTree("/secret/**", "/")      // deny, ask for a search: may it reach the pattern?
package pathrule

import "os"

// A Place is where paths are judged from. The zero Place knows no directory:
// relative paths cannot be judged there.
type Place struct {
	Cwd  string   // what relative paths count from; empty means unknown
	Home string   // what "~" is; empty means unknown
	Dirs []string // working directories, absolute; the first is what relative patterns count from

	// Readlink returns the target of a symbolic link and an error for anything
	// else. nil means os.Readlink.
	Readlink func(path string) (string, error)
}

func (p Place) readlink(path string) (string, error) {
	if p.Readlink != nil {
		return p.Readlink(path)
	}
	return os.Readlink(path)
}

// Abs returns the absolute clean form of path, with "~" replaced, or "" if it
// cannot be known.
func (p Place) Abs(path string) string { return "" }

// Real returns Abs(path) with the symbolic links of its longest existing
// ancestor resolved, or "" if it cannot be known.
func (p Place) Real(path string) string { return "" }

// Inside reports whether path, by name and with its links resolved, is a
// working directory or below one.
func (p Place) Inside(path string) bool { return false }

// Match reports whether pattern covers path for an allow rule: both the path
// as written and its target must be covered. An error means that the pattern
// cannot be read.
func (p Place) Match(pattern, path string) (bool, error) { return false, nil }

// MatchAny reports whether pattern covers path for a deny or ask rule: the
// path as written or its target. What cannot be known is covered.
func (p Place) MatchAny(pattern, path string) (bool, error) { return true, nil }

// MatchTree reports whether something in the tree below root may be covered by
// pattern, for a deny or ask rule of a tool that walks directories.
func (p Place) MatchTree(pattern, root string) (bool, error) { return true, nil }

// Suggest returns the pattern for everything in the directory of path, or "".
func (p Place) Suggest(path string) string { return "" }

// SuggestTree returns the pattern for dir and everything below it, or "".
func (p Place) SuggestTree(dir string) string { return "" }

// Protected holds names that must not be written without a person's consent,
// whatever the rules say, in addition to the built-in ones.
type Protected struct {
	Files []string // base names, such as "secrets.yaml"; case does not count
	Dirs  []string // names of directories anywhere in a path, such as ".deploy"
}

// Hit returns why path, as written or through its links, is protected, or "".
func (g Protected) Hit(at Place, path string) string { return "unknown path" }

// Secret returns why reading path would show credentials, or "".
func (p Place) Secret(path string) string { return "" }
