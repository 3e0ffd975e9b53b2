package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The current directory is one of the directories that previous cd commands may have changed to, or unknown.

// addCwds adds possible current directories of the next command.
func (w *walker) addCwds(dirs []string) {
	if w.cwdLost {
		return
	}
	for _, d := range dirs {
		if !slices.Contains(w.cwds, d) {
			w.cwds = append(slices.Clone(w.cwds), d)
		}
	}
	// Every later path is checked for all of them, and "cd a; cd b; …" would double their number each time, so
	// beyond a few the directory counts as unknown.
	if len(w.cwds) > 8 {
		w.cwds, w.cwdLost = nil, true
	}
}

func (w *walker) resolveAll(dirs []string, to string) []string {
	var out []string
	for _, d := range dirs {
		if p := resolve(d, to); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func resolve(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Clean(dir + "/" + name)
}

// cdOf returns the directory of a statement that is a plain cd to a literal directory: in "cd d && rm x" the
// path can only be d/x, because rm does not run if cd fails.
func cdOf(s *syntax.Stmt) (string, bool) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) != 2 || len(c.Assigns) > 0 || len(s.Redirs) > 0 || s.Negated || c.Args[0].Lit() != "cd" {
		return "", false
	}
	to := c.Args[1].Lit()
	return to, to != "" && !strings.ContainsAny(to, `\*?[{~-`)
}

// cd records that the current directory may have changed to a.
func (w *walker) cd(a arg) {
	if !a.known || a.text == "-" || w.cwdLost {
		w.cwds, w.cwdLost = nil, true
		return
	}
	w.addCwds(w.resolveAll(w.cwds, a.text))
}
