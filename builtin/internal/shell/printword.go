package shell

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// A place is the context of a part of a word. It determines the meaning of a byte.
type place uint8

const (
	bare          place = iota // outside of quotes
	doubleQuoted               // between double quotes
	document                   // in the body of a here-document
	bareParam                  // in ${…} outside of quotes
	quotedParam                // in ${…} between double quotes
	quotedPattern              // in a pattern in ${…} between double quotes, where single quotes quote
	docParam                   // in ${…} in a here-document
	regex                      // on the right of =~
	inArithmetic               // in arithmetic
)

// word writes a word and returns its first byte, or 0 if it cannot be printed.
func (p *printer) word(word *syntax.Word) byte {
	start := len(p.buf)
	if len(word.Parts) > 1 {
		lit, ok := word.Parts[0].(*syntax.Lit)
		if ok && strings.HasPrefix(lit.Value, "~") && strings.Contains(lit.Value, ":") && !strings.Contains(lit.Value, "/") {
			p.refuse("a tilde with a colon and no slash after it, where bash expands nothing; quote it")
		}
	}
	p.parts(word.Parts, bare)
	if start == len(p.buf) {
		p.refuse("an empty word")
		return 0
	}
	return p.buf[start]
}

// parts writes the parts of a word, or of the text between quotes.
func (p *printer) parts(list []syntax.WordPart, in place) {
	was := p.where
	p.where = in
	for i, part := range list {
		var next syntax.WordPart
		if i+1 < len(list) {
			next = list[i+1]
		}
		p.part(part, next, i == 0)
	}
	p.where = was
}

func (p *printer) part(part, next syntax.WordPart, first bool) {
	switch x := part.(type) {
	case *syntax.Lit:
		p.lit(x.Value, first, next == nil)
	case *syntax.SglQuoted:
		p.single(x)
	case *syntax.DblQuoted:
		p.double(x)
	case *syntax.ParamExp:
		p.param(x, next)
	case *syntax.CmdSubst:
		p.substitution(x)
	case *syntax.ArithmExp:
		if x.Bracket {
			p.refuse("$[…]; write $((…))")
		}
		p.str("$((")
		p.spacedArithmetic(x.X, x.Left, 3, x.Unsigned)
		p.str("))")
	case *syntax.ProcSubst:
		// After a digit <(…) would be a redirection.
		if p.where != bare || x.Op == syntax.CmdInTemp || !first && p.buf[len(p.buf)-1] != '=' {
			p.refuse("a process substitution inside a word")
		}
		p.str(x.Op.String())
		p.commands(x.OpPos, x.Stmts, x.Rparen)
		p.str(")")
	case *syntax.ExtGlob:
		p.extGlob(x)
	default:
		p.refuse("an expansion that is not supported")
	}
}

// extGlob writes an extended pattern of plain alternatives. The parser does not parse the expansions in a pattern.
func (p *printer) extGlob(x *syntax.ExtGlob) {
	text := x.Pattern.Value
	for i := range len(text) {
		if c := text[i]; !isWordByte(c) && strings.IndexByte("|*?.-_/^,:+@%=[]", c) < 0 {
			p.refuse("an extended pattern with alternatives that are not plain")
		}
	}
	p.str(x.Op.String())
	p.str(text)
	p.str(")")
}

// lit writes a literal. Its value is the source text, without continued lines.
func (p *printer) lit(text string, first, last bool) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			i = p.escape(text, i)
		case c == '$':
			p.dollar(text[i+1:], last)
		case isWordByte(c):
			p.buf = append(p.buf, c)
		case c >= utf8.RuneSelf && p.where == bare:
			// In some locales bash takes a byte of such a letter for a blank.
			end := i
			for end < len(text) && text[end] >= utf8.RuneSelf {
				end++
			}
			p.str("'" + text[i:end] + "'")
			i = end - 1
		case p.where == bare:
			p.bare(text, i, first)
		case p.where == bareParam:
			p.bareParam(text, i)
		case p.where == inArithmetic:
			if c != '#' && c != '@' && c != '.' && c != '*' {
				p.refuse(fmt.Sprintf("arithmetic with %q", string(c)))
			}
			p.buf = append(p.buf, c)
		case c == '"' && p.where != document, c == '`', c == '\n' && len(p.pending) > 0 && p.where != document:
			p.refuse("a quote that the parser and bash read differently; quote it by \\")
		case p.where == regex && strings.IndexByte(" \t\n;&<>'\"", c) >= 0:
			p.refuse("a regular expression with blanks; put it into a variable")
		default:
			p.buf = append(p.buf, c)
		}
	}
}

