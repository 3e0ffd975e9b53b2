package shell

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Limits on what is parsed. They keep the parser's stack and time small.
const (
	maxSource   = 64 << 10
	maxNesting  = 64
	maxKeywords = 2000 // words that may open a statement inside a statement
)

var parsers = sync.Pool{New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }}

// parse reads src as bash does, or says why that cannot be trusted. What it
// returns is gone when the walk is over.
func (w *walker) parse(src string) ([]*syntax.Stmt, error) {
	if err := readable(src); err != nil {
		return nil, err
	}
	if stmts := w.trees.read(src); stmts != nil {
		return stmts, nil
	}
	p := parsers.Get().(*syntax.Parser)
	defer parsers.Put(p)
	file, err := p.Parse(strings.NewReader(src), "")
	if err != nil {
		return nil, fmt.Errorf("it is not bash: %w", err)
	}
	return file.Stmts, nil
}

// readable refuses what the parser and bash, or a person, may read differently,
// and what is too big to look at.
func readable(src string) error {
	if len(src) > maxSource {
		return fmt.Errorf("it has %d bytes, %d at most are looked at", len(src), maxSource)
	}
	if !utf8.ValidString(src) {
		return errors.New("it is not UTF-8")
	}
	if text := strings.TrimRight(src, `\`); (len(src)-len(text))%2 == 1 {
		return errors.New("it ends with a backslash")
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
		case 0x80 <= r && r <= 0x9f, 0x200b <= r && r <= 0x200f, 0x2028 <= r && r <= 0x202e, 0x2060 <= r && r <= 0x206f, r == 0xfeff:
			return fmt.Errorf("it has the invisible character %U at byte %d", r, i)
		}
	}
	// The parser goes down a level for each, without a bracket that was counted.
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
