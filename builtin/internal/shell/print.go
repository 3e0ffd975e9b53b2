package shell

import (
	"errors"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// Print returns src in the form in which it must be run: the text of the tree that Analyze judges, in a subset
// of bash that the parser and bash read in the same way. The print of a print is the same text. Print fails if
// src is not bash, and if src cannot be printed in this subset; the error names the construct and says what to
// write instead.
func Print(src string) (string, error) {
	w := walkers.Get().(*walker)
	defer walkers.Put(w)
	w.trees.reset()
	prog, err := w.parse(src)
	return prog.text, err
}

// A printer writes a syntax tree in the subset of bash that the parser and bash read in the same way. It only
// breaks lines between commands, where the source breaks them; it removes comments and joins continued lines.
//
// The parser determines the meaning of a text, so if bash reads the text differently, the print may have other
// effects than its source. Where that is known to happen, the printer rejects the source.
type printer struct {
	src     string
	buf     []byte
	level   int    // of indentation
	pending []hdoc // here-documents whose bodies follow the current line
	where   place  // the context of the current part of a word
	err     error  // the first reason why src cannot be printed
}

// An hdoc is a here-document as it is printed.
type hdoc struct {
	body      []byte
	delimiter string
}

// print returns the text of stmts, which is in the printer's memory.
func (p *printer) print(src string, stmts []*syntax.Stmt) ([]byte, error) {
	*p = printer{src: src, buf: p.buf[:0]}
	p.stmts(stmts)
	if len(p.pending) > 0 {
		p.newline()
	}
	switch {
	case len(p.buf) > maxSource:
		p.refuse("it is too long to judge")
	case len(p.buf) > 0 && (p.buf[0] == '-' || p.buf[0] == '+'): // as in ">f -x", which is printed as "-x >f"
		p.refuse("it begins like an option of bash")
	}
	return p.buf, p.err
}

func (p *printer) refuse(why string) {
	if p.err == nil {
		p.err = errors.New(why)
	}
}

func (p *printer) str(s string) { p.buf = append(p.buf, s...) }

// newline ends the line, and writes the bodies of its here-documents.
func (p *printer) newline() {
	if len(p.buf) > 0 && p.buf[len(p.buf)-1] == '\\' {
		p.refuse(`a line that ends with \; put it in quotes`)
	}
	p.buf = append(p.buf, '\n')
	for _, doc := range p.pending {
		p.buf = append(append(append(p.buf, doc.body...), doc.delimiter...), '\n')
	}
	p.pending = p.pending[:0]
	for range p.level {
		p.str("  ")
	}
}

// stmts writes a sequence of statements.
func (p *printer) stmts(list []*syntax.Stmt) {
	for i, s := range list {
		if i > 0 {
			p.separate(list[i-1], s.Position)
		}
		p.stmt(s)
	}
}

// separate writes the separator between the statement s and the text that follows it at pos.
func (p *printer) separate(s *syntax.Stmt, pos syntax.Pos) {
	switch {
	case len(p.pending) > 0 || pos.Line() > s.End().Line():
		p.newline()
	case s.Background:
		p.str(" ")
	default:
		p.str("; ")
	}
}

// body writes the statements between the keywords at from and to.
func (p *printer) body(from syntax.Pos, list []*syntax.Stmt, to syntax.Pos) {
	if len(list) == 0 {
		p.refuse("a list without a command; write : in it")
		return
	}
	p.level++
	if len(p.pending) > 0 || list[0].Position.Line() > from.Line() {
		p.newline()
	} else {
		p.str(" ")
	}
	p.stmts(list)
	p.level--
	p.separate(list[len(list)-1], to)
}

func (p *printer) stmt(s *syntax.Stmt) {
	if s.Coprocess || s.Disown {
		p.refuse("a coprocess; use & and a file instead")
	}
	if s.Negated {
		p.str("! ")
	}
	if s.Cmd != nil {
		p.command(s.Cmd)
	} else if len(s.Redirs) == 0 {
		p.refuse("a ! without a command")
	}
	for i, r := range s.Redirs {
		if i > 0 || s.Cmd != nil {
			p.str(" ")
		}
		p.redirect(r)
	}
	if s.Background {
		p.str(" &")
	}
}

func (p *printer) command(cmd syntax.Command) {
	switch c := cmd.(type) {
	case *syntax.CallExpr:
		p.call(c)
	case *syntax.BinaryCmd:
		p.binary(c)
	case *syntax.Block:
		p.str("{")
		p.body(c.Lbrace, c.Stmts, c.Rbrace)
		p.str("}")
	case *syntax.Subshell:
		p.str("(")
		p.inParens(c.Lparen, c.Stmts, c.Rparen)
		p.str(")")
	case *syntax.IfClause:
		p.ifClause(c)
	case *syntax.WhileClause:
		if c.Until {
			p.str("until")
		} else {
			p.str("while")
		}
		p.body(c.WhilePos, c.Cond, c.DoPos)
		p.str("do")
		p.body(c.DoPos, c.Do, c.DonePos)
		p.str("done")
	case *syntax.ForClause:
		p.forClause(c)
	case *syntax.CaseClause:
		p.caseClause(c)
	case *syntax.TestClause:
		p.refuseBreak(c.Left, c.X.Pos())
		p.refuseBreak(c.X.End(), c.Right)
		p.str("[[ ")
		p.test(c.X)
		p.str(" ]]")
	case *syntax.ArithmCmd:
		p.str("((")
		p.spacedArithmetic(c.X, c.Left, 2, c.Unsigned)
		p.str("))")
	case *syntax.LetClause:
		p.let(c)
	case *syntax.DeclClause:
		p.declare(c)
	case *syntax.TimeClause:
		p.str("time")
		if c.PosixFormat {
			p.str(" -p")
		}
		if c.Stmt != nil {
			if call, ok := c.Stmt.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 && call.Args[0].Lit() == "--" {
				p.refuse("-- after time, which bash skips; leave it out")
			}
			p.str(" ")
			p.stmt(c.Stmt)
		}
	case *syntax.FuncDecl:
		p.function(c)
	default: // CoprocClause, and nodes of later versions of the parser
		p.refuse("a command that is not supported, such as coproc")
	}
}

// inParens writes the statements between two parentheses.
func (p *printer) inParens(from syntax.Pos, list []*syntax.Stmt, to syntax.Pos) {
	if len(list) == 0 {
		p.refuse("parentheses without a command; write : in them")
		return
	}
	p.level++
	start := len(p.buf)
	if list[0].Position.Line() > from.Line() {
		p.newline()
	}
	p.stmts(list)
	p.level--
	if last := list[len(list)-1]; len(p.pending) > 0 || to.Line() > last.End().Line() {
		p.newline()
	}
	if len(p.buf) > start && p.buf[start] == '(' { // "((" begins arithmetic
		p.buf = slices.Insert(p.buf, start, ' ')
		p.str(" ")
	}
}

func (p *printer) binary(c *syntax.BinaryCmd) {
	if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
		if _, ok := c.Y.Cmd.(*syntax.TimeClause); ok {
			p.refuse("time inside a pipeline; write it in front")
		}
	}
	p.stmt(c.X)
	p.str(" ")
	p.str(c.Op.String())
	// A line with a here-document is not broken, because the body begins at the next line break.
	if len(p.pending) == 0 && c.Y.Position.Line() > c.OpPos.Line() {
		p.level++
		p.newline()
		p.level--
	} else {
		p.str(" ")
	}
	p.stmt(c.Y)
}

