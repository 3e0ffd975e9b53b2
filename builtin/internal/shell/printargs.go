package shell

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// call writes a simple command without its redirections.
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

// head writes the word that names a command. Bash must not read it as a keyword or an assignment, because the
// parser did not.
func (p *printer) head(word *syntax.Word) {
	if len(word.Parts) > 0 {
		if _, ok := word.Parts[0].(*syntax.ExtGlob); ok { // "!(a)" is also "! (a)"
			p.refuse("a command whose name is a pattern")
		}
	}
	start := len(p.buf)
	p.word(word)
	text := p.buf[start:]
	if keyword(string(text)) {
		p.refuse("a command whose name is a keyword; quote it")
	}
	rest := text // after what may be the name of a variable
	for len(rest) > 0 && (isWordByte(rest[0]) || rest[0] >= utf8.RuneSelf) {
		rest = rest[1:]
	}
	isName := len(rest) < len(text) && text[0] > '9' // a number is not a name
	if isName && (bytes.HasPrefix(rest, []byte("[")) || bytes.HasPrefix(rest, []byte("=")) || bytes.HasPrefix(rest, []byte("+="))) {
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
		quoted := strings.IndexByte(`"'`, p.word(a.Value)) >= 0
		if !quoted && bytes.IndexByte(p.buf[start:], '[') > 0 {
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
		if end := int(a.Array.Rparen.Offset()) + 1; end < len(p.src) && strings.IndexByte(" \t\n;&|)", p.src[end]) < 0 {
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
		number := r.N.Value
		name := strings.TrimSuffix(strings.TrimPrefix(number, "{"), "}")
		variable := number == "{"+name+"}" && syntax.ValidName(name)
		if !variable && (len(number) > maxDigits || !isDigits(number)) {
			p.refuse("a redirection of a descriptor that is not a small number")
		}
		p.str(number)
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
		op = p.descriptorOperator(r).String()
	}
	p.str(op)
	if isDescriptor(r.Word, p.src, int(r.Word.End().Offset())) {
		p.refuse("a redirection without a file; put a blank after its word")
	}
	_, process := r.Word.Parts[0].(*syntax.ProcSubst)
	if process || r.Word.Pos().Offset() > r.OpPos.Offset()+uint(len(op)) {
		p.str(" ")
	}
	p.word(r.Word)
}

// maxDigits is the greatest length of a descriptor: bash reads a number that is too large as a word.
const maxDigits = 4

// isDescriptor reports whether bash takes the word, which ends at end in src, for the descriptor of a redirection
// directly after it: a number or {name}.
func isDescriptor(word *syntax.Word, src string, end int) bool {
	lit, ok := soleLit(word)
	return ok && lit != "" && (lit[0] == '{' || isDigits(lit)) && end < len(src) && (src[end] == '<' || src[end] == '>')
}

// isDigits reports whether a text has only digits.
func isDigits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// namesDescriptor reports whether a word after >& or <& is a descriptor: a number, "-", or both.
func namesDescriptor(word *syntax.Word) bool {
	lit, ok := soleLit(word)
	return ok && lit != "" && len(lit) <= maxDigits+1 && isDigits(strings.TrimSuffix(lit, "-"))
}

// descriptorOperator returns the operator for a redirection with >& or <&. After ">&" bash expands the name of a file
// twice, reads a leading "-" as a separate word and a trailing "-" as closing a descriptor: ">& file" is "&> file".
func (p *printer) descriptorOperator(r *syntax.Redirect) syntax.RedirOperator {
	if namesDescriptor(r.Word) {
		return r.Op
	}
	special := func(c rune) bool {
		return c >= utf8.RuneSelf || !isWordByte(byte(c)) && !strings.ContainsRune("./~-+:@%,", c)
	}
	lit, ok := soleLit(r.Word)
	isFile := ok && lit != "" && strings.Trim(lit, "-") == lit && !strings.ContainsFunc(lit, special)
	if r.Op == syntax.DplIn || r.N != nil || !isFile {
		p.refuse("a redirection to a descriptor that is not a number; write &> for a file")
	}
	return syntax.RdrAll
}
