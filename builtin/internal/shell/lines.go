package shell

import (
	"errors"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// strayComment reports whether there is a "#" that only the parser may consider the beginning of a comment, because no
// blank is before it. ${#x}, $# and \# are not comments for either.
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
	betweenWords = iota
	verbatim     // single quotes, or a here-document that is not expanded: bash does not join the lines
	doubleQuotes
	unclear // the parser and bash may join the lines differently
)

var (
	errContinued = errors.New(`it has a line that ends with \ inside a word, a comment or a here-document; write it on one line`)
	errComment   = errors.New("it has a # that may not begin a comment; put a blank before it")
)

// checkLines rejects comments and continued lines that bash may read differently from the parser, because bash
// joins lines before it parses most other syntax.
func checkLines(src string, file *syntax.File) error {
	m := contextMap{src: src, contexts: make([]byte, len(src)+1)}
	syntax.Walk(file, m.node)
	if m.err != nil {
		return m.err
	}
	for i := 0; ; i += len("\\\n") {
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
		switch m.contexts[i] {
		case verbatim:
		case betweenWords:
			// After a here-document only the usual form is accepted.
			if !blank || m.expandedDocument && before != ' ' {
				return errContinued
			}
		case doubleQuotes:
			if before == '\\' || before == '$' || m.contexts[i-1] == unclear {
				return errContinued
			}
		default:
			return errContinued
		}
	}
}

// A contextMap has the context of each byte of a source.
type contextMap struct {
	src              string
	contexts         []byte
	expandedDocument bool // a here-document is expanded, in which bash joins lines
	err              error
}

func (m *contextMap) paint(from, to syntax.Pos, context byte) {
	for i := int(from.Offset()); i < min(int(to.Offset()), len(m.contexts)); i++ {
		m.contexts[i] = context
	}
}

// node sets the context of a node, over that of the node around it, and reports whether the nodes in it have contexts of
// their own.
func (m *contextMap) node(n syntax.Node) bool {
	switch x := n.(type) {
	case *syntax.Comment:
		if at := int(x.Hash.Offset()); at > 0 && strings.IndexByte(" \t\n;&|(", m.src[at-1]) < 0 {
			m.err = errComment
		}
		m.paint(x.Pos(), x.End(), unclear)
	case *syntax.Word, *syntax.ParamExp, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.CStyleLoop, *syntax.Assign:
		m.paint(n.Pos(), n.End(), unclear)
	case *syntax.ArrayExpr:
		m.paint(x.Lparen, x.Rparen, betweenWords)
	case *syntax.CmdSubst:
		if x.Backquotes {
			m.paint(x.Left, x.End(), unclear)
			m.commentsBefore(x, x.Left)
			return false
		}
		m.paint(x.Left, x.End(), betweenWords)
	case *syntax.ProcSubst:
		m.paint(x.OpPos, x.End(), betweenWords)
	case *syntax.SglQuoted:
		if !x.Dollar {
			m.paint(x.Left, x.End(), verbatim)
		}
	case *syntax.DblQuoted:
		m.paint(x.Left, x.End(), doubleQuotes)
	case *syntax.Redirect:
		return m.redirect(x)
	}
	return true
}

// commentsBefore sets the context of the comments before start that the parser attaches to a statement inside n.
func (m *contextMap) commentsBefore(n syntax.Node, start syntax.Pos) {
	syntax.Walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.Comment); ok && c.Hash.Offset() < start.Offset() {
			m.node(c)
		}
		return true
	})
}

// redirect is node for a redirection.
func (m *contextMap) redirect(x *syntax.Redirect) bool {
	if x.Op != syntax.Hdoc && x.Op != syntax.DashHdoc {
		return true
	}
	context := byte(verbatim)
	if !quotedDelimiter(x.Word) {
		context, m.expandedDocument = unclear, true
	}
	m.paint(x.Word.Pos(), x.Word.End(), unclear)
	if x.Hdoc != nil {
		m.paint(x.Hdoc.Pos(), x.Hdoc.End(), context)
	}
	return false
}
