package builtin

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mainRepository returns the repository in which git writes when a command commits in workTree, if that is a linked
// working tree, and "" otherwise. The repository must name workTree too, since any command can create the file that
// names a repository.
func mainRepository(workTree string) string {
	readLine := func(dir, name string) string {
		data, _ := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSuffix(string(data), "\n")
	}
	resolve := func(dir, name string) string { // "" if name does not exist
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		real, _ := filepath.EvalSymlinks(name)
		return real
	}
	gitDir, ok := strings.CutPrefix(readLine(workTree, ".git"), "gitdir: ")
	if !ok {
		return ""
	}
	adminDir := resolve(workTree, gitDir) // REPOSITORY/worktrees/NAME
	if adminDir == "" || filepath.Base(filepath.Dir(adminDir)) != "worktrees" {
		return ""
	}
	repository := filepath.Dir(filepath.Dir(adminDir))
	gitFile := resolve(workTree, ".git")
	entries, _ := os.ReadDir(repository)
	if gitFile == "" || resolve(adminDir, readLine(adminDir, "gitdir")) != gitFile || resolve(adminDir, readLine(adminDir, "commondir")) != repository || !isRepository(entries) {
		return ""
	}
	return repository
}

// isRepository reports whether git treats a directory with these entries as a repository.
func isRepository(entries []fs.DirEntry) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), name) })
	}
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

// inGitSubdirs reports whether rel is in .git/modules, which has the repositories of submodules, or in .git/worktrees,
// which has the data of linked working trees.
func inGitSubdirs(rel string) bool {
	rel = "/" + rel
	return strings.Contains(rel, "/.git/modules") || strings.Contains(rel, "/.git/worktrees")
}

// renameInRepositories renames the files in git repositories. created are protected files that a command has created:
// git would run or follow them, and never creates them itself. It returns created with notes on what was renamed.
func renameInRepositories(created []string) []string {
	withNotes := slices.Clone(created)
	for i, name := range created {
		dir := filepath.Dir(name)
		entries, _ := os.ReadDir(dir)
		inGit := filepath.Base(dir) == ".git" || inGitSubdirs(dir) || isRepository(entries)
		real, err := filepath.EvalSymlinks(dir)
		if inGit && err == nil && real == dir { // through a link the file may be outside the working directories
			withNotes[i] = renameUntrusted(name)
		}
	}
	return withNotes
}

// renameUntrusted renames a file or directory that a command created, and returns both names for a note. The command
// may have prepared against that: by a directory with the new name, or by removing the right to write in the directory.
func renameUntrusted(name string) string {
	newName := name + ".untrusted"
	if os.Rename(name, newName) != nil {
		newName += "-" + rand.Text()
		os.Chmod(filepath.Dir(name), 0o755)
		if os.Rename(name, newName) != nil {
			return name + " (it could not be renamed)"
		}
	}
	return name + " (now " + newName + ")"
}
