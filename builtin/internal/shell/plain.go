package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A reader builds the syntax tree of plain commands: words of harmless characters and quotes without
// expansions, with redirections, joined by "|", "&&", "||" and ";", on one line. Most commands have this form,
// and parsing them costs more than analysing them. The reader's tree is exactly the parser's, including
// positions, which a fuzz test checks. The reader rejects other commands, and the parser then reads them.
//
// The trees use memory that is reused: a value that is kept must not point into them.
type reader struct {
	src string
	pos int

	stmts     slab[*syntax.Stmt]
	commands  slab[commandNode]
	binaries  slab[binaryNode]
	redirects slab[redirectNode]
	words     slab[wordNode]
	lits      slab[syntax.Lit]
	singles   slab[syntax.SglQuoted]
	doubles   slab[doubleNode]
}

// Nodes of the tree that are allocated together, with capacity for their lists.
type (
	commandNode struct {
		stmt syntax.Stmt
		call syntax.CallExpr
		args [8]*syntax.Word
	}
	binaryNode struct {
		stmt   syntax.Stmt
		binary syntax.BinaryCmd
	}
	redirectNode struct {
		redirect syntax.Redirect
		list     [2]*syntax.Redirect
	}
	wordNode struct {
		word  syntax.Word
		parts [2]syntax.WordPart
	}
	doubleNode struct {
		quoted syntax.DblQuoted
		parts  [1]syntax.WordPart
		lit    syntax.Lit
	}
)

func (r *reader) reset() {
	r.stmts.reset()
	r.commands.reset()
	r.binaries.reset()
	r.redirects.reset()
	r.words.reset()
	r.lits.reset()
	r.singles.reset()
	r.doubles.reset()
}

// The meanings of a byte outside quotes.
const (
	strange  = iota // only the parser handles it
	plain           // literal in any position of a word
	blank           // between words
	quote           // ' or "
	escape          // a backslash
	operator        // one of | & ; < >
)

// meaning has the meaning of every byte. Strange are "$" and "`", which expand, "#", which may begin a comment, "[",
// which may index, the end of the line, and parentheses, which change the meaning of "*", "?", "+", "@" and "!". The
// methods simple and command reject "=", "{" and "}" where they are not literal.
var meaning = func() (m [256]uint8) {
	for c := range m {
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
			strings.IndexByte("_./:,%^-~]*?+@!={}", byte(c)) >= 0 {
			m[c] = plain
		}
	}
	for _, c := range "|&;<>" {
		m[c] = operator
	}
	m[' '], m['\t'], m['\''], m['"'], m['\\'] = blank, blank, quote, quote, escape
	return m
}()

// reserved reports whether a word begins something other than a simple command.
func reserved(word string) bool {
	switch word {
	case "let", "declare", "typeset", "local", "export", "readonly", "nameref":
		return true
	}
	return keyword(word)
}

// maxPlain is the longest command that is read without the parser, which counts the columns of longer lines
// differently.
const maxPlain = 4 << 10

// read returns the statements of src, or nil if the parser must read it.
func (r *reader) read(src string) []*syntax.Stmt {
	if len(src) > maxPlain {
		return nil
	}
	r.src, r.pos = src, 0
	stmts := r.stmts.take(4)
	for r.peek() != 0 {
		s := r.list()
		if s == nil {
			return nil
		}
		stmts = append(stmts, s)
		switch r.peek() {
		case 0:
		case ';': // list rejects a second ";" or an "&" after it
			s.Semicolon = r.at()
			r.pos++
		default:
			return nil
		}
	}
	return stmts
}

func (r *reader) at() syntax.Pos { return syntax.NewPos(uint(r.pos), 1, uint(r.pos)+1) }

// peek skips blanks and returns the byte that follows, or 0 at the end.
func (r *reader) peek() byte {
	for r.pos < len(r.src) && meaning[r.src[r.pos]] == blank {
		r.pos++
	}
	if r.pos == len(r.src) {
		return 0
	}
	return r.src[r.pos]
}

// next returns the byte after the current one, or 0 at the end.
func (r *reader) next() byte {
	if r.pos+1 >= len(r.src) {
		return 0
	}
	return r.src[r.pos+1]
}

// list reads pipelines joined by "&&" and "||".
func (r *reader) list() *syntax.Stmt {
	s := r.pipeline()
	for s != nil {
		switch c := r.peek(); {
		case c == '&' && r.next() == '&':
			s = r.join(s, syntax.AndStmt, 2, r.pipeline)
		case c == '|' && r.next() == '|':
			s = r.join(s, syntax.OrStmt, 2, r.pipeline)
		default:
			return s
		}
	}
	return nil
}

// pipeline reads commands joined by "|".
func (r *reader) pipeline() *syntax.Stmt {
	s := r.command()
	for s != nil {
		if r.peek() != '|' || r.next() == '|' {
			return s
		}
		s = r.join(s, syntax.Pipe, 1, r.command)
	}
	return nil
}

// join reads an operator of n bytes and its right side.
func (r *reader) join(x *syntax.Stmt, op syntax.BinCmdOperator, n int, right func() *syntax.Stmt) *syntax.Stmt {
	at := r.at()
	r.pos += n
	y := right()
	if y == nil {
		return nil
	}
	j := r.binaries.one()
	j.stmt = syntax.Stmt{Position: x.Position, Cmd: &j.binary}
	j.binary = syntax.BinaryCmd{OpPos: at, Op: op, X: x, Y: y}
	return &j.stmt
}