func (p *printer) ifClause(c *syntax.IfClause) {
	p.str("if")
	for {
		p.body(c.Position, c.Cond, c.ThenPos)
		p.str("then")
		next := c.FiPos
		if c.Else != nil {
			next = c.Else.Position
		}
		p.body(c.ThenPos, c.Then, next)
		if c = c.Else; c == nil {
			break
		}
		if !c.ThenPos.IsValid() {
			p.str("else")
			p.body(c.Position, c.Then, c.FiPos)
			break
		}
		p.str("elif")
	}
	p.str("fi")
}

func (p *printer) forClause(c *syntax.ForClause) {
	keyword := "for "
	if c.Select {
		keyword = "select "
	}
	p.str(keyword)
	switch loop := c.Loop.(type) {
	case *syntax.WordIter:
		p.name(loop.Name.Value)
		if loop.InPos.IsValid() {
			p.str(" in")
			for _, word := range loop.Items {
				p.str(" ")
				p.word(word)
			}
		}
	case *syntax.CStyleLoop:
		p.str("((")
		for i, x := range []syntax.ArithmExpr{loop.Init, loop.Cond, loop.Post} {
			if i > 0 {
				p.str("; ")
			}
			if x != nil {
				p.arithmetic(x)
			}
		}
		p.str("))")
	default:
		p.refuse("a loop that is not supported")
	}
	if len(p.pending) > 0 || c.DoPos.Line() > c.Loop.End().Line() {
		p.newline()
	} else {
		p.str("; ")
	}
	p.str("do")
	p.body(c.DoPos, c.Do, c.DonePos)
	p.str("done")
}

func (p *printer) caseClause(c *syntax.CaseClause) {
	if c.Braces {
		p.refuse("a case with braces; write in … esac")
	}
	p.str("case ")
	p.word(c.Word)
	p.str(" in")
	p.level++
	at := c.In.Line()
	for _, item := range c.Items {
		end := item.OpPos
		if !end.IsValid() {
			end = c.Esac
		}
		p.lineOrBlank(len(p.pending) > 0 || item.Pos().Line() > at)
		p.caseItem(item, end)
		at = end.Line()
	}
	p.level--
	p.lineOrBlank(c.Esac.Line() > at)
	p.str("esac")
}

// caseItem writes the patterns and statements of an item of a case that ends at end.
func (p *printer) caseItem(item *syntax.CaseItem, end syntax.Pos) {
	p.str("(") // older versions of bash end a $( ) at an unmatched ")"
	for i, pattern := range item.Patterns {
		if i > 0 {
			p.str(" | ")
		}
		if pattern.Lit() == "}" { // bash may end the block around the case here
			p.refuse("a case with the pattern }; quote it")
		}
		p.word(pattern)
	}
	p.str(")")
	p.level++
	if n := len(item.Stmts); n > 0 {
		p.lineOrBlank(item.Stmts[0].Position.Line() > item.Patterns[0].Pos().Line())
		p.stmts(item.Stmts)
		p.lineOrBlank(len(p.pending) > 0 || end.Line() > item.Stmts[n-1].End().Line())
	} else {
		p.str(" ")
	}
	p.level--
	if item.Op != syntax.Break && item.Op != syntax.Fallthrough && item.Op != syntax.Resume {
		p.refuse("a case that is not supported")
	}
	p.str(item.Op.String())
}

func (p *printer) lineOrBlank(line bool) {
	if line {
		p.newline()
	} else {
		p.str(" ")
	}
}
