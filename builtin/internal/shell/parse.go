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

// Limits on the source. They limit the parser's stack and time.
const (
	maxSource   = 64 << 10
	maxNesting  = 64
	maxKeywords = 2000 // words that may begin a statement inside a statement
)

// commenters keep comments, which bash may read differently.
var parsers, commenters = pool(false), pool(true)

func pool(comments bool) *sync.Pool {
	return &sync.Pool{New: func() any {
		return syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(comments))
	}}
}

// A program is the text that is analysed and run.
type program struct {
	stmts []*syntax.Stmt
	src   string // the text of the positions in stmts
	text  string // the print
}

// parse parses src, or returns why it cannot be trusted. The tree of the print is analysed. The next walk
// reuses its memory.
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
	head := cutBlanks(src)
	if tail, ok := strings.CutPrefix(head, string(text)); ok && strings.Trim(tail, " \t\n") == "" {
		return program{stmts, src, head[:len(text)]}, nil
	}
	out := string(text)
	file, err := parseText(out, parsers)
	if err != nil {
		return program{}, fmt.Errorf("it cannot be rewritten in a plain form: %w", err)
	}
	if again, err := w.print(out, file.Stmts); err != nil || string(again) != out {
		return program{}, errors.New("it cannot be rewritten in a plain form; use fewer kinds of quotes")
	}
	return program{file.Stmts, out, out}, nil
}

// cutBlanks removes the blanks before a text.
func cutBlanks(text string) string {
	for text != "" && isBlank(text[0]) {
		text = text[1:]
	}
	return text
}

// trimBlanks removes the blanks around a text, except an escaped one.
func trimBlanks(text string) string {
	text = cutBlanks(text)
	end := text
	for end != "" && isBlank(end[len(end)-1]) {
		end = end[:len(end)-1]
	}
	if strings.HasSuffix(end, `\`) {
		return text
	}
	return end
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// parseSource parses the model's text, and rejects text that is known to have another meaning in bash.
func parseSource(src string) ([]*syntax.Stmt, error) {
	continued := strings.Contains(src, "\\\n")
	if !continued && !strayComment(src) {
		file, err := parseText(src, parsers)
		return file.Stmts, err
	}
	file, err := parseText(src, commenters)
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
	if len(src) < 2*maxKeywords && ordinary(src) {
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
	// The parser nests for each of these words, without a bracket that was counted above.
	if len(src) < 2*maxKeywords {
		return nil
	}
	n := 0
	for _, word := range []string{"if", "while", "until", "for", "case", "select", "time", "!", "function", "coproc", "{"} {
		n += strings.Count(src, word+" ")
	}
	if n > maxKeywords {
		return fmt.Errorf("it has more than %d compound statements", maxKeywords)
	}
	return nil
}

// ordinary reports whether a text consists only of bytes with one meaning. Most texts do.
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
