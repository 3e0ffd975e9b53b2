package shell

import (
	"errors"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// strayComment reports whether there is a "#" that only the parser considers the beginning of a comment,
// because no blank precedes it.
func strayComment(src string) bool {
	for i := range len(src) {
		if src[i] == '#' && i > 0 && strings.IndexByte(" \t\n{$\\", src[i-1]) < 0 {
			return true
		}
	}
	return false
}

// The contexts of a byte in a source with continued lines.
const (
	code   = iota // between words
	raw           // single quotes, or a here-document that is not expanded
	quoted        // double quotes
	closed        // places where the parser and bash may join lines differently
)

var (
	errContinued = errors.New(`it has a line that ends with \ inside a word, a comment or a here-document; write it on one line`)
	errComment   = errors.New("it has a # that may not begin a comment; put a blank before it")
)

// checkLines rejects comments and continued lines that bash may read differently from the parser, because bash
// joins lines before it parses most other syntax.
func checkLines(src string, file *syntax.File) error {
	m := lineMap{src: src, kinds: make([]byte, len(src)+1)}
	syntax.Walk(file, m.node)
	if m.err != nil {
		return m.err
	}
	for i := 0; ; i += 2 {
		next := strings.Index(src[i:], "\\\n")
		if next < 0 {
			return nil
		}
		i += next
		before := byte('\n')
		if i > 0 {
			before = src[i-1]
		}
		blank := before == ' ' || before == '\t' || before == '\n'
		switch m.kinds[i] {
		case raw:
		case code:
			if !blank || m.document && before != ' ' {
				return errContinued
			}
		case quoted:
			if before == '\\' || before == '$' || m.kinds[i-1] == closed {
				return errContinued
			}
		default:
			return errContinued
		}
	}
}

// A lineMap contains the context of each byte.
type lineMap struct {
	src      string
	kinds    []byte
	document bool // whether a here-document has joined lines
	err      error
}

func (m *lineMap) paint(from, to syntax.Pos, kind byte) {
	for i := int(from.Offset()); i < min(int(to.Offset()), len(m.kinds)); i++ {
		m.kinds[i] = kind
	}
}

// node paints a node over its parent.
func (m *lineMap) node(n syntax.Node) bool {
	switch x := n.(type) {
	case *syntax.Comment:
		if at := int(x.Hash.Offset()); at > 0 && strings.IndexByte(" \t\n;&|(", m.src[at-1]) < 0 {
			m.err = errComment
		}
		m.paint(x.Pos(), x.End(), closed)
	case *syntax.Word, *syntax.ParamExp, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.CStyleLoop:
		m.paint(n.Pos(), n.End(), closed)
	case *syntax.Assign:
		m.paint(x.Pos(), x.End(), closed)
	case *syntax.ArrayExpr:
		m.paint(x.Lparen, x.Rparen, code)
	case *syntax.CmdSubst:
		kind := byte(code)
		if x.Backquotes {
			kind = closed
		}
		m.paint(x.Left, x.End(), kind)
		if x.Backquotes {
			m.commentsBefore(x, x.Left)
		}
		return !x.Backquotes
	case *syntax.ProcSubst:
		m.paint(x.OpPos, x.End(), code)
	case *syntax.SglQuoted:
		if !x.Dollar {
			m.paint(x.Left, x.End(), raw)
		}
	case *syntax.DblQuoted:
		m.paint(x.Left, x.End(), quoted)
	case *syntax.Redirect:
		return m.redirect(x)
	}
	return true
}

// commentsBefore paints the comments before a node that the parser attaches to a statement inside it.
func (m *lineMap) commentsBefore(n syntax.Node, at syntax.Pos) {
	syntax.Walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.Comment); ok && c.Hash.Offset() < at.Offset() {
			m.node(c)
		}
		return true
	})
}

func (m *lineMap) redirect(x *syntax.Redirect) bool {
	if x.Op != syntax.Hdoc && x.Op != syntax.DashHdoc {
		return true
	}
	plain := quotedDelimiter(x.Word)
	m.paint(x.Word.Pos(), x.Word.End(), closed)
	m.document = m.document || !plain
	if x.Hdoc != nil {
		kind := byte(closed)
		if plain {
			kind = raw
		}
		m.paint(x.Hdoc.Pos(), x.Hdoc.End(), kind)
	}
	return false
}