// bare writes the byte of a literal outside quotes.
func (p *printer) bare(text string, i int, first bool) {
	switch c := text[i]; {
	case strings.IndexByte(" \t\n;&|<>()'\"`", c) >= 0:
		p.refuse(fmt.Sprintf("a word with %q", string(c)))
	case c == '#' && i == 0 && first:
		p.refuse("a word that begins with #; quote it")
	default:
		p.buf = append(p.buf, c)
	}
}

// bareParam writes the byte of a literal in ${…}. There bash looks for process substitutions, and some versions
// count brackets.
func (p *printer) bareParam(text string, i int) {
	switch c := text[i]; {
	case c == '\n' || c == '\'' || c == '"' || c == '`' || c == '{':
		p.refuse(fmt.Sprintf("an expansion with %q in its word", string(c)))
	case (c == '<' || c == '>') && i+1 < len(text) && text[i+1] == '(':
		p.refuse("a process substitution in ${…}; use a variable")
	case strings.IndexByte("<>()&|;", c) >= 0:
		p.buf = append(p.buf, '\\', c)
	default:
		p.buf = append(p.buf, c)
	}
}

// escape writes the backslash at i and the byte that it escapes, and returns the index of the last byte written.
func (p *printer) escape(text string, i int) int {
	if i+1 == len(text) || text[i+1] == '\n' {
		p.refuse("a backslash at the end of a line or a text")
		return i
	}
	c := text[i+1]
	literal := false // the backslash escapes nothing
	switch p.where {
	case doubleQuoted:
		literal = strings.IndexByte("$`\\\"", c) < 0
	case document:
		literal = strings.IndexByte("$`\\", c) < 0
	case docParam:
		if strings.IndexByte("$`\\}", c) < 0 {
			p.refuse("a backslash in ${…} in a here-document")
		}
	case inArithmetic:
		p.refuse("a backslash in arithmetic")
	case regex:
		if c <= ' ' || c >= utf8.RuneSelf || strings.IndexByte("'\"`<>&;", c) >= 0 {
			p.refuse("a regular expression that escapes a quote; put it into a variable")
		}
	case bare:
		if c >= utf8.RuneSelf {
			return i // lit puts c into quotes
		}
	}
	p.buf = append(p.buf, '\\')
	if literal {
		return i
	}
	p.buf = append(p.buf, c)
	return i + 1
}

// dollar writes the dollar before rest in a literal, so that bash does not read an expansion or $'…'.
func (p *printer) dollar(rest string, last bool) {
	switch {
	case p.where == inArithmetic:
		p.refuse("arithmetic with a lone $")
	case p.where == regex:
		if rest == "" && !last || rest != "" && rest[0] != ')' && rest[0] != '|' {
			p.refuse("a regular expression with $ inside; put it into a variable")
		}
		p.str("$")
	case rest == "" && last && (p.where == bare || p.where == doubleQuoted),
		rest != "" && strings.IndexByte(" /|.,:;)", rest[0]) >= 0 && (p.where == doubleQuoted || p.where == document):
		p.str("$")
	default:
		if rest == "" || strings.IndexByte("({[", rest[0]) >= 0 {
			p.refuse("a $ that may begin an expansion; write \\$")
		}
		p.str(`\$`)
	}
}

