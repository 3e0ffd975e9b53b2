package shell

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// Files of a directory may make a harmless command run a program: .git/config names filters,
// .npmrc a registry to which a key is sent, rust-toolchain.toml a compiler. Working in a
// directory does not permit that. In a directory that is not trusted the analysis therefore
// checks for the files that the command would use, and the command is read-only only if there
// are none. Directories that are neither trusted nor below a working directory are not
// checked: there the command is never read-only.

// A fact is the result of a check of a directory. A cached verdict is valid as long as its
// facts are.
type fact struct {
	names []string // see [spec.takes]; nil: the settings of git
	dir   string
	found string // why a program of the directory may run, or ""

	tree, hidden bool     // instead: which secret is below the directory, with hidden ones if set
	bases        []string // … and matches one of these patterns, or of a tracked file is below one of these paths; nil matches any
	top          bool     // instead: the top of git's work tree
	tracked      bool     // instead: which file with credentials git tracks
	settings     bool     // instead: where the settings of git have credentials
}

func (f *fact) look(at *pathrule.Place) string {
	switch {
	case f.top:
		return gitTop(at, f.dir)
	case f.tracked:
		return trackedSecret(at, f.dir, f.bases)
	case f.settings:
		return credentialSettings(at, f.dir)
	case f.tree:
		if f.bases != nil {
			return at.SecretAmong(f.dir, f.hidden, f.bases)
		}
		return at.SecretBelow(f.dir, f.hidden)
	case f.names == nil:
		return gitRuns(at, f.dir)
	}
	return untrustedFile(at, f.dir, f.names)
}

// factResult returns the result of a fact, which it checks once for each line.
func (w *walker) factResult(f fact) string {
	same := func(g fact) bool {
		return g.dir == f.dir && g.tree == f.tree && g.hidden == f.hidden && g.top == f.top && g.tracked == f.tracked && g.settings == f.settings &&
			(g.names == nil) == (f.names == nil) && slices.Equal(g.names, f.names) && (g.bases == nil) == (f.bases == nil) && slices.Equal(g.bases, f.bases)
	}
	if i := slices.IndexFunc(w.facts, same); i >= 0 {
		return w.facts[i].found
	}
	f.found = f.look(w.at)
	w.facts = append(w.facts, f)
	return f.found
}

// factLifetime is how long facts are valid without another check. One decision needs a verdict
// several times, and a change in between is no worse than one after it.
const factLifetime = 50 * time.Millisecond

// factsCurrent reports whether all facts are unchanged.
func (a *Analysis) factsCurrent(at *pathrule.Place) bool {
	if len(a.facts) == 0 {
		return true
	}
	last := a.factsCheckedAt.Load()
	now := time.Now().UnixNano()
	if now-last < int64(factLifetime) && now >= last {
		return true
	}
	a.factsCheckedAt.Store(now)
	for i := range a.facts {
		if f := &a.facts[i]; f.look(at) != f.found {
			return false
		}
	}
	return true
}

// directoryRuns returns why the command, run in one of dirs, may run a program that an untrusted
// directory names, or "".
func (w *walker) directoryRuns(c *command, dirs, names []string) string {
	if w.cwdLost || len(dirs) == 0 {
		return "it runs what the settings of its directory name, and the directory is unknown"
	}
	for _, d := range dirs {
		real := w.at.Real(d)
		switch {
		case real == "":
			return "it runs what the settings in " + d + " name, whose real path is unknown"
		case w.at.Trusts(real):
			continue
		case !w.inWorkArea(real):
			return "it runs what the settings in " + d + " name, which is not below a working directory"
		}
		c.checked = true
		if why := w.factResult(fact{names: names, dir: real}); why != "" {
			return why
		}
	}
	return ""
}

