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

// listingCommands are commands that print names, sizes and times of files, but not their content.
var listingCommands = strings.Fields("ls dir vdir exa eza lsd stat find gfind fd fdfind test [ realpath readlink dirname basename tree du df namei lsattr getfacl cd pushd locate")

// Reads reports whether a deny or ask rule for files covers a file that the command is known to read: an
// operand, a redirection or a file in a tree, by name, by wildcards and through links. For names that are only
// known at run time see [Analysis.MayRead]. Commands that cannot be parsed count as covered; an invalid pattern
// is an error.
func (a *Analysis) Reads(at pathrule.Place, pattern string) (bool, error) {
	m, err := newFileRule(at, pattern)
	if err != nil || a.err != nil {
		return true, err
	}
	unknown := false
	for i := range a.cmds {
		c := &a.cmds[i]
		if slices.Contains(listingCommands, c.name) && !c.takesList() {
			continue
		}
		if m.reads(a, c) {
			return true, nil
		}
		unknown = unknown || slices.ContainsFunc(c.reads, func(op operand) bool { return strings.Contains(op.text, hole) }) || c.effects&unseen != 0
	}
	// A command that gets names from other commands may get any word of the line.
	if !unknown {
		return false, nil
	}
	for i := range a.cmds {
		if m.names(&a.cmds[i]) {
			return true, nil
		}
	}
	here := &command{args: a.listed}
	if at.Cwd != "" {
		here.cwds = []string{at.Cwd}
	}
	return m.names(here), nil
}

// MayRead reports whether a deny or ask rule for files may cover a file that a command of the line reads by a
// name that is only known at run time, or a tracked file whose changes it shows without naming it.
func (a *Analysis) MayRead(at pathrule.Place, pattern string) bool {
	if a.err != nil {
		return true
	}
	m, _ := newFileRule(at, pattern) // [Analysis.Reads] reports the error
	return slices.ContainsFunc(a.cmds, func(c command) bool {
		return !(slices.Contains(listingCommands, c.name) && !c.takesList()) && m.mayRead(a, &c)
	})
}

// unseen contains the effects of commands whose words have an unknown meaning.
const unseen = unknown | executing

// Writes is [Analysis.Reads] for files that the command writes, creates and deletes.
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
		for _, op := range append(c.targets[:len(c.targets):len(c.targets)], c.copyTargets()...) {
			if m.operand(c, &op.arg) || op.delete && m.coversBelow(c, &op.arg) {
				return true, nil
			}
		}
		if slices.ContainsFunc(c.touched(), m.covers) {
			return true, nil
		}
	}
	return false, nil
}

func (m *fileRule) reads(a *Analysis, c *command) bool {
	roots := m.roots(c)
	for i := range c.reads {
		op := &c.reads[i].arg
		if m.operand(c, op) || c.copiesTrees() && m.coversBelow(c, op) {
			return true
		}
		reached := func(word arg) bool {
			word.wild = word.wild || !op.field && strings.ContainsAny(word.text, "*?[") // $x expands the wildcards in x
			return m.operand(c, &word)
		}
		if op.open() && slices.ContainsFunc(a.reach(c, op).words, reached) {
			return true
		}
	}
	// A moved file is read by its new name.
	away := func(op operand) bool {
		return c.name == "mv" && op.delete && (m.operand(c, &op.arg) || m.coversBelow(c, &op.arg))
	}
	return slices.ContainsFunc(c.targets, away) || slices.ContainsFunc(roots, func(root arg) bool { return m.coversBelow(c, &root) })
}

// mayRead reports whether the rule covers a file whose name the command may get, or a file in a tree that is
// too large to check.
func (m *fileRule) mayRead(a *Analysis, c *command) bool {
	if m.showsTracked(c) {
		return true
	}
	tree := c.recursive() || c.copiesTrees()
	for i := range c.reads {
		op := &c.reads[i].arg
		if !op.open() && !c.inUnknownDir(op) {
			continue
		}
		r := a.reach(c, op)
		for _, s := range r.spots {
			if s.words && s.dir != "" && slices.ContainsFunc(c.cwds, func(cwd string) bool {
				return m.at.Harmful(pathrule.Listing{Dir: s.dir, Deep: s.deep, Hidden: s.hidden, Bases: s.bases, Through: s.through, Regular: s.regular}, cwd, func(abs string, _ bool) bool { return m.covers(abs) }) != ""
			}) {
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
		if tree && slices.ContainsFunc(r.words, func(word arg) bool { return m.coversBelow(c, &word) }) {
			return true
		}
	}
	return slices.ContainsFunc(m.roots(c), func(root arg) bool {
		return slices.ContainsFunc(c.paths(root), func(dir string) bool {
			_, may := m.search(spot{dir: dir, deep: true, bases: c.includeGlobs()})
			return may
		})
	})
}

// roots returns the directories that the command reads with everything below them. git grep only reads files
// that git knows, so a secret that was never added does not count.
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
		case words > 0: // a revision, or a pattern
			return []arg{literal(".")}
		}
		words++
	}
	if len(roots) == 0 {
		roots = append(roots, literal("."))
	}
	return roots
}

// operand reports whether the rule covers a path of an operand.
func (m *fileRule) operand(c *command, a *arg) bool {
	switch {
	case a.text == "":
		return false
	case !a.wild && !strings.Contains(a.text, hole):
		return slices.ContainsFunc(c.paths(*a), m.covers)
	}
	for _, glob := range c.globs(a) {
		dir := path.Dir(glob)
		entries, err := m.at.Names(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(dir, "*?[") && !strings.Contains(a.text, hole) && c.Reason == "": // then it is literal
		case strings.ContainsAny(dir, "*?["), err == nil && len(entries) > 0 && !strings.Contains(a.text, hole):
			tree := c.Reason != "" || c.recursive() || c.copiesTrees()
			names, all := m.at.Glob(glob)
			if !all || slices.ContainsFunc(names, func(name string) bool { return m.covers(name) && (tree || !m.isDirectory(name)) }) {
				return true
			}
		case a.text != hole && !strings.HasPrefix(a.text, hole):
			// The directory's content is unknown, or which of its files is read.
			if ok, err := m.at.MatchTree(m.pattern, dir); ok || err != nil {
				return true
			}
		}
	}
	return false
}

// isDirectory reports whether the path is a directory, which commands that read files cannot read.
func (m *fileRule) isDirectory(abs string) bool {
	_, err := m.at.Names(abs)
	return err == nil
}

// names reports whether a word of the command is the name of a file that the rule covers.
func (m *fileRule) names(c *command) bool {
	for _, a := range c.args {
		if !a.known && !a.wild {
			continue
		}
		for field := range strings.FieldsSeq(a.text) {
			if _, value, ok := strings.Cut(field, "="); ok {
				field = value
			}
			word := literal(field)
			word.wild = strings.ContainsAny(field, "*?[")
			if field != "" && (strings.ContainsAny(field, "./") || slices.Contains(listingCommands, c.name)) && m.operand(c, &word) {
				return true
			}
		}
	}
	return false
}
