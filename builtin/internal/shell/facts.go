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
// which a key is sent, rust-toolchain.toml a compiler. The package doc says in which directories they are looked for.

// A fact is the answer to a question about a directory.
type fact struct {
	question question
	dir      string
	names    []string   // with runsPrograms: the files to look for, see [spec.takes]; nil means the settings of git
	hidden   bool       // with secretBelow and secretLinked: hidden files count too
	bases    []string   // with these two: patterns for the name; with secretTracked: paths above the file; nil matches any
	links    linkSearch // with secretLinked
	answer   string     // "" means there is none
}

// A question is what a fact is about.
type question int

const (
	runsPrograms     question = iota // why may a command run a program that files of the directory name?
	secretBelow                      // which secret is below the directory?
	secretLinked                     // which name in the directory is a link to a secret, or has a word that is a secret's name?
	secretTracked                    // which file with credentials does git track?
	secretInSettings                 // where do the settings of git have credentials?
	workTreeTop                      // what is the top of the work tree of git? If there is none, it is the directory itself.
)

// A linkSearch says which names the question secretLinked is about.
type linkSearch struct {
	cwd     string // the directory in which words of the names are read; "" if names are not split into words
	deep    bool   // names below subdirectories count too
	through bool   // names below links to directories count too
	regular bool   // no name is a link
	trees   bool   // everything below a name is read
}

// find returns the answer.
func (f *fact) find(at *pathrule.Place) string {
	switch f.question {
	case secretLinked:
		return f.linkedSecret(*at)
	case workTreeTop:
		return cmp.Or(workTree(at, at.Real(f.dir)), f.dir)
	case secretTracked:
		return trackedSecret(at, f.dir, f.bases)
	case secretInSettings:
		return credentialSettings(at, f.dir)
	case secretBelow:
		dirs, all := []string{f.dir}, true
		if strings.ContainsAny(f.dir, "*?[") {
			dirs, all = at.Glob(f.dir)
		}
		if !all {
			return f.dir + " matches too many names to look for credentials among them"
		}
		for _, dir := range dirs {
			if why := f.secretIn(at, dir); why != "" {
				return why
			}
		}
		return ""
	}
	if f.names == nil {
		return gitRuns(at, f.dir)
	}
	return untrustedFile(at, f.dir, f.names)
}

// linkedSecret has parameters by value, so that facts with other questions do not escape to the heap.
func (f fact) linkedSecret(at pathrule.Place) string {
	listing := pathrule.Listing{Dir: f.dir, Deep: f.links.deep, Hidden: f.hidden, Bases: f.bases, Through: f.links.through, Regular: f.links.regular}
	return at.Harmful(listing, f.links.cwd, func(abs string, link bool) bool {
		return at.Secret(abs) != "" || secretSettings(&at, abs) != "" || (f.links.trees || f.links.through && link) && at.SecretBelow(abs, true) != ""
	})
}

// secretIn answers secretBelow for one directory.
func (f *fact) secretIn(at *pathrule.Place, dir string) string {
	if why := secretSettingsIn(at, dir, f.bases); why != "" {
		return why
	}
	if f.bases != nil {
		return at.SecretAmong(dir, f.hidden, f.bases)
	}
	return at.SecretBelow(dir, f.hidden)
}

// answer returns the answer to the question of f, which it finds once for each line.
func (w *walker) answer(f fact) string {
	same := func(g fact) bool {
		return g.question == f.question && g.dir == f.dir && g.hidden == f.hidden && g.links == f.links &&
			(g.names == nil) == (f.names == nil) && slices.Equal(g.names, f.names) && (g.bases == nil) == (f.bases == nil) && slices.Equal(g.bases, f.bases)
	}
	if i := slices.IndexFunc(w.facts, same); i >= 0 {
		return w.facts[i].answer
	}
	f.answer = f.find(&w.at)
	w.facts = append(w.facts, f)
	return f.answer
}

// factLifetime is how long facts are valid, so that the verdicts for one decision share them. A file that changes in
// this time could as well change between the decision and the run.
const factLifetime = 50 * time.Millisecond

// directoryRuns returns why the command, run in one of dirs, may run a program that an untrusted directory names, or
// "". names are the files to look for; nil means the settings of git.
func (w *walker) directoryRuns(c *command, dirs, names []string) string {
	if w.cwdLost || len(dirs) == 0 {
		return "it runs what the settings of its directory name, and the directory is unknown"
	}
	for _, d := range dirs {
		real := w.at.Real(d)
		switch {
		case real == "":
			return "it runs what the settings in " + d + " name, and the real path of " + d + " is unknown"
		case w.at.BelowAny(real, w.at.Trusted):
			continue
		case !w.at.BelowAny(real, []string{w.at.Cwd}) && !w.at.BelowAny(real, w.at.Dirs):
			return "it runs what the settings in " + d + " name, and " + d + " is not below a working directory"
		}
		c.checked = true
		if why := w.answer(fact{question: runsPrograms, dir: real, names: names}); why != "" {
			return why
		}
	}
	return ""
}

// denyChangedDirectories marks commands as not read-only if their directory was checked, and another command of the
// line may change it first: unpack an archive, or check out a branch.
func (w *walker) denyChangedDirectories() {
	for i := range w.cmds {
		c := &w.cmds[i]
		if !c.checked || c.Reason != "" {
			continue
		}
		for k := range w.cmds {
			if k != i && w.cmds[k].createsUnknown() {
				c.Reason = c.String() + ": another command may first change the files of its directory that name what it runs"
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
	named := c.edit || c.redirs // the names of the files are in the line
	return c.anyWord || c.links || c.effects&writing != 0 && !named
}

// untrustedFile returns why a file with one of the names, in dir or above it, may run a program, or "". After a colon
// a name may have texts, separated by "|": the file only counts if it contains one of them. Files directly in the
// home directory are the user's own.
func untrustedFile(at *pathrule.Place, dir string, names []string) string {
	for {
		head := strings.TrimSuffix(dir, "/") + "/"
		for _, name := range names {
			file, texts, _ := strings.Cut(name, ":")
			file = head + file
			if !at.Exists(file) || !mayContain(at, file, texts) {
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

// maxSettings is the size of the largest file that is searched for texts; a larger one counts as containing them.
const maxSettings = 1 << 20

// mayContain reports whether the file contains one of the texts, which "|" separates, or cannot be read.
func mayContain(at *pathrule.Place, file, texts string) bool {
	if texts == "" {
		return true
	}
	all, err := at.Contents(file, maxSettings)
	return err != nil || slices.ContainsFunc(strings.Split(texts, "|"), func(text string) bool { return strings.Contains(string(all), text) })
}

// tableDirectoryRuns is directoryRuns for the files and directories that a line of the tables names (spec.takes and
// spec.into). Without a subcommand git does not open a repository.
func (w *walker) tableDirectoryRuns(c *command, s *spec, options []given, noSubcommand bool) string {
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
	names := slices.DeleteFunc(slices.Clone(s.takes), func(name string) bool { return name == "git" })
	if len(names) < len(s.takes) && !noSubcommand {
		if why := w.directoryRuns(c, dirs, nil); why != "" {
			return why
		}
	}
	if len(names) == 0 {
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