// command reads a simple command with its redirections.
func (r *reader) command() *syntax.Stmt {
	if r.peek() == 0 || !r.simple() {
		return nil
	}
	c := r.commands.one()
	c.stmt, c.call = syntax.Stmt{Position: r.at(), Cmd: &c.call}, syntax.CallExpr{Args: c.args[:0]}
	for {
		switch r.peek() {
		case 0, '|', '&', ';':
			return &c.stmt
		case '<', '>': // without a descriptor
			if !r.redirect(&c.stmt, nil) {
				return nil
			}
			continue
		}
		w := r.word()
		if w == nil {
			return nil
		}
		if !isDescriptor(w, r.src, r.pos) {
			c.call.Args = append(c.call.Args, w)
			continue
		}
		if lit := w.Parts[0].(*syntax.Lit); lit.Value[0] == '{' || len(lit.Value) > maxDigits || !r.redirect(&c.stmt, lit) {
			return nil
		}
	}
}

// simple reports whether the current word begins a simple command: it is not reserved, not an
// assignment and not a redirection.
func (r *reader) simple() bool {
	i := r.pos
	for ; i < len(r.src) && meaning[r.src[i]] == plain; i++ {
		if c := r.src[i]; c == '=' || c == '{' || c == '}' {
			return false
		}
	}
	if i < len(r.src) {
		switch c := r.src[i]; meaning[c] {
		case quote, escape:
			return true
		case strange:
			return false
		case operator:
			if c == '<' || c == '>' || i == r.pos {
				return false
			}
		}
	}
	return !reserved(r.src[r.pos:i])
}

// redirect reads ">", ">>", "<", ">&" or "<&" and a word.
func (r *reader) redirect(s *syntax.Stmt, descriptor *syntax.Lit) bool {
	at, op, n := r.at(), syntax.RdrIn, 1
	switch c, next := r.src[r.pos], r.next(); {
	case c == '>' && next == '>':
		op, n = syntax.AppOut, 2
	case c == '>' && next == '&':
		op, n = syntax.DplOut, 2
	case next == '&':
		op, n = syntax.DplIn, 2
	case c == '>':
		op = syntax.RdrOut
	}
	r.pos += n
	r.peek() // skip blanks
	word := r.word()
	if word == nil { // also if the operator is longer, such as >|
		return false
	}
	duplicates := op == syntax.DplIn || op == syntax.DplOut
	if isDescriptor(word, r.src, r.pos) || duplicates && !namesDescriptor(word) {
		return false
	}
	d := r.redirects.one()
	d.redirect = syntax.Redirect{OpPos: at, Op: op, N: descriptor, Word: word}
	if s.Redirs == nil {
		s.Redirs = d.list[:0]
	}
	s.Redirs = append(s.Redirs, &d.redirect)
	return true
}

// word reads the word that begins here, or returns nil if there is none.
func (r *reader) word() *syntax.Word {
	w := r.words.one()
	w.word.Parts = w.parts[:0]
	for r.pos < len(r.src) {
		var part syntax.WordPart
		switch c := r.src[r.pos]; {
		case meaning[c] == plain || meaning[c] == escape:
			part = r.literal()
		case c == '\'':
			part = r.single()
		case c == '"':
			part = r.double()
		case meaning[c] != strange && len(w.word.Parts) > 0:
			return &w.word
		}
		if part == nil {
			return nil
		}
		w.word.Parts = append(w.word.Parts, part)
	}
	if len(w.word.Parts) == 0 {
		return nil
	}
	return &w.word
}

// literal reads unquoted text.
func (r *reader) literal() syntax.WordPart {
	from, start := r.pos, r.at()
	for r.pos < len(r.src) {
		if m := meaning[r.src[r.pos]]; m == escape && !r.toEscaped() {
			return nil
		} else if m != plain && m != escape {
			break
		}
		r.pos++
	}
	l := r.lits.one()
	*l = syntax.Lit{ValuePos: start, ValueEnd: r.at(), Value: r.src[from:r.pos]}
	return l
}

// toEscaped moves to the byte that the current backslash escapes, and reports whether there is one in the line.
func (r *reader) toEscaped() bool {
	c := r.next()
	r.pos++
	return c != 0 && c != '\n'
}

func (r *reader) single() syntax.WordPart {
	left, from := r.at(), r.pos+1
	for r.pos++; r.pos < len(r.src) && r.src[r.pos] != '\n'; r.pos++ {
		if r.src[r.pos] == '\'' {
			q := r.singles.one()
			*q = syntax.SglQuoted{Left: left, Right: r.at(), Value: r.src[from:r.pos]}
			r.pos++
			return q
		}
	}
	return nil
}

func (r *reader) double() syntax.WordPart {
	left, from := r.at(), r.pos+1
	r.pos++
	start := r.at()
	for ; r.pos < len(r.src); r.pos++ {
		switch r.src[r.pos] {
		case '$', '`', '\n':
			return nil
		case '\\':
			if !r.toEscaped() {
				return nil
			}
		case '"':
			q := r.doubles.one()
			q.quoted = syntax.DblQuoted{Left: left, Right: r.at()}
			if r.pos > from {
				q.lit = syntax.Lit{ValuePos: start, ValueEnd: r.at(), Value: r.src[from:r.pos]}
				q.quoted.Parts = append(q.parts[:0], &q.lit)
			}
			r.pos++
			return &q.quoted
		}
	}
	return nil
}
