package shell

import (
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// EditsInside reports whether the command, apart from read-only parts, only creates, moves, copies, changes and
// removes files below the working directories of at, by name and through symbolic links. The modes accept-edits
// and dont-ask allow that without a rule. The working directories themselves must not be removed.
func (a *Analysis) EditsInside(at pathrule.Place) bool {
	if a.err != nil || a.uncoverable || a.background {
		return false
	}
	edits := false
	var copied []string
	for i := range a.cmds {
		c := &a.cmds[i]
		if c.Reason == "" {
			continue
		}
		if !c.edit || c.redirs || c.in.wrapped || c.in.dynamic != "" || len(c.targets) == 0 || len(c.cwds) == 0 {
			return false
		}
		for _, op := range slices.Concat(c.targets, c.reads, c.copyTargets()) {
			if !operandInside(c, op, at, copied) {
				return false
			}
		}
		if c.links {
			for _, t := range c.targets {
				copied = append(copied, c.paths(t.arg)...)
			}
		}
		edits = true
	}
	return edits
}

// operandInside reports whether an operand is below a working directory for every possible current directory, and not
// below a path in copied: a file that an earlier command of the line copies may be a link.
func operandInside(c *command, op operand, at pathrule.Place, copied []string) bool {
	if !op.known || op.text == "" {
		return false
	}
	names := []string{op.text}
	if !path.IsAbs(op.text) {
		names = nil
		for _, d := range c.cwds {
			names = append(names, d+"/"+op.text)
		}
	}
	for _, name := range names {
		clean := path.Clean(name)
		if !at.Inside(name) || !at.Inside(clean) {
			return false
		}
		real := strings.TrimSuffix(at.Real(name), "/")
		if slices.ContainsFunc(at.Dirs, func(dir string) bool { return at.Real(dir) == real }) ||
			slices.ContainsFunc(copied, func(name string) bool { return clean != name && pathrule.Below(clean, name) }) {
			return false
		}
	}
	return len(names) > 0
}
