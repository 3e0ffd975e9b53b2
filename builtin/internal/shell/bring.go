package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// Files of a directory may make a harmless command run a program: .git/config names filters, .npmrc a registry to
// which a key is sent, rust-toolchain.toml a compiler. Therefore, in a directory that is not trusted, the analysis
// checks for the files that the command would use. The command is read-only only if there are none. Directories
// that are neither trusted nor below a working directory are not checked: there the command is never read-only.

// A fact is the result of a check of a directory.
type fact struct {
	names  []string // the names to look for, see [spec.takes]; nil means the settings of git
	dir    string
	result string // see check

	tree, hidden bool     // the fact is which secret is below the directory; hidden includes hidden ones
	bases        []string // with tree, patterns for the secret; with tracked, paths above the file; nil matches any
	top          bool     // the fact is the top of git's work tree, or dir if there is none
	tracked      bool     // the fact is which file with credentials git tracks
	settings     bool     // the fact is where the settings of git have credentials

	listed  bool   // the fact is whether names in dir are links to secrets; the following fields qualify it
	cwd     string // the directory in which the names are read as words of a text; "" if they are not
	deep    bool   // include names below subdirectories
	through bool   // include names below links to directories
	regular bool   // no name is a link
	trees   bool   // everything below a name is read
}

// check returns the result of the fact: why a program may run, a secret, or a directory; or "".
func (f *fact) check(at *pathrule.Place) string {
	switch {
	case f.listed:
		return f.listedSecret(*at)
	case f.top:
		return cmp.Or(workTree(at, at.Real(f.dir)), f.dir)
	case f.tracked:
		return trackedSecret(at, f.dir, f.bases)
	case f.settings:
		return credentialSettings(at, f.dir)
	case f.tree && strings.ContainsAny(f.dir, "*?["):
		names, all := at.Glob(f.dir)
		if !all {
			return f.dir + " matches too many names to look for credentials among them"
		}
		for _, name := range names {
			if why := f.secret(at, name); why != "" {
				return why
			}
		}
		return ""
	case f.tree:
		return f.secret(at, f.dir)
	case f.names == nil:
		return gitRuns(at, f.dir)
	}
	return untrustedFile(at, f.dir, f.names)
}

// listedSecret has parameters by value, so that facts of other kinds do not escape to the heap.
func (f fact) listedSecret(at pathrule.Place) string {
	listing := pathrule.Listing{Dir: f.dir, Deep: f.deep, Hidden: f.hidden, Bases: f.bases, Through: f.through, Regular: f.regular}
	return at.Harmful(listing, f.cwd, func(abs string, link bool) bool {
		return at.Secret(abs) != "" || secretSettings(&at, abs) != "" || (f.trees || f.through && link) && at.SecretBelow(abs, true) != ""
	})
}

// secret returns which secret in the directory the fact is about, or "".
func (f *fact) secret(at *pathrule.Place, dir string) string {
	if why := secretSettingsIn(at, dir, f.bases); why != "" {
		return why
	}
	if f.bases != nil {
		return at.SecretAmong(dir, f.hidden, f.bases)
	}
	return at.SecretBelow(dir, f.hidden)
}

// factResult returns the result of a fact, which it checks once for each line.
func (w *walker) factResult(f fact) string {
	same := func(g fact) bool {
		return g.dir == f.dir && g.tree == f.tree && g.hidden == f.hidden && g.top == f.top && g.tracked == f.tracked && g.settings == f.settings && g.listed == f.listed && g.cwd == f.cwd && g.deep == f.deep && g.through == f.through && g.regular == f.regular && g.trees == f.trees &&
			(g.names == nil) == (f.names == nil) && slices.Equal(g.names, f.names) && (g.bases == nil) == (f.bases == nil) && slices.Equal(g.bases, f.bases)
	}
	if i := slices.IndexFunc(w.facts, same); i >= 0 {
		return w.facts[i].result
	}
	f.result = f.check(&w.at)
	w.facts = append(w.facts, f)
	return f.result
}

// factLifetime is how long facts are valid. One decision needs a verdict several times, and a change in between is
// no worse than one after it.
const factLifetime = 50 * time.Millisecond

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
		case w.at.BelowAny(real, w.at.Trusted):
			continue
		case !w.at.BelowAny(real, []string{w.at.Cwd}) && !w.at.BelowAny(real, w.at.Dirs):
			return "it runs what the settings in " + d + " name, which is not below a working directory"
		}
		c.checked = true
		if why := w.factResult(fact{names: names, dir: real}); why != "" {
			return why
		}
	}
	return ""
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

// createsUnknown reports whether the command may create files with unknown names in a directory. It is false for
// commands that run other programs, which need no such files to run a program.
func (c *command) createsUnknown() bool {
	switch {
	case c.Reason == "" || c.effects&(unknown|executing) != 0:
		return false
	case c.name == "cp":
		return hasOption(c, 'r', "--recursive") || hasOption(c, 'R', "--recursive") || hasOption(c, 'a', "--archive")
	}
	return c.anyWord || c.links || c.effects&writing != 0 && !c.edit && !c.redirs
}

// untrustedFile returns why a file with one of the names, in dir or above it, may run a program, or "". A name with
// a colon counts only if the file contains one of the texts after the colon, separated by "|". Files directly in the home
// directory are the user's own.
func untrustedFile(at *pathrule.Place, dir string, names []string) string {
	for {
		head := strings.TrimSuffix(dir, "/") + "/"
		for _, name := range names {
			file, texts, parts := strings.Cut(name, ":")
			file = head + file
			if !at.Exists(file) || parts && !contains(at, file, texts) {
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

// contains reports whether the file contains one of the texts, or cannot be read.
func contains(at *pathrule.Place, file, texts string) bool {
	all, err := at.Contents(file, maxSettings)
	return err != nil || slices.ContainsFunc(strings.Split(texts, "|"), func(text string) bool { return strings.Contains(string(all), text) })
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
		dirs = w.realPaths(dirs, o.value.text)
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

// realPaths returns the paths of name relative to dirs, resolved like the system does: ".." is
// relative to the target of a link.
func (w *walker) realPaths(dirs []string, name string) []string {
	if path.IsAbs(name) {
		return []string{w.at.Real(name)}
	}
	out := make([]string, len(dirs))
	for i, d := range dirs {
		out[i] = w.at.Real(d + "/" + name)
	}
	return out
}
