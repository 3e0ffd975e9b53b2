package shell

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// Rules for files also apply to the files that commands are known to read and write.

// listers are commands that print names, sizes and times of files, but not their content.
var listers = strings.Fields("ls dir vdir exa eza lsd stat find gfind fd fdfind test [ realpath readlink dirname basename tree du df namei lsattr getfacl cd pushd locate")

// onlyLists reports whether the command is a lister. With a list of files its errors show lines of the list.
func (c *command) onlyLists() bool { return slices.Contains(listers, c.name) && !c.takesList() }

// Reads reports whether a deny or ask rule for files covers a file that a command of the line is known to read: an
// operand, a redirection or a file in a tree, by name, by wildcards and through links. For names that are only
// known at run time see [Analysis.MayRead]. A line that cannot be parsed counts as covered; an invalid pattern
// is an error.
func (a *Analysis) Reads(at pathrule.Place, pattern string) (bool, error) {
	m, err := newFileRule(at, pattern)
	if err != nil || a.err != nil {
		return true, err
	}
	anyWord := false // a command may read a file that any word of the line names
	for i := range a.cmds {
		c := &a.cmds[i]
		if c.onlyLists() {
			continue
		}
		if m.coversRead(a, c) {
			return true, nil
		}
		anyWord = anyWord || slices.ContainsFunc(c.reads, func(op operand) bool { return strings.Contains(op.text, hole) }) || c.effects&unclearWords != 0
	}
	if !anyWord {
		return false, nil
	}
	for i := range a.cmds {
		if m.coversWord(&a.cmds[i]) {
			return true, nil
		}
	}
	listed := &command{args: a.listed}
	if at.Cwd != "" {
		listed.cwds = []string{at.Cwd}
	}
	return m.coversWord(listed), nil
}

// MayRead reports whether a deny or ask rule for files may cover a file that a command of the line reads by a
// name that is only known at run time, or a tracked file whose changes it shows without naming it.
func (a *Analysis) MayRead(at pathrule.Place, pattern string) bool {
	if a.err != nil {
		return true
	}
	m, _ := newFileRule(at, pattern) // [Analysis.Reads] reports the error
	return slices.ContainsFunc(a.cmds, func(c command) bool {
		return !c.onlyLists() && m.mayCover(a, &c)
	})
}

// unclearWords are the effects of commands whose words may mean anything.
const unclearWords = unknown | executing

// Writes is [Analysis.Reads] for files that commands write, create and delete.
func (a *Analysis) Writes(at pathrule.Place, pattern string) (bool, error) {
	m, err := newFileRule(at, pattern)
	if err != nil || a.err != nil {
		return true, err
	}
	for i := range a.cmds {
		c := &a.cmds[i]
		if c.Reason == "" {
			continue
		}
		for _, op := range slices.Concat(c.targets, c.copyTargets()) {
			if m.coversOperand(c, &op.arg) || op.delete && m.coversBelow(c, &op.arg) {
				return true, nil
			}
		}
		if slices.ContainsFunc(c.touched(), m.covers) {
			return true, nil
		}
	}
	return false, nil
}

// MayWrite reports whether a deny or ask rule for files may cover a file that a command of the line writes, creates or
// deletes under a name that is only known at run time. A name in an unknown directory may be any new file.
func (a *Analysis) MayWrite(at pathrule.Place, pattern string) bool {
	if a.err != nil {
		return true
	}
	m, _ := newFileRule(at, pattern) // [Analysis.Writes] reports the error
	return slices.ContainsFunc(a.cmds, func(c command) bool {
		if c.Reason == "" {
			return false
		}
		mayBe := func(word *arg, deletes bool) bool {
			return (word.open() || c.inUnknownDir(word)) &&
				(m.mayBeNamed(a, &c, word, c.changesTrees()) || m.mayBeChanged(a.reach(&c, word), &c, !deletes))
		}
		return c.mayChangeWords() && slices.ContainsFunc(c.args[1:], func(word arg) bool { return mayBe(&word, c.name == "rm") }) ||
			slices.ContainsFunc(c.targets, func(op operand) bool { return mayBe(&op.arg, op.delete) })
	})
}

