package shell

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// What a directory brings along may make a harmless command run a program:
// .git/config names filters, .npmrc a registry to which a key is sent,
// rust-toolchain.toml a compiler. Nobody agreed to that by working there. In a
// directory that is not trusted the analysis therefore looks for what the command
// would take from it, and the command is read-only only if there is nothing.
// Directories that are neither trusted nor below a working directory are not
// looked at: there the command is never read-only.

// A fact is what a look into a directory found when a command was judged. A
// verdict that is remembered holds as long as its facts do.
type fact struct {
	names []string // see [spec.takes]; nil: the settings of git
	dir   string
	found string // why a program of the directory may run, or ""

	tree, hidden bool     // instead: what secret is below the directory, hidden ones included
	bases        []string // … whose name matches one of them; nil: any
	top          bool     // instead: where the work tree of git begins
}

func (f *fact) look(at *pathrule.Place) string {
	switch {
	case f.top:
		return gitTop(at, f.dir)
	case f.tree:
		if f.bases != nil {
			return at.SecretAmong(f.dir, f.hidden, f.bases)
		}
		return at.SecretBelow(f.dir, f.hidden)
	case f.names == nil:
		return gitBrings(at, f.dir)
	}
	return brings(at, f.dir, f.names)
}

// find looks for a fact, once for a command: the same one may matter to several parts.
func (w *walker) find(f fact) string {
	same := func(g fact) bool {
		return g.dir == f.dir && g.tree == f.tree && g.hidden == f.hidden && g.top == f.top &&
			(g.names == nil) == (f.names == nil) && slices.Equal(g.names, f.names) && (g.bases == nil) == (f.bases == nil) && slices.Equal(g.bases, f.bases)
	}
	if i := slices.IndexFunc(w.facts, same); i >= 0 {
		return w.facts[i].found
	}
	f.found = f.look(w.at)
	w.facts = append(w.facts, f)
	return f.found
}

// lookHolds is how long what was looked at is believed without another look. A
// decision asks for one verdict several times, and what may change in between may as
// well change after it.
const lookHolds = 50 * time.Millisecond

// current reports whether everything that was looked at is as it was.
func (a *Analysis) current(at *pathrule.Place) bool {
	if len(a.facts) == 0 {
		return true
	}
	last := a.lookedAt.Load()
	now := time.Now().UnixNano()
	if now-last < int64(lookHolds) && now >= last {
		return true
	}
	a.lookedAt.Store(now)
	for i := range a.facts {
		if f := &a.facts[i]; f.look(at) != f.found {
			return false
		}
	}
	return true
}

// brought returns why the command, run in one of dirs, may run what a directory
// that is not trusted names, or "".
func (w *walker) brought(c *command, dirs, names []string) string {
	if w.lost || len(dirs) == 0 {
		return "it runs what the settings of its directory name, and the directory is not known"
	}
	for _, d := range dirs {
		real := w.at.Real(d)
		switch {
		case real == "":
			return "it runs what the settings in " + d + " name, and nobody can tell where that is"
		case w.at.Trusts(real):
			continue
		case !w.atWork(real):
			return "it runs what the settings in " + d + " name, which is not below a working directory"
		}
		c.looked = true
		if why := w.find(fact{names: names, dir: real}); why != "" {
			return why
		}
	}
	return ""
}

// atWork reports whether the resolved directory is below where commands run, or
// below a working directory.
func (w *walker) atWork(real string) bool {
	// A path without links below a directory is below where that leads.
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

// distrust takes back what was found by looking if another command of the line
// may change it first: an archive may be unpacked, or a branch be checked out.
func (w *walker) distrust() {
	for i := range w.cmds {
		c := &w.cmds[i]
		if !c.looked || c.Reason != "" {
			continue
		}
		for k := range w.cmds {
			if k != i && w.cmds[k].places() {
				c.Reason = c.String() + ": what its directory brings along may change before it runs"
				c.effects |= unknown
				break
			}
		}
	}
}

// places reports whether the command may put files of names that it does not say
// into a directory. One that runs other programs need not do that by way of them.
func (c *command) places() bool {
	switch {
	case c.Reason == "" || c.effects&(unknown|executing) != 0:
		return false
	case c.name == "cp":
		return hasOption(c, 'r', "--recursive") || hasOption(c, 'R', "--recursive") || hasOption(c, 'a', "--archive")
	}
	return c.anyWord || c.links || c.effects&writing != 0 && !c.edit && !c.redirs
}

// brings returns which of names is in dir or above it, or "". A name with a
// colon counts if a line of the file begins with what follows. What lies in the
// home directory itself is the person's own.
func brings(at *pathrule.Place, dir string, names []string) string {
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

// maxSettings is how large a file of settings may be to be read.
const maxSettings = 1 << 20

// hasLine reports whether a line of the file begins with word. What cannot be
// read may have one.
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

// takesFrom returns why a command that a line of the tables understands may run
// what its directory names, or "". Alone means that a subcommand is missing:
// then git does not look at a repository.
func (w *walker) takesFrom(c *command, s *spec, options []given, alone bool) string {
	dirs := w.cwds
	for _, o := range options {
		if !slices.Contains(s.into, o.name) {
			continue
		}
		if !o.value.known {
			return "the directory is not known"
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
		if why := w.brought(c, dirs, nil); why != "" {
			return why
		}
	}
	if names == nil {
		return ""
	}
	return w.brought(c, dirs, names)
}

// from returns where name leads from dirs, as the system sees it: through links,
// of which ".." goes up from where they lead.
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

// gitTop returns the directory at or above dir where a work tree of git begins, or
// dir if there is none.
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
