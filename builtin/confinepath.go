package builtin

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// programDirsIn returns the directories of PATH that are in one of dirs. Programs in them are later started by name,
// even outside the sandbox, so commands may not write in protected. They may write in installDirs: directories that do
// not exist yet, or in which a package manager installs programs of a project; see renameShadows.
func programDirsIn(dirs []string) (protected, installDirs []string) {
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
			case missing || isInstallDir(real):
				installDirs = append(installDirs, real)
			default:
				protected = append(protected, real)
			}
		}
	}
	slices.Sort(protected)
	slices.Sort(installDirs)
	return slices.Compact(protected), slices.Compact(installDirs)
}

// isInstallDir reports whether a package manager installs programs of a project in the directory.
func isInstallDir(dir string) bool {
	if strings.HasSuffix(dir, "/node_modules/.bin") {
		return true
	}
	_, err := os.Lstat(filepath.Join(filepath.Dir(dir), "pyvenv.cfg"))
	return err == nil
}

// programsIn returns the names in each directory, and an empty list for a missing directory.
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

// renameShadows renames files that a command has added to the directories in before, if they have the name of a
// program elsewhere in PATH: a later start of that program, such as an MCP server, would run the added file instead.
// before has the names that were in each directory before the command. All processes of the command must have ended.
func renameShadows(before map[string][]string, writable []string) (renamed []string) {
	inWritable := func(name string) bool {
		return slices.ContainsFunc(writable, func(dir string) bool {
			top, err := filepath.EvalSymlinks(dir)
			return err == nil && within(top, name)
		})
	}
	for dir, names := range before {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !inWritable(real) {
			continue // dir does not exist, or is a link to a directory in which the command could not write
		}
		for _, e := range entriesOf(real) {
			if slices.Contains(names, e.Name()) || e.IsDir() || !hidesProgram(e.Name(), inWritable) {
				continue
			}
			renamed = append(renamed, renameUntrusted(filepath.Join(real, e.Name())))
		}
	}
	slices.Sort(renamed)
	return renamed
}

// entriesOf lists a directory, and first makes it listable if the command has removed that permission.
func entriesOf(dir string) []fs.DirEntry {
	entries, err := os.ReadDir(dir)
	if err != nil && os.Chmod(dir, 0o755) == nil {
		entries, _ = os.ReadDir(dir)
	}
	return entries
}

// hidesProgram reports whether a directory of PATH in which commands cannot write has a program called name.
func hidesProgram(name string, inWritable func(dir string) bool) bool {
	return slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || inWritable(real) {
			return false
		}
		info, err := os.Stat(filepath.Join(real, name))
		return err == nil && !info.IsDir()
	})
}
