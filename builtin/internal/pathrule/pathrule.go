// Package pathrule judges paths: which rule patterns cover them, whether they are inside a working directory,
// and whether they are protected.
//
// A [Place] has the directories that paths are resolved against. Paths are made absolute and clean before comparison.
// No file is opened; symbolic links are read so that a link and its target are treated in the same way.
//
//	at := pathrule.Place{Cwd: "/work", Home: "/home/u", Dirs: []string{"/work"}}
//	at.Inside("src/main.go")             // below a working directory, links resolved
//	at.Match("src/**", "src/main.go")    // allow: the target of the path
//	at.MatchAny("/etc/**", "src/link")   // deny, ask: the path as written or its target
//	at.MatchTree("/secret/**", "/")      // deny, ask for a search: may the search reach a path of the pattern?
//
// # Patterns
//
// "*", "?", "[a-z]" and "{a,b}" match within one segment, "**" any number of segments, "\" escapes the next
// character. "~" at the start is the home directory, "/" at the end means "/**". A relative pattern is relative to
// the first working directory, or to the current directory if there are no working directories. A deny or ask pattern
// without a slash, or one that starts with "**", applies everywhere; an allow pattern does so only if there are no
// working directories. A deny or ask pattern that ends in a name without wildcards also covers what is below it.
// An allow pattern for a link covers the link's target, unless the link leads out of a working directory: the model may
// have made it.
//
// Names are compared byte by byte, as on Linux. On a file system that
// ignores case a deny rule must name every spelling that matters.
package pathrule

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// A Place has the directories that paths are resolved against. With the zero Place relative paths cannot be resolved.
type Place struct {
	Cwd  string   // for relative paths; empty means unknown
	Home string   // for "~"; empty means unknown
	Dirs []string // working directories, absolute; relative patterns are relative to the first

	// Trusted are absolute paths of directories whose own settings, plugins and toolchains may run, because the
	// user trusts them as a whole. nil means none, not even working directories.
	Trusted []string

	// Readlink returns the target of a symbolic link and an error for anything else. nil means os.Readlink.
	Readlink func(path string) (string, error)

	// ReadFile returns the content of a file. nil means a file of this machine.
	ReadFile func(path string) ([]byte, error)

	// ReadDir returns the names in a directory, in any order. nil means a directory of this machine.
	ReadDir func(path string) ([]string, error)
}

// Limits on a path: at least those of the systems, of which Linux has 40 links and 4096 bytes.
const (
	maxLinks = 64
	maxPath  = 4096
)

// Target returns the target of the symbolic link called name, and an error for anything else.
func (p Place) Target(name string) (string, error) {
	if p.Readlink != nil {
		return p.Readlink(name)
	}
	// Most names are not links: with a one-byte buffer, finding that out takes half as long as with os.Readlink.
	var buf [1]byte
	switch _, err := syscall.Readlink(name, buf[:]); err {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EINVAL:
		return "", err
	}
	return os.Readlink(name)
}

// Abs returns the absolute clean form of name, with "~" replaced, or "" if that needs an unknown directory, or if name is
// not valid. It does not access the file system.
func (p Place) Abs(name string) string {
	if s := p.absolute(name); s != "" {
		return path.Clean(s)
	}
	return ""
}

// absolute is Abs without the cleaning, which would hide "link/..".
func (p Place) absolute(name string) string {
	switch {
	case name == "" || len(name) > maxPath || strings.ContainsRune(name, 0):
		return ""
	case name == "~" || strings.HasPrefix(name, "~/"):
		if !path.IsAbs(p.Home) {
			return ""
		}
		return p.Home + name[1:]
	case path.IsAbs(name):
		return name
	case !path.IsAbs(p.Cwd):
		return ""
	}
	return p.Cwd + "/" + name
}

// Real returns the path that the system would access, with every symbolic link of its existing part resolved, or "" if
// Abs is "" or there are too many links. As in the system, ".." is relative to a link's target.
func (p Place) Real(name string) string {
	rest := p.absolute(name)
	if rest == "" {
		return ""
	}
	// A missing segment may exist later (after mkdir, or created by Write), so ".." removes it and the following
	// segments are looked up again: "new/../link" must not hide a link.
	done, links, missing := "", 0, 0 // missing is how many segments of done do not exist
	for rest != "" {
		seg, tail, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		rest = tail
		switch seg {
		case "", ".":
			continue
		case "..":
			done = done[:max(strings.LastIndexByte(done, '/'), 0)]
			missing = max(missing-1, 0)
			continue
		}
		next := done + "/" + seg
		if missing > 0 {
			done = next
			missing++
			continue
		}
		target, err := p.Target(next)
		switch {
		case err == nil:
			if links++; links > maxLinks {
				return ""
			}
			if path.IsAbs(target) {
				done = ""
			}
			rest = target + "/" + rest
		case os.IsNotExist(err):
			missing = 1
			done = next
		default: // not a link, or not accessible
			done = next
		}
	}
	return cmp.Or(done, "/")
}

// Inside reports whether name, with its links resolved, is a working directory or below one.
func (p Place) Inside(name string) bool { return p.BelowAny(p.Real(name), p.Dirs) }

// BelowAny reports whether real, a path without links, is one of dirs, with their links resolved, or below one.
func (p Place) BelowAny(real string, dirs []string) bool {
	return real != "" && slices.ContainsFunc(dirs, func(dir string) bool {
		if dir != "" && Below(real, dir) { // then dir has no links either
			return true
		}
		realDir := p.Real(dir)
		return realDir != "" && Below(real, realDir)
	})
}

// Exists reports whether name exists, even as a dangling link. A name that cannot be accessed counts.
func (p Place) Exists(name string) bool {
	_, err := p.Target(name)
	return err == nil || !os.IsNotExist(err) && !errors.Is(err, syscall.ENOTDIR)
}

// Contents returns the content of a regular file of at most limit bytes; ReadFile, if it is set, has its own limit.
func (p Place) Contents(name string, limit int64) ([]byte, error) {
	if p.ReadFile != nil {
		return p.ReadFile(name)
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > limit:
		return nil, fmt.Errorf("read %s: not a regular file of at most %d bytes", name, limit)
	}
	return os.ReadFile(name)
}

// Names returns the names in a directory, sorted.
func (p Place) Names(name string) ([]string, error) {
	names, err := p.unsortedNames(name)
	slices.Sort(names)
	return names, err
}

// unsortedNames returns the names in a directory, in any order.
func (p Place) unsortedNames(name string) ([]string, error) {
	if p.ReadDir != nil {
		names, err := p.ReadDir(name)
		return slices.Clone(names), err
	}
	dir, err := os.Open(name + "/") // the slash makes Open fail for a pipe instead of blocking
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Below reports whether the clean absolute path name is dir or below it.
func Below(name, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(name, "/")
	}
	return name == dir || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}