// changesTrees reports whether the command may change what is below the directories that it names.
func (c *command) changesTrees() bool {
	return c.name == "mv" || c.recursive() || slices.ContainsFunc(c.args, func(a arg) bool {
		return a.text == "--recursive" || strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--") && strings.ContainsAny(a.text, "rR"+hole)
	})
}

// mayBeChanged reports whether the rule covers one of the known names in r or, with mayCreate, a new file in an unknown
// directory.
func (m *fileRule) mayBeChanged(r reach, c *command, mayCreate bool) bool {
	return slices.ContainsFunc(r.words, func(word arg) bool { return m.coversOperand(c, &word) }) ||
		mayCreate && slices.ContainsFunc(r.spots, func(s spot) bool {
			return s.dir == "" && !s.extra && slices.ContainsFunc(m.globs, func(g string) bool { return endsAlike(path.Base(g), s.bases) })
		})
}

// mayChangeWords reports whether c is known to change files, but not which of its words are files: in rm "$f" the word may
// also be an option.
func (c *command) mayChangeWords() bool {
	f := families()[c.name]
	inPlace := slices.ContainsFunc(c.args, func(a arg) bool { return strings.HasPrefix(a.text, "-i") || strings.HasPrefix(a.text, "--in-place") })
	if f == nil || len(c.args) == 0 || c.effects&unknown == 0 || c.maybeOption && !inPlace {
		return false
	}
	return slices.ContainsFunc(f.lines, func(s *spec) bool {
		return s.edit || slices.ContainsFunc(s.roles, func(r role) bool { return r.kind == 'w' || r.kind == 'd' })
	})
}

// coversRead reports whether the rule covers a file that the command is known to read.
func (m *fileRule) coversRead(a *Analysis, c *command) bool {
	for i := range c.reads {
		op := &c.reads[i].arg
		if m.coversOperand(c, op) || c.copiesTrees() && m.coversBelow(c, op) {
			return true
		}
		reached := func(word arg) bool {
			word.wild = word.wild || !op.field && strings.ContainsAny(word.text, "*?[") // $x expands the wildcards in x
			return m.coversOperand(c, &word)
		}
		if op.open() && slices.ContainsFunc(a.reach(c, op).words, reached) {
			return true
		}
	}
	// mv counts as reading, because its new name for a file is no longer covered.
	moved := func(op operand) bool {
		return c.name == "mv" && op.delete && (m.coversOperand(c, &op.arg) || m.coversBelow(c, &op.arg))
	}
	return slices.ContainsFunc(c.targets, moved) || slices.ContainsFunc(m.roots(c), func(root arg) bool { return m.coversBelow(c, &root) })
}

// mayCover reports whether the rule may cover a file that the command reads: one whose name is only known at run time,
// or one in a tree that is too large to check.
func (m *fileRule) mayCover(a *Analysis, c *command) bool {
	if m.coversUnnamed(c) {
		return true
	}
	tree := c.recursive() || c.copiesTrees()
	if slices.ContainsFunc(c.reads, func(op operand) bool { return m.mayBeNamed(a, c, &op.arg, tree) }) {
		return true
	}
	return slices.ContainsFunc(m.roots(c), func(root arg) bool {
		return slices.ContainsFunc(c.paths(root), func(dir string) bool {
			_, may := m.search(spot{dir: dir, deep: true, bases: c.includeGlobs()})
			return may
		})
	})
}

