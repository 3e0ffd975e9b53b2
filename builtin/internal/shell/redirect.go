package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirects checks the redirections of a statement. first is the index of the statement's first command.
func (w *walker) redirects(s *syntax.Stmt, first int) {
	end := len(w.cmds) // before the commands in the words and texts of redirections
	for _, r := range s.Redirs {
		if changesInput(r) && w.in.input >= firstOrigin {
			w.origins[w.in.input-firstOrigin] = origin{} // bash opens the redirections in order, and the last one counts
		}
		w.redirect(r, first, end, s)
	}
}

// changesInput reports whether a redirection changes the standard input.
func changesInput(r *syntax.Redirect) bool {
	if r.N != nil {
		return strings.Trim(r.N.Value, "0") == ""
	}
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return true
	}
	return false
}

func (w *walker) redirect(r *syntax.Redirect, first, end int, s *syntax.Stmt) {
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		w.deny("a redirection that sets a variable")
		w.markVolatile([]string{strings.Trim(r.N.Value, "{}")})
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		w.document(r, first, end)
		return
	}
	// bash rejects a redirection to several words or none, and the word is unknown until then.
	a := anything(w.raw(r.Word))
	if fields := w.fields(r.Word); len(fields) == 1 {
		a = fields[0]
	}
	_, simple := s.Cmd.(*syntax.CallExpr)
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		// A number is a descriptor; anything else is a file, even after ">&".
		if a.known && strings.Trim(strings.TrimSuffix(a.text, "-"), "0123456789") == "" && a.text != "" {
			return
		}
	case syntax.RdrIn:
		if !simple || first >= end {
			first = len(w.cmds)
			w.addRedirect(r).effects = reading
		}
		if _, ok := r.Word.Parts[0].(*syntax.ProcSubst); ok && len(r.Word.Parts) == 1 { // a pipe, not a file
			if changesInput(r) {
				w.setInput(w.substSource)
			}
			return
		}
		w.input(a, first)
		return
	}
	if sink(a) {
		return
	}
	w.deny("the redirection to " + a.raw + " writes")
	if !simple || first >= end {
		first = len(w.cmds)
		w.addRedirect(r)
	}
	w.cmds[first].writesTo(a)
}

// addRedirect adds the redirection of a compound command, which belongs to no simple command, as a separate
// command, so that deny rules and the danger analysis see its target.
func (w *walker) addRedirect(r *syntax.Redirect) *command {
	c := w.addCommand()
	c.name, c.text = r.Op.String(), w.raw(r)
	return c
}

// writesTo records a redirection to a.
func (c *command) writesTo(a arg) {
	c.redirs = true
	c.targets = append(c.targets, operand{arg: a})
	c.effects |= writing
	if c.Reason == "" {
		c.Reason = "it writes to " + a.raw
	}
}

// document checks a here-document or a here-string.
func (w *walker) document(r *syntax.Redirect, first, end int) {
	var text arg
	switch {
	case r.Op == syntax.WordHdoc:
		text = w.word(r.Word)
	case r.Hdoc == nil:
		return
	default:
		lit, ok := soleLit(r.Hdoc)
		if ok && quotedDelimiter(r.Word) {
			text = literal(lit)
		} else {
			text = w.word(r.Hdoc)
		}
	}
	if changesInput(r) {
		w.setInput(w.originOf(text))
	}
	w.shellInput(first, end, text)
	w.shown(first)
}

func soleLit(word *syntax.Word) (string, bool) {
	if len(word.Parts) != 1 {
		return "", false
	}
	lit, ok := word.Parts[0].(*syntax.Lit)
	if !ok {
		return "", false
	}
	return lit.Value, true
}

// shellInput analyses the text as a script if one of the commands from first to before end is a shell, which may read
// it, and records the text for commands that read names from their input.
func (w *walker) shellInput(first, end int, text arg) {
	w.listed = append(w.listed, text)
	for i := first; i < end; i++ {
		switch name := w.cmds[i].name; {
		case name == "source", name == ".", slices.Contains(shells, name), slices.Contains(schedulers, name):
			w.inside(i, func() { w.script([]arg{text}) })
			return
		}
	}
}

// input checks a file that a command reads through "<".
func (w *walker) input(a arg, first int) {
	p := a.prefix()
	if strings.HasPrefix(p, "/dev/tcp") || strings.HasPrefix(p, "/dev/udp") {
		w.deny("a connection to another machine")
		w.alarm(RemoteCode, "it opens a connection to another machine")
		return
	}
	// A name with a known prefix in another directory is at worst any file, which is only read; other names may be
	// a connection below /dev.
	if !a.known && (strings.HasPrefix("/dev/", p) || strings.HasPrefix(p, "/dev/")) && !a.noSlash {
		w.deny("input from an unknown file")
		return
	}
	if first < len(w.cmds) {
		w.cmds[first].reads = append(w.cmds[first].reads, operand{arg: a})
	}
}

// shown records that a text that commands read contains a secret: in a compound command any of them may show it.
func (w *walker) shown(first int) {
	if w.secret == "" {
		return
	}
	for i := first; i < len(w.cmds); i++ {
		w.cmds[i].secret = w.secret
	}
}
