package shell

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Limits on the source, because the parser is recursive.
const (
	maxSource   = 64 << 10 // bytes
	maxNesting  = 64       // open brackets
	maxKeywords = 2000     // words that may begin a statement inside a statement
)

// commentParsers keep comments, for checkLines.
var parsers, commentParsers = parserPool(false), parserPool(true)

func parserPool(comments bool) *sync.Pool {
	return &sync.Pool{New: func() any {
		return syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(comments))
	}}
}

// A program is the text that is analysed and run.
type program struct {
	stmts []*syntax.Stmt
	src   string // the text to which the positions in stmts refer
	text  string // the print
}

// parse returns the print of src and its tree, or why src has none. The next walk reuses the memory of the tree.
func (w *walker) parse(src string) (program, error) {
	if err := readable(src); err != nil {
		return program{}, err
	}
	// A text that the reader accepts is its own print.
	if stmts := w.trees.read(src); stmts != nil {
		return program{stmts: stmts, src: src, text: trimBlanks(src)}, nil
	}
	stmts, err := parseSource(src)
	if err != nil {
		return program{}, err
	}
	text, err := w.print(src, stmts)
	if err != nil {
		return program{}, err
	}
	out := string(text)
	if rest, ok := strings.CutPrefix(cutBlanks(src), out); ok && cutBlanks(rest) == "" {
		return program{stmts, src, out}, nil
	}
	file, err := parseText(out, parsers)
	if err != nil {
		return program{}, fmt.Errorf("it cannot be rewritten in a plain form: %w", err)
	}
	if again, err := w.print(out, file.Stmts); err != nil || string(again) != out {
		return program{}, errors.New("it cannot be rewritten in a plain form; use fewer kinds of quotes")
	}
	return program{file.Stmts, out, out}, nil
}

// blanks separate words and statements.
const blanks = " \t\n"

// cutBlanks removes the blanks before a text.
func cutBlanks(text string) string { return strings.TrimLeft(text, blanks) }

// trimBlanks removes the blanks around a text, unless a backslash escapes the first one after it.
func trimBlanks(text string) string {
	text = cutBlanks(text)
	if trimmed := strings.TrimRight(text, blanks); !strings.HasSuffix(trimmed, `\`) {
		return trimmed
	}
	return text
}

// parseSource parses the model's text, and rejects comments and continued lines that bash may read differently.
func parseSource(src string) ([]*syntax.Stmt, error) {
	if !strings.Contains(src, "\\\n") && !strayComment(src) {
		file, err := parseText(src, parsers)
		return file.Stmts, err
	}
	file, err := parseText(src, commentParsers)
	if err != nil {
		return nil, err
	}
	return file.Stmts, checkLines(src, file)
}

// parseText returns an empty file if there is an error.
func parseText(src string, from *sync.Pool) (*syntax.File, error) {
	p := from.Get().(*syntax.Parser)
	defer from.Put(p)
	file, err := p.Parse(strings.NewReader(src), "")
	if err != nil {
		return &syntax.File{}, fmt.Errorf("it is not bash: %w", err)
	}
	return file, nil
}

// readable rejects text that the parser and bash, or a user, may read differently, and text that is too large.
func readable(src string) error {
	if len(src) > maxSource {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", len(src), maxSource)
	}
	if start := cutBlanks(src); start != "" && (start[0] == '-' || start[0] == '+') {
		return errors.New("it begins like an option of bash")
	}
	if strings.HasSuffix(src, `\`) && (len(src)-len(strings.TrimRight(src, `\`)))%2 == 1 {
		return errors.New("it ends with a backslash")
	}
	fewKeywords := len(src) < 2*maxKeywords // each is a byte and a blank, or more
	if fewKeywords && ordinary(src) {
		return nil
	}
	if !utf8.ValidString(src) {
		return errors.New("it is not UTF-8")
	}
	depth := 0
	for i, r := range src {
		switch {
		case r == '(' || r == '{':
			if depth++; depth > maxNesting {
				return fmt.Errorf("it is nested more than %d deep", maxNesting)
			}
		case r == ')' || r == '}':
			depth = max(depth-1, 0)
		case r < ' ' && r != '\t' && r != '\n', r == 0x7f:
			return fmt.Errorf("it has the control character %U at byte %d", r, i)
		case r >= 0x80 && invisible(r):
			return fmt.Errorf("it has the invisible character %U at byte %d", r, i)
		}
	}
	if fewKeywords {
		return nil
	}
	n := 0 // of the words at which the parser recurses without a bracket
	for _, word := range []string{"if", "while", "until", "for", "case", "select", "time", "!", "function", "coproc", "{"} {
		n += strings.Count(src, word+" ")
	}
	if n > maxKeywords {
		return fmt.Errorf("it has more than %d compound statements", maxKeywords)
	}
	return nil
}

// ordinary reports whether a text has only printable ASCII without brackets that nest. Most texts do.
func ordinary(src string) bool {
	for i := range len(src) {
		if c := src[i]; c < ' ' || c >= '{' || c == '(' {
			return false
		}
	}
	return true
}

// invisible reports whether a terminal may show nothing for r, or show the text after it in another order.
func invisible(r rune) bool {
	return r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