// mayBeNamed reports whether an operand whose names are only known at run time may name a file that the rule covers. If
// tree is set, the files below count, too.
func (m *fileRule) mayBeNamed(a *Analysis, c *command, op *arg, tree bool) bool {
	if !op.open() && !c.inUnknownDir(op) {
		return false
	}
	r := a.reach(c, op)
	for _, s := range r.spots {
		listing := pathrule.Listing{Dir: s.dir, Deep: s.deep, Hidden: s.hidden, Bases: s.bases, Through: s.through, Regular: s.regular}
		coversWordOfName := func(cwd string) bool {
			return m.at.Harmful(listing, cwd, func(abs string, _ bool) bool { return m.covers(abs) }) != ""
		}
		if s.words && s.dir != "" && slices.ContainsFunc(c.cwds, coversWordOfName) {
			return true
		}
		if s.extra {
			continue
		}
		if tree {
			s.bases, s.deep = c.includeGlobs(), true
		}
		if _, may := m.search(s); may {
			return true
		}
	}
	return tree && slices.ContainsFunc(r.words, func(word arg) bool { return m.coversBelow(c, &word) })
}

// roots returns the directories that the command reads with everything below them. A git grep that names files or
// directories only reads these, and otherwise the current directory.
func (m *fileRule) roots(c *command) []arg {
	if c.name != "git" || len(c.args) < 2 || c.args[1].text != "grep" || c.recursive() {
		roots, _ := c.roots()
		return roots
	}
	var roots []arg
	words := 0
	for _, a := range c.args[2:] {
		switch {
		case a.known && strings.HasPrefix(a.text, "-"):
			continue
		case a.known && slices.ContainsFunc(c.paths(a), m.at.Exists):
			roots = append(roots, a)
		case words > 0: // a revision, or a pattern for paths; the first word is the text to find
			return []arg{literal(".")}
		}
		words++
	}
	if len(roots) == 0 {
		roots = append(roots, literal("."))
	}
	return roots
}

// coversOperand reports whether the rule covers a file that an operand may name.
func (m *fileRule) coversOperand(c *command, a *arg) bool {
	switch {
	case a.text == "":
		return false
	case !a.wild && !strings.Contains(a.text, hole):
		if len(c.cwds) == 0 && !path.IsAbs(a.text) && m.covers(m.at.Abs(a.text)) { // the directory is unknown, and may be the first one
			return true
		}
		return slices.ContainsFunc(c.paths(*a), m.covers)
	}
	for _, glob := range c.globs(a) {
		dir := path.Dir(glob)
		entries, err := m.at.Names(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(dir, "*?[") && !strings.Contains(a.text, hole) && c.Reason == "": // without a match bash keeps the pattern, which names no file to read
		case strings.ContainsAny(dir, "*?["), err == nil && len(entries) > 0 && !strings.Contains(a.text, hole):
			tree := c.Reason != "" || c.recursive() || c.copiesTrees()
			names, all := m.at.Glob(glob)
			if !all || slices.ContainsFunc(names, func(name string) bool { return m.covers(name) && (tree || !m.isDirectory(name)) }) {
				return true
			}
		case a.text != hole && !strings.HasPrefix(a.text, hole):
			// The directory cannot be listed, or any of its files may be meant.
			if ok, err := m.at.MatchTree(m.pattern, dir); ok || err != nil {
				return true
			}
		}
	}
	return false
}

// isDirectory reports whether the path is a directory. Commands that read files cannot read directories.
func (m *fileRule) isDirectory(abs string) bool {
	_, err := m.at.Names(abs)
	return err == nil
}

// coversWord reports whether a word of the command is the name of a file that the rule covers.
func (m *fileRule) coversWord(c *command) bool {
	for _, a := range c.args {
		if !a.known && !a.wild {
			continue
		}
		for name := range strings.FieldsSeq(a.text) {
			if _, value, ok := strings.Cut(name, "="); ok {
				name = value
			}
			word := literal(name)
			word.wild = strings.ContainsAny(name, "*?[")
			// A word without a dot or a slash is more likely to be a subcommand or a pattern, unless ls or find lists it.
			if (strings.ContainsAny(name, "./") || slices.Contains(listers, c.name)) && m.coversOperand(c, &word) {
				return true
			}
		}
	}
	return false
}
