package builtin

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mainRepository returns the repository of which the directory is a linked working tree: git writes there when it
// commits. The repository must name the working tree too, since anyone can create the file that names a repository.
func mainRepository(dir string) []string {
	line := func(dir, name string) string {
		data, _ := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSuffix(string(data), "\n")
	}
	real := func(dir, name string) string {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		out, _ := filepath.EvalSymlinks(name)
		return out
	}
	gitDir, ok := strings.CutPrefix(line(dir, ".git"), "gitdir: ")
	if !ok {
		return nil
	}
	adminDir := real(dir, gitDir) // REPOSITORY/worktrees/NAME
	if adminDir == "" || filepath.Base(filepath.Dir(adminDir)) != "worktrees" {
		return nil
	}
	main := filepath.Dir(filepath.Dir(adminDir))
	gitFile := real(dir, ".git")
	if gitFile == "" || real(adminDir, line(adminDir, "gitdir")) != gitFile || real(adminDir, line(adminDir, "commondir")) != main || !isRepository(main) {
		return nil
	}
	return []string{main}
}

// isRepository reports whether git treats the directory as a repository.
func isRepository(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return hasRepository(entries)
}

func hasRepository(entries []fs.DirEntry) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), name) })
	}
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

// inGitModules reports whether rel is below the place where a repository keeps its submodules' repositories, or
// the data of its other working trees.
func inGitModules(rel string) bool {
	rel = "/" + rel
	return strings.Contains(rel, "/.git/modules") || strings.Contains(rel, "/.git/worktrees")
}

// setAside renames those of made, the protected paths that a command created, that are in a repository: git would run
// or follow them, and creates no such files itself. It returns made with the new names added.
func setAside(made []string) []string {
	out := slices.Clone(made)
	for i, name := range out {
		dir := filepath.Dir(name)
		inGit := filepath.Base(dir) == ".git" || inGitModules(dir) || isRepository(dir)
		real, err := filepath.EvalSymlinks(dir)
		if !inGit || err != nil || real != dir { // no file that is reached through a link is renamed
			continue
		}
		out[i] = moveAside(name)
	}
	return out
}

// moveAside renames a file or directory that a command created, and returns its names for the note about it. The command
// may have tried to prevent that.
func moveAside(name string) string {
	aside := name + ".untrusted"
	if os.Rename(name, aside) != nil {
		aside += "-" + rand.Text()
		os.Chmod(filepath.Dir(name), 0o755)
		if os.Rename(name, aside) != nil {
			return name + " (it could not be renamed)"
		}
	}
	return name + " (now " + aside + ")"
}
