package builtin

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// commandDirs returns the directories of PATH that are in one of dirs, which later programs are
// started from by name, outside the sandbox, too. Nothing may be written in the kept ones. The
// others are those that a package manager fills for a project, and those that do not exist: what
// a command adds there must not have the name of another program; see setShadowsAside.
func commandDirs(dirs []string) (kept, filled []string) {
	for _, name := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(name) {
			continue
		}
		real := (pathrule.Place{}).Real(name)
		_, err := os.Lstat(real)
		missing := err != nil
		for _, dir := range dirs {
			top, err := filepath.EvalSymlinks(dir)
			switch {
			case err != nil || !within(top, real) || top == real:
			case missing || isFilled(real):
				filled = append(filled, real)
			default:
				kept = append(kept, real)
			}
		}
	}
	slices.Sort(kept)
	slices.Sort(filled)
	return slices.Compact(kept), slices.Compact(filled)
}

// isFilled reports whether a package manager puts programs in the directory for a project.
func isFilled(dir string) bool {
	if strings.HasSuffix(dir, "/node_modules/.bin") {
		return true
	}
	_, err := os.Lstat(filepath.Join(filepath.Dir(dir), "pyvenv.cfg"))
	return err == nil
}

// programsIn returns the names in each of the directories.
func programsIn(dirs []string) map[string][]string {
	names := make(map[string][]string, len(dirs))
	for _, dir := range dirs {
		names[dir] = nil
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			names[dir] = append(names[dir], e.Name())
		}
	}
	return names
}

// setShadowsAside renames what a command has added to the directories, in which the names were
// before, if it has the name of a program in another directory of PATH: who calls that, as for
// example an MCP server that is started next, would run it. It returns what it renamed. No
// process of the command is left.
func setShadowsAside(before map[string][]string, writable []string) (aside []string) {
	inWritable := func(name string) bool {
		return slices.ContainsFunc(writable, func(dir string) bool {
			top, err := filepath.EvalSymlinks(dir)
			return err == nil && within(top, name)
		})
	}
	for dir, names := range before {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !inWritable(real) {
			continue // there is none, or it leads to what the command could not write
		}
		for _, e := range entriesOf(real) {
			if slices.Contains(names, e.Name()) || e.IsDir() || !hidesProgram(e.Name(), inWritable) {
				continue
			}
			name := filepath.Join(real, e.Name())
			moveAside(name)
			aside = append(aside, name)
		}
	}
	slices.Sort(aside)
	return aside
}

// entriesOf lists a directory. One that cannot be listed may still have programs.
func entriesOf(dir string) []fs.DirEntry {
	entries, err := os.ReadDir(dir)
	if err != nil && os.Chmod(dir, 0o755) == nil {
		entries, _ = os.ReadDir(dir)
	}
	return entries
}

// hidesProgram reports whether a directory of PATH that commands do not write in has the name.
func hidesProgram(name string, writable func(string) bool) bool {
	return slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || writable(real) {
			return false
		}
		info, err := os.Stat(filepath.Join(real, name))
		return err == nil && !info.IsDir()
	})
}
