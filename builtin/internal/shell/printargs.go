package shell

import (
	"bytes"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call writes a simple command. The statement writes the text that follows its words.
func (p *printer) call(c *syntax.CallExpr) {
	for i, a := range c.Assigns {
		if i > 0 {
			p.str(" ")
		}
		p.assign(a)
	}
	for i, word := range c.Args {
		if i > 0 || len(c.Assigns) > 0 {
			p.str(" ")
		}
		if i == 0 {
			p.head(word)
		} else {
			p.word(word)
		}
	}
}

// extended reports whether a word begins with an extended pattern.
func extended(word *syntax.Word) bool {
	if len(word.Parts) == 0 {
		return false
	}
	_, ok := word.Parts[0].(*syntax.ExtGlob)
	return ok
}

// head writes the word that names a command. Bash must not read it as a keyword or an assignment, because the
// parser did not.
func (p *printer) head(word *syntax.Word) {
	if extended(word) { // "!(a)" is also "! (a)"
		p.refuse("a command whose name is a pattern")
	}
	start := len(p.buf)
	p.word(word)
	text := p.buf[start:]
	if keyword(string(text)) {
		p.refuse("a command whose name is a keyword; quote it")
	}
	i := 0
	for i < len(text) && (isWordByte(text[i]) || text[i] >= 0x80) {
		i++
	}
	if i > 0 && i < len(text) && text[0] > '9' && (text[i] == '[' || text[i] == '=' || text[i] == '+' && i+1 < len(text) && text[i+1] == '=') {
		p.refuse("a command whose name looks like an assignment; quote it")
	}
}

// keyword reports whether bash may give an unquoted word at the start of a command another meaning than the
// name of a command.
func keyword(word string) bool {
	switch word {
	case "!", "{", "}", "[[", "]]", "if", "then", "elif", "else", "fi", "while", "until", "for", "select", "in", "do", "done",
		"case", "esac", "function", "time", "coproc":
		return true
	}
	return false
}

// name writes the name of a variable.
func (p *printer) name(name string) {
	if !syntax.ValidName(name) {
		p.refuse("a variable with an invalid name")
	}
	p.str(name)
}

func (p *printer) function(c *syntax.FuncDecl) {
	if c.Name == nil || len(c.Names) > 0 || !functionName(c.Name.Value) {
		p.refuse("a function whose name is not plain")
		return
	}
	p.str(c.Name.Value)
	p.str("() ")
	p.stmt(c.Body)
}

// functionName reports whether bash can only read a name as the name of a function.
func functionName(name string) bool {
	return !keyword(name) && !reserved(name) && name != "" && name[0] > '9' && strings.Trim(name, "_-.:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

func (p *printer) declare(c *syntax.DeclClause) {
	if c.Variant.Value == "nameref" {
		p.refuse("nameref; write declare -n")
	}
	p.str(c.Variant.Value)
	for _, a := range c.Args {
		p.str(" ")
		if a.Name != nil {
			p.assign(a)
			continue
		}
		start := len(p.buf)
		first := p.word(a.Value)
		// bash may read it as an assignment to an array.
		if i := bytes.IndexByte(p.buf[start:], '['); i > 0 && first != '"' && first != '\'' {
			p.refuse("a declaration that looks like an element of an array; quote it")
		}
	}
}

func (p *printer) assign(a *syntax.Assign) {
	p.name(a.Name.Value)
	if a.Index != nil {
		p.index(a.Index)
	}
	if a.Append {
		p.str("+")
	}
	if !a.Naked {
		p.str("=")
	}
	switch {
	case a.Array != nil:
		p.str("(")
		for i, el := range a.Array.Elems {
			if i > 0 {
				p.str(" ")
			}
			p.element(el)
		}
		p.str(")")
		if at := int(a.Array.Rparen.Offset()) + 1; at < len(p.src) && strings.IndexByte(" \t\n;&|)", p.src[at]) < 0 {
			p.refuse("an array with text directly after it")
		}
	case a.Value != nil:
		if p.word(a.Value) == '(' {
			p.refuse("an assignment that looks like an array")
		}
	}
}

func (p *printer) element(el *syntax.ArrayElem) {
	if el.Index != nil {
		p.index(el.Index)
		p.str("=")
	}
	if el.Value == nil {
		return
	}
	if p.word(el.Value) == '[' && el.Index == nil {
		p.refuse("an array's element that begins with [; quote it")
	}
}

// redirect writes a redirection, and stores its here-document for the end of the line.
func (p *printer) redirect(r *syntax.Redirect) {
	if r.N != nil {
		n := r.N.Value
		name := strings.TrimSuffix(strings.TrimPrefix(n, "{"), "}")
		// Bash reads a number that is too large as a word.
		if !(len(n) <= 4 && strings.Trim(n, "0123456789") == "") && !(n == "{"+name+"}" && syntax.ValidName(name)) {
			p.refuse("a redirection of a descriptor that is not a small number")
		}
		p.str(n)
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		p.printDocument(r)
		return
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.DplOut, syntax.RdrClob,
		syntax.WordHdoc, syntax.RdrAll, syntax.AppAll:
	default:
		p.refuse("a redirection that is not supported")
	}
	op := r.Op.String()
	if r.Op == syntax.DplIn || r.Op == syntax.DplOut {
		op = p.duplicate(r).String()
	}
	p.str(op)
	// Bash reads a number or {name} directly before a redirection as a part of it.
	end := int(r.Word.End().Offset())
	if lit, ok := soleLit(r.Word); ok && lit != "" && (lit[0] == '{' || strings.Trim(lit, "0123456789") == "") && end < len(p.src) && (p.src[end] == '<' || p.src[end] == '>') {
		p.refuse("a redirection without a file; put a blank after its word")
	}
	_, process := r.Word.Parts[0].(*syntax.ProcSubst)
	if process || r.Word.Pos().Offset() > r.OpPos.Offset()+uint(len(op)) {
		p.str(" ")
	}
	p.word(r.Word)
}

// duplicated reports whether a word names a descriptor: a number, "-", or both.
func duplicated(word *syntax.Word) bool {
	lit, ok := soleLit(word)
	return ok && lit != "" && len(lit) < 6 && strings.Trim(strings.TrimSuffix(lit, "-"), "0123456789") == ""
}

// duplicate returns the operator for a redirection to a descriptor. After ">&" bash expands the name of a file
// twice, reads a leading "-" as a separate word and a trailing "-" as closing a descriptor: ">& file" is "&>
// file".
func (p *printer) duplicate(r *syntax.Redirect) syntax.RedirOperator {
	if duplicated(r.Word) {
		return r.Op
	}
	if lit, ok := soleLit(r.Word); r.Op == syntax.DplIn || r.N != nil || !ok || strings.Trim(lit, "-") != lit || lit == "" || strings.ContainsFunc(lit, func(c rune) bool { return c >= 0x80 || !isWordByte(byte(c)) && !strings.ContainsRune("./~-+:@%,", c) }) {
		p.refuse("a redirection to a descriptor that is not a number; write &> for a file")
	}
	return syntax.RdrAll
}
