package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirects checks the redirections of the statement s, which are walked after the commands of s. first is the index of
// the first of these commands.
func (w *walker) redirects(s *syntax.Stmt, first int) {
	end := len(w.cmds) // before the commands in the words and documents of redirections
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

// redirect checks a redirection of the statement s, whose commands are those from first to before end.
func (w *walker) redirect(r *syntax.Redirect, first, end int, s *syntax.Stmt) {
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		w.deny("a redirection that sets a variable")
		w.markVolatile([]string{strings.Trim(r.N.Value, "{}")})
	}
	if r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc || r.Op == syntax.WordHdoc {
		w.document(r, first, end)
		return
	}
	a := anything(w.raw(r.Word)) // bash rejects several words and none, but only when the line runs
	if fields := w.fields(r.Word); len(fields) == 1 {
		a = fields[0]
	}
	_, simple := s.Cmd.(*syntax.CallExpr)
	hasOwner := simple && first < end // the redirection belongs to the command at first
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		if a.known && isDigits(strings.TrimSuffix(a.text, "-")) && a.text != "" { // a descriptor; other words are files
			return
		}
	case syntax.RdrIn:
		if !hasOwner {
			first = len(w.cmds)
			w.addRedirect(r).effects = reading
		}
		if _, ok := r.Word.Parts[0].(*syntax.ProcSubst); ok && len(r.Word.Parts) == 1 { // a pipe, not a file
			if changesInput(r) {
				w.setInput(w.substSource)
			}
			return
		}
		w.inputFile(a, first)
		return
	}
	if sink(a) {
		return
	}
	w.deny("the redirection to " + a.raw + " writes")
	if !hasOwner {
		first = len(w.cmds)
		w.addRedirect(r)
	}
	w.cmds[first].writesTo(a)
}

// addRedirect adds a redirection that belongs to no simple command as a separate command, so that deny rules and the
// danger analysis see its target.
func (w *walker) addRedirect(r *syntax.Redirect) *command {
	c := w.addCommand()
	c.name, c.text = r.Op.String(), w.raw(r)
	return c
}

// writesTo records that a redirection of the command writes to a.
func (c *command) writesTo(a arg) {
	c.redirs = true
	c.targets = append(c.targets, operand{arg: a})
	c.effects |= writing
	if c.Reason == "" {
		c.Reason = "it writes to " + a.raw
	}
}

// document checks a here-document or a here-string of such a statement.
func (w *walker) document(r *syntax.Redirect, first, end int) {
	var text arg
	if r.Op == syntax.WordHdoc {
		text = w.word(r.Word)
	} else if r.Hdoc == nil {
		return
	} else if lit, ok := soleLit(r.Hdoc); ok && quotedDelimiter(r.Word) {
		text = literal(lit)
	} else {
		text = w.word(r.Hdoc)
	}
	if changesInput(r) {
		w.setInput(w.originOf(text))
	}
	w.shellInput(first, end, text)
	w.passSecret(first)
}

// soleLit returns the text of a word that consists of one unquoted literal.
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

// inputFile checks a file that the command at index first reads through "<".
func (w *walker) inputFile(a arg, first int) {
	prefix := a.prefix()
	if strings.HasPrefix(prefix, "/dev/tcp") || strings.HasPrefix(prefix, "/dev/udp") {
		w.deny("a connection to another machine")
		w.alarm(RemoteCode, "it opens a connection to another machine")
		return
	}
	mayBeDevice := strings.HasPrefix("/dev/", prefix) || strings.HasPrefix(prefix, "/dev/")
	if !a.known && mayBeDevice && !a.noSlash { // a device may be a connection
		w.deny("input from an unknown file")
		return
	}
	if first < len(w.cmds) {
		w.cmds[first].reads = append(w.cmds[first].reads, operand{arg: a})
	}
}

// passSecret gives the secret in a here-document to all commands since first, because any of them may read and show it.
func (w *walker) passSecret(first int) {
	if w.secret == "" {
		return
	}
	for i := first; i < len(w.cmds); i++ {
		w.cmds[i].secret = w.secret
	}
}
