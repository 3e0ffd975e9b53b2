package shell

import (
	"bytes"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// param writes a parameter expansion. next is the part of the word that follows, or nil.
func (p *printer) param(x *syntax.ParamExp, next syntax.WordPart) {
	if x.Param == nil || x.NestedParam != nil || x.Flags != nil || len(x.Modifiers) > 0 || x.Width || x.IsSet ||
		x.Split != 0 || x.GlobSubst != 0 || x.RcExpand != 0 {
		p.refuse("an expansion that is not supported")
		return
	}
	name := x.Param.Value
	if lit, ok := next.(*syntax.Lit); ok && name == "$" && strings.HasPrefix(lit.Value, "{") {
		p.refuse("$$ before a brace")
	}
	special := !syntax.ValidName(name) && !isDigits(name)
	simple := !x.Excl && !x.Length && x.Index == nil && x.Slice == nil && x.Repl == nil && x.Names == 0 && x.Exp == nil
	if simple {
		p.simple(x, name, special, next)
		return
	}
	if special && (name != "@" && name != "*" || x.Excl || x.Index != nil) {
		p.refuse("an expansion of a special parameter with an operation")
	}
	if x.Short && x.Index != nil && !x.Dollar.IsValid() { // a[i] in arithmetic
		p.name(name)
		p.index(x.Index)
		return
	}
	if x.Short {
		p.refuse("an expansion that is not supported")
	}
	p.str("${")
	if x.Length {
		p.str("#")
		if x.Slice != nil || x.Repl != nil || x.Exp != nil || x.Excl {
			p.refuse("a length of something other than a parameter")
		}
	}
	if x.Excl {
		p.str("!")
	}
	p.str(name)
	if x.Index != nil {
		p.index(x.Index)
	}
	if x.Names != 0 {
		p.str(x.Names.String())
	}
	p.operation(x)
	p.str("}")
}

// simple writes $name, or ${name} if the next byte could belong to the name or begin an index.
func (p *printer) simple(x *syntax.ParamExp, name string, special bool, next syntax.WordPart) {
	short := x.Short || special
	if lit, ok := next.(*syntax.Lit); ok && lit.Value != "" && (isWordByte(lit.Value[0]) || lit.Value[0] == '[') && !special {
		short = false
	}
	if short {
		p.str("$")
		p.str(name)
		return
	}
	p.str("${")
	p.str(name)
	p.str("}")
}

// hasAmpersand reports whether unquoted text has an & without a backslash. The printer would write \& instead.
func hasAmpersand(part syntax.WordPart) bool {
	lit, ok := part.(*syntax.Lit)
	return ok && strings.Contains(strings.NewReplacer(`\\`, "", `\&`, "").Replace(lit.Value), "&")
}

// operation writes the operation of an expansion.
func (p *printer) operation(x *syntax.ParamExp) {
	in := bareParam
	switch p.where {
	case doubleQuoted, quotedParam, quotedPattern, inArithmetic:
		in = quotedParam
		if x.Repl != nil || x.Exp != nil && x.Exp.Op >= syntax.RemSmallSuffix { // %, # and later operators take a pattern
			in = quotedPattern
		}
	case document, docParam:
		in = docParam
	case regex:
		p.refuse("an expansion with a word in a regular expression; put it into a variable")
	}
	switch {
	case x.Slice != nil:
		p.str(":")
		start := len(p.buf)
		p.offset(x.Slice.Offset)
		if start < len(p.buf) && strings.IndexByte("-+=?", p.buf[start]) >= 0 {
			p.buf = slices.Insert(p.buf, start, ' ')
		}
		if x.Slice.Length != nil {
			p.str(":")
			p.offset(x.Slice.Length)
		}
	case x.Repl != nil:
		p.str("/")
		if x.Repl.All {
			p.str("/")
		}
		start := len(p.buf)
		if x.Repl.Orig != nil {
			p.parts(x.Repl.Orig.Parts, in)
		}
		if start == len(p.buf) || p.buf[start] == '/' {
			p.refuse("a replacement of an empty pattern")
		}
		p.str("/")
		if x.Repl.With != nil {
			if in == bareParam && slices.ContainsFunc(x.Repl.With.Parts, hasAmpersand) {
				p.refuse("an & in a replacement, which is the match in some versions of bash; put the expansion into quotes")
			}
			p.parts(x.Repl.With.Parts, in)
		}
	case x.Exp != nil:
		p.expansion(x.Exp, in)
	}
}

func (p *printer) expansion(x *syntax.Expansion, in place) {
	if x.Op == syntax.OtherParamOps {
		if x.Word == nil || len(x.Word.Lit()) != 1 || !strings.Contains("UuLQEPAKak", x.Word.Lit()) {
			p.refuse("an expansion that is not supported")
			return
		}
		p.str("@" + x.Word.Lit())
		return
	}
	if x.Op == syntax.MatchEmpty || x.Op == syntax.ArrayExclude || x.Op == syntax.ArrayIntersect {
		p.refuse("an expansion that is not supported")
	}
	p.str(x.Op.String())
	if x.Word == nil {
		return
	}
	start := len(p.buf)
	p.parts(x.Word.Parts, in)
	// The operator must not become another one.
	if op := x.Op.String(); start < len(p.buf) && p.buf[start] == op[len(op)-1] && len(op) == 1 && strings.Contains("#%^,", op) {
		p.refuse("an expansion whose word begins like a longer operator; escape it")
	}
}

// offset writes the offset or the length of ${name:offset:length}. It refuses a colon, because bash ends the offset there.
func (p *printer) offset(x syntax.ArithmExpr) {
	start := len(p.buf)
	if x == nil {
		p.refuse("a missing offset; write 0")
		return
	}
	p.arithmetic(x)
	if bytes.IndexByte(p.buf[start:], ':') >= 0 {
		p.refuse("an offset that contains a colon; use a variable")
	}
}

// index writes the index of an array: a number or a key.
func (p *printer) index(x syntax.ArithmExpr) {
	p.str("[")
	start := len(p.buf)
	if from, to := int(x.Pos().Offset()), int(x.End().Offset()); from < 1 || to >= len(p.src) || p.src[from-1] != '[' || p.src[to] != ']' || strings.Contains(p.src[from:to], "\n") {
		p.refuse("an index with blanks around it")
	}
	if word, ok := x.(*syntax.Word); ok && len(word.Parts) == 1 && p.where != inArithmetic {
		if q, ok := word.Parts[0].(*syntax.DblQuoted); ok && p.where == bare {
			for _, part := range q.Parts {
				if lit, ok := part.(*syntax.Lit); ok && strings.ContainsAny(lit.Value, "\\'[]{}") {
					p.refuse("a key with quotes or brackets; use a variable")
				}
			}
			p.double(q)
			p.str("]")
			return
		}
	}
	p.arithmetic(x)
	if start == len(p.buf) {
		p.refuse("a missing index")
	}
	p.str("]")
}

// spacedArithmetic writes the expression x after a bracket of n bytes at left. There are blanks around x if the source
// has one before x.
func (p *printer) spacedArithmetic(x syntax.ArithmExpr, left syntax.Pos, n int, unsigned bool) {
	if unsigned || x == nil {
		p.refuse("arithmetic that is not supported")
		return
	}
	space := x.Pos().Offset() > left.Offset()+uint(n)
	if space {
		p.str(" ")
	}
	p.arithmetic(x)
	if space {
		p.str(" ")
	}
}

// arithmetic writes an expression, with blanks around operators as in the source, because an expansion may be empty or
// become an operator.
func (p *printer) arithmetic(x syntax.ArithmExpr) {
	switch x := x.(type) {
	case *syntax.Word:
		p.parts(x.Parts, inArithmetic)
	case *syntax.ParenArithm:
		p.str("(")
		p.arithmetic(x.X)
		p.str(")")
	case *syntax.UnaryArithm:
		op := x.Op.String()
		if x.Post {
			p.arithmetic(x.X)
			p.str(op)
			break
		}
		p.str(op)
		p.blank(x.OpPos, len(op), x.X.Pos())
		p.arithmetic(x.X)
	case *syntax.BinaryArithm:
		op := x.Op.String()
		p.arithmetic(x.X)
		p.blank(x.X.End(), 0, x.OpPos)
		p.str(op)
		p.blank(x.OpPos, len(op), x.Y.Pos())
		p.arithmetic(x.Y)
	default:
		p.refuse("arithmetic that is not supported")
	}
}

// blank writes a blank if there is something between the n bytes at from, and to.
func (p *printer) blank(from syntax.Pos, n int, to syntax.Pos) {
	if to.Offset() > from.Offset()+uint(n) {
		p.str(" ")
	}
}

// let writes the words of let, and refuses unquoted ones that bash would split, expand or take for operators.
func (p *printer) let(c *syntax.LetClause) {
	p.str("let")
	for i, x := range c.Exprs {
		if i > 0 && x.Pos() == c.Exprs[i-1].End() { // bash takes the word for one expression
			p.refuse("let with two expressions in one word; write ((…))")
		}
		p.str(" ")
		if word, ok := x.(*syntax.Word); ok && len(word.Parts) == 1 {
			if q, ok := word.Parts[0].(*syntax.DblQuoted); ok {
				p.double(q)
				continue
			}
			if q, ok := word.Parts[0].(*syntax.SglQuoted); ok {
				p.single(q)
				continue
			}
		}
		start := len(p.buf)
		p.arithmetic(x)
		if bytes.ContainsAny(p.buf[start:], " <>()&|;*?[") {
			p.refuse("let with words that are not plain; write ((…))")
		}
	}
}

// operators are words that bash may read as an operator of [[ ]].
var operators = []string{"!", "=", "==", "!=", "=~", "&&", "||"}

// refuseBreak refuses a line break in [[ ]] where bash does not allow one.
func (p *printer) refuseBreak(from, to syntax.Pos) {
	if to.Line() > from.Line() {
		p.refuse("a [[ ]] with a line break that is not after && or ||")
	}
}

func (p *printer) test(x syntax.TestExpr) {
	switch x := x.(type) {
	case *syntax.Word:
		start := len(p.buf)
		p.word(x)
		if text := string(p.buf[start:]); text == "]]" {
			p.refuse("a ]] as an operand of a test; quote it")
		} else if slices.Contains(operators, text) {
			p.refuse("an operator as an operand of a test; quote it")
		} else if len(text) > 1 && text[0] == '-' && strings.Trim(text[1:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			p.buf = append(append(p.buf[:start], '"'), text...) // so that bash does not read the word as an operator
			p.str(`"`)
		}
	case *syntax.ParenTest:
		p.refuseBreak(x.Lparen, x.X.Pos())
		p.refuseBreak(x.X.End(), x.Rparen)
		p.str("( ")
		p.test(x.X)
		p.str(" )")
	case *syntax.UnaryTest:
		p.refuseBreak(x.OpPos, x.X.Pos())
		p.str(x.Op.String())
		p.str(" ")
		p.test(x.X)
	case *syntax.BinaryTest:
		p.refuseBreak(x.X.End(), x.OpPos)
		if x.Op != syntax.AndTest && x.Op != syntax.OrTest {
			p.refuseBreak(x.OpPos, x.Y.Pos())
		}
		p.test(x.X)
		p.str(" " + x.Op.String() + " ")
		if word, ok := x.Y.(*syntax.Word); ok && x.Op == syntax.TsReMatch {
			p.regex(word)
			return
		}
		p.test(x.Y)
	default:
		p.refuse("a test that is not supported")
	}
}

// regex writes a regular expression. To find its end bash counts parentheses, also those in [ ].
func (p *printer) regex(word *syntax.Word) {
	depth := 0
	for _, part := range word.Parts {
		switch x := part.(type) {
		case *syntax.Lit:
			for i := 0; i < len(x.Value); i++ {
				switch x.Value[i] {
				case '\\':
					if i++; i < len(x.Value) && strings.IndexByte("()", x.Value[i]) >= 0 && depth > 0 {
						p.refuse("a regular expression with escaped parentheses; put it into a variable")
					}
				case '(':
					depth++
				case ')':
					if depth--; depth < 0 {
						p.refuse("a regular expression whose parentheses do not match; put it into a variable")
					}
				}
			}
		case *syntax.ParamExp:
		case *syntax.SglQuoted, *syntax.DblQuoted:
			if depth > 0 {
				p.refuse("a regular expression with quotes in parentheses; put it into a variable")
			}
		default:
			p.refuse("a regular expression with expansions other than variables; put it into a variable")
		}
	}
	if depth != 0 {
		p.refuse("a regular expression whose parentheses do not match; put it into a variable")
	}
	p.parts(word.Parts, regex)
}
