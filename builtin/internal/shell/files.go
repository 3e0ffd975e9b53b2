package shell

import (
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// Rules for files hold for what a command is seen to read and to write, not only
// for the tools that they name.

// namers are commands that tell names, sizes and times of files, and nothing of what is
// in them.
var namers = strings.Fields("ls dir vdir exa eza lsd stat find gfind fd fdfind test [ realpath readlink dirname basename tree du df namei lsattr getfacl cd pushd locate")

// maxTree is how many names below a directory are compared with a rule before it
// counts as one that covers some.
const maxTree = 5000

// Reads reports whether a deny or ask rule for files covers one that the command is
// seen to read: an operand, a redirection or what lies in a tree, by name, by wildcards
// and through links. A name that is put together while the command runs is not seen.
// What cannot be read may be meant, and a pattern that cannot be read is an error.
func (a *Analysis) Reads(at pathrule.Place, pattern string) (bool, error) {
	if _, err := at.MatchAny(pattern, "/"); err != nil {
		return true, err
	}
	if a.err != nil {
		return true, nil
	}
	m := fileRule{at, pattern}
	unknown := false
	for i := range a.cmds {
		c := &a.cmds[i]
		if slices.Contains(namers, c.name) && !c.takesList() {
			continue
		}
		if m.reads(c) {
			return true, nil
		}
		unknown = unknown || slices.ContainsFunc(c.reads, func(op operand) bool { return strings.Contains(op.text, hole) }) || c.effects&unseen != 0
	}
	// Who reads by names that others find may be given any word of the line.
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

// unseen are the effects of commands of which nobody knows what their words are.
const unseen = unknown | executing

// Writes is [Analysis.Reads] for what the command is seen to write, create and delete.
func (a *Analysis) Writes(at pathrule.Place, pattern string) (bool, error) {
	if _, err := at.MatchAny(pattern, "/"); err != nil {
		return true, err
	}
	if a.err != nil {
		return true, nil
	}
	m := fileRule{at, pattern}
	for i := range a.cmds {
		c := &a.cmds[i]
		if c.Reason == "" {
			continue
		}
		for _, op := range append(c.targets[:len(c.targets):len(c.targets)], c.landings()...) {
			if m.operand(c, &op.arg) || op.delete && m.below(c, &op.arg) {
				return true, nil
			}
		}
		if slices.ContainsFunc(c.touched(), m.covers) {
			return true, nil
		}
	}
	return false, nil
}

// A fileRule is the pattern of a deny or ask rule, and the place that it is for.
type fileRule struct {
	at      pathrule.Place
	pattern string
}

func (m fileRule) covers(abs string) bool {
	ok, err := m.at.MatchAny(m.pattern, abs)
	return ok || err != nil
}

func (m fileRule) reads(c *command) bool {
	roots, _ := c.trees()
	copies := slices.Contains([]string{"cp", "rsync", "tar", "bsdtar", "zip", "scp"}, c.name)
	for i := range c.reads {
		if m.operand(c, &c.reads[i].arg) || copies && m.below(c, &c.reads[i].arg) {
			return true
		}
	}
	return slices.ContainsFunc(roots, func(root arg) bool { return m.below(c, &root) })
}

// operand reports whether the rule covers a path that an operand stands for.
func (m fileRule) operand(c *command, a *arg) bool {
	switch {
	case a.text == "":
		return false
	case !a.wild && !strings.Contains(a.text, hole):
		return slices.ContainsFunc(c.paths(*a), m.covers)
	}
	for _, glob := range c.globs(a) {
		dir := path.Dir(glob)
		names, err := m.at.Names(dir)
		switch {
		case strings.ContainsAny(dir, "*?["), err == nil && len(names) > 0 && !strings.Contains(a.text, hole):
			if slices.ContainsFunc(m.at.Glob(glob), m.covers) {
				return true
			}
		case a.text != hole && !strings.HasPrefix(a.text, hole):
			// What is there is not known, or which of it.
			if ok, err := m.at.MatchTree(m.pattern, dir); ok || err != nil {
				return true
			}
		}
	}
	return false
}

// below reports whether the rule covers something in the tree that an operand is.
func (m fileRule) below(c *command, a *arg) bool {
	return slices.ContainsFunc(c.paths(*a), m.tree)
}

func (m fileRule) tree(root string) bool {
	if ok, err := m.at.MatchTree(m.pattern, root); err != nil || !ok {
		return err != nil
	}
	dirs, seen := []string{root}, 0
	for len(dirs) > 0 {
		dir := dirs[0]
		dirs = dirs[1:]
		names, err := m.at.Names(dir)
		if err != nil && dir == root {
			return true // what is there is not known
		}
		for _, name := range names {
			name = path.Join(dir, name)
			if seen++; seen > maxTree || m.covers(name) {
				return true
			}
			dirs = append(dirs, name)
		}
	}
	return false
}

// names reports whether a word of the command names a file that the rule covers.
func (m fileRule) names(c *command) bool {
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
			if field != "" && (strings.ContainsAny(field, "./") || slices.Contains(namers, c.name)) && m.operand(c, &word) {
				return true
			}
		}
	}
	return false
}
