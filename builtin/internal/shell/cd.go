package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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
	// Every later path is checked for all of the directories, whose number doubles with each cd in "cd a; cd b; …".
	if len(w.cwds) > 8 {
		w.loseCwd()
	}
}

// loseCwd records that the current directory is unknown.
func (w *walker) loseCwd() { w.cwds, w.cwdLost = nil, true }

// resolveAll returns the paths of name relative to dirs.
func resolveAll(dirs []string, name string) []string {
	var out []string
	for _, d := range dirs {
		if p := resolve(d, name); !slices.Contains(out, p) {
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

// cdOperand returns the operand of a statement that is a plain cd to a literal directory: in "cd d && rm x" the path
// can only be d/x, because rm does not run if cd fails.
func cdOperand(s *syntax.Stmt) (name string, ok bool) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) != 2 || len(c.Assigns) > 0 || len(s.Redirs) > 0 || s.Negated || c.Args[0].Lit() != "cd" {
		return "", false
	}
	name = c.Args[1].Lit()
	return name, name != "" && !strings.ContainsAny(name, `\*?[{~-`)
}

// cd records that the current directory may have changed to a.
func (w *walker) cd(a arg) {
	if !a.known || a.text == "-" || w.cwdLost {
		w.loseCwd()
		return
	}
	w.addCwds(resolveAll(w.cwds, a.text))
}