// single writes a text between single quotes, or the value of $'…'.
func (p *printer) single(q *syntax.SglQuoted) {
	switch p.where {
	case bare, bareParam:
	case quotedPattern:
		// Even if a version of bash takes the quotes for text, nothing else changes.
		text, ok := q.Value, true
		if q.Dollar {
			text, ok = ansiC(text)
		}
		if !ok || strings.ContainsAny(text, "$`\"'\\{}") {
			p.refuse("single quotes around more than plain text inside ${…} that is itself quoted; use a variable")
			return
		}
	case regex:
		if q.Dollar {
			p.refuse("$'…' in a regular expression; put it into a variable")
		}
	default:
		p.refuse("a single quote inside ${…} that is itself quoted; use a variable")
		return
	}
	text := q.Value
	if q.Dollar {
		var ok bool
		if text, ok = ansiC(q.Value); !ok || p.where == bareParam && strings.ContainsAny(text, "'") {
			p.refuse("an escape in $'…' that is not supported")
			return
		}
		if p.where == quotedPattern || strings.Contains(text, "'") || !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable) {
			p.ansi(text)
			return
		}
	}
	p.str("'")
	p.str(text)
	p.str("'")
}

func unprintable(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || invisible(r) }

// ansi writes a text as $'…'.
func (p *printer) ansi(text string) {
	p.str("$'")
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\'' || r == '\\':
			p.str(`\`)
			p.str(text[i : i+n])
		case r == '\n':
			p.str(`\n`)
		case r == '\t':
			p.str(`\t`)
		case r == utf8.RuneError && n == 1 || unprintable(r):
			for _, c := range []byte(text[i : i+n]) {
				p.str(fmt.Sprintf(`\%03o`, c))
			}
		default:
			p.str(text[i : i+n])
		}
		i += n
	}
	p.str("'")
}

// double writes the text between double quotes. A translation, $"…", is written as its text.
func (p *printer) double(q *syntax.DblQuoted) {
	switch p.where {
	case bare, bareParam, regex:
	case quotedParam, quotedPattern:
		// Bash removes the inner quotes, and the text in them is quoted either way.
		for _, part := range q.Parts {
			if lit, ok := part.(*syntax.Lit); ok && strings.ContainsAny(lit.Value, "\\'{}") {
				p.refuse("quotes inside ${…} that is itself quoted; use a variable")
			}
		}
	default:
		p.refuse("quotes inside ${…} in a here-document, in arithmetic or in an index; use a variable")
	}
	p.str(`"`)
	p.parts(q.Parts, doubleQuoted)
	p.str(`"`)
}

// commands writes the statements of a substitution, between its parentheses. They have their own here-documents.
func (p *printer) commands(from syntax.Pos, list []*syntax.Stmt, to syntax.Pos) {
	pending, where, start := p.pending, p.where, len(p.buf)
	p.pending, p.where = nil, bare
	p.inParens(from, list, to)
	if broken := bytes.IndexByte(p.buf[start:], '\n') >= 0; broken && (len(pending) > 0 || where == document || where == docParam) {
		p.refuse("a substitution of several lines in the line or body of a here-document; use a variable")
	}
	p.pending, p.where = pending, where
}

func (p *printer) substitution(x *syntax.CmdSubst) {
	if x.TempFile || x.ReplyVar {
		p.refuse("a substitution in the current shell; write $(…)")
	}
	if x.Backquotes {
		from, to := int(x.Left.Offset())+1, int(x.Right.Offset())
		switch {
		case from > to || to > len(p.src) || !plainBackquotes(p.src[from:to]):
			p.refuse("backquotes that contain escapes, comments or here-documents; write $(…)")
		case p.where != bare && strings.Contains(p.src[from:to], `"`) && strings.Contains(p.src[from:to], "{"):
			// When bash looks for braces, it takes the first quote in them for the end of the outer quotes.
			p.refuse("backquotes between quotes that contain quotes and braces; write $(…)")
		}
	}
	p.str("$(")
	p.commands(x.Left, x.Stmts, x.Right)
	p.str(")")
}

// plainBackquotes reports whether bash and the parser find the same end of a substitution: bash ends it at the
// next backquote, even inside quotes.
func plainBackquotes(text string) bool {
	return !strings.ContainsAny(text, "`\\#") && !strings.Contains(text, "<<")
}