// inWorkArea reports whether the resolved directory is below the directory of commands or a
// working directory.
func (w *walker) inWorkArea(real string) bool {
	// A resolved path is below a directory's resolved path.
	if pathrule.Below(real, w.at.Cwd) || slices.ContainsFunc(w.at.Dirs, func(d string) bool { return pathrule.Below(real, d) }) {
		return true
	}
	for _, d := range append([]string{w.at.Cwd}, w.at.Dirs...) {
		if d := w.at.Real(d); d != "" && pathrule.Below(real, d) {
			return true
		}
	}
	return false
}

// revokeFacts revokes the results of checks if another command of the line may change them
// first: an archive may be unpacked, or a branch checked out.
func (w *walker) revokeFacts() {
	for i := range w.cmds {
		c := &w.cmds[i]
		if !c.checked || c.Reason != "" {
			continue
		}
		for k := range w.cmds {
			if k != i && w.cmds[k].createsUnknown() {
				c.Reason = c.String() + ": files of its directory that it runs or obeys may change before"
				c.effects |= unknown
				break
			}
		}
	}
}

// createsUnknown reports whether the command may create files of unknown names in a directory. One
// that runs other programs does not need such files for that.
func (c *command) createsUnknown() bool {
	switch {
	case c.Reason == "" || c.effects&(unknown|executing) != 0:
		return false
	case c.name == "cp":
		return hasOption(c, 'r', "--recursive") || hasOption(c, 'R', "--recursive") || hasOption(c, 'a', "--archive")
	}
	return c.anyWord || c.links || c.effects&writing != 0 && !c.edit && !c.redirs
}

// untrustedFile returns why one of names in dir or above it matters, or "". A name with a colon
// counts if a line of the file begins with the text after it. Files directly in the home
// directory are the user's own.
func untrustedFile(at *pathrule.Place, dir string, names []string) string {
	for {
		head := strings.TrimSuffix(dir, "/") + "/"
		for _, name := range names {
			file, word, lines := strings.Cut(name, ":")
			file = head + file
			if !at.Exists(file) || lines && !hasLine(at, file, word) {
				continue
			}
			if at.Home != "" && (dir == at.Home || dir == at.Real(at.Home)) {
				continue
			}
			return "it may run what " + file + " names, and " + dir + " is not trusted"
		}
		if dir == "/" {
			return ""
		}
		dir = path.Dir(dir)
	}
}

// maxSettings is the size of the largest file of settings that is read.
const maxSettings = 1 << 20

// hasLine reports whether a line of the file begins with word, or whether the file cannot be
// read.
func hasLine(at *pathrule.Place, file, word string) bool {
	text, err := at.Contents(file, maxSettings)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == word {
			return true
		}
	}
	return false
}

// takesFrom returns why a command that a line of the tables accepts may run what its
// directory names, or "". alone means that a subcommand is missing, so that git does not open
// a repository.
func (w *walker) takesFrom(c *command, s *spec, options []given, alone bool) string {
	dirs := w.cwds
	for _, o := range options {
		if !slices.Contains(s.into, o.name) {
			continue
		}
		if !o.value.known {
			return "the directory is unknown"
		}
		dirs = w.from(dirs, o.value.text)
	}
	var names []string
	for _, name := range s.takes {
		if name != "git" {
			names = append(names, name)
			continue
		}
		if alone {
			continue
		}
		if why := w.directoryRuns(c, dirs, nil); why != "" {
			return why
		}
	}
	if names == nil {
		return ""
	}
	return w.directoryRuns(c, dirs, names)
}

// from returns the paths of name relative to dirs, resolved like the system does: ".." is
// relative to the target of a link.
func (w *walker) from(dirs []string, name string) []string {
	if path.IsAbs(name) {
		return []string{w.at.Real(name)}
	}
	out := make([]string, len(dirs))
	for i, d := range dirs {
		out[i] = w.at.Real(d + "/" + name)
	}
	return out
}

// gitTop returns the directory at or above dir that is the top of a git work tree, or dir if
// there is none.
func gitTop(at *pathrule.Place, dir string) string {
	for top := at.Real(dir); top != ""; top = path.Dir(top) {
		if at.Exists(path.Join(top, ".git")) {
			return top
		}
		if top == "/" {
			break
		}
	}
	return dir
}
