// Package grep finds lines in text that match a regular expression, fast
// enough to search a source tree without an index.
//
//	m, err := grep.Compile(`func \w+Handler\(`, grep.Options{})
//	s := m.NewSearcher()             // one for each goroutine
//	err = s.Search(ctx, file, func(l grep.Line) bool { … })
//
// The syntax is that of package regexp. A match lies within one line unless [Options.Multiline] is set; "^" and "$"
// match at the ends of lines, which are LF or CRLF; "\n" in a multiline pattern is LF only. `\A` and `\z` match at
// the ends of the whole text if Multiline is set, or else of the line. If every match must contain a literal, the
// literal is searched for first. A lazily built automaton decides about lines, in linear time for any pattern.
package grep

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// Options change what matches and what is reported.
type Options struct {
	IgnoreCase bool
	Multiline  bool // matches may span lines, and "." matches line ends

	Before, After int  // lines of context around each match
	NoNumbers     bool // leave [Line.Number] 0, which is faster
}

// A Matcher is a compiled pattern. It is immutable and safe for concurrent use.
type Matcher struct {
	Options
	literals []literal      // every match contains one of these; nil if there are none, or if they are frequent
	exact    bool           // the pattern is a literal, the only one in literals
	prog     *syntax.Prog   // for single lines
	work     int            // greatest cost of a character, in units of about 2 ns
	re       *regexp.Regexp // for the first match of a Multiline search
	reRest   *regexp.Regexp // for later matches, which are searched for in the rest of the text
}

// Limits on a pattern.
const (
	maxInsts  = 2000   // compiled instructions: building a state of the automaton takes time for each
	maxRanges = 20_000 // character ranges in the classes: compiling takes time for each
)

// Compile makes a matcher. It fails for an invalid or too large pattern and, without Multiline, for a pattern that
// contains a line end.
func Compile(pattern string, o Options) (*Matcher, error) {
	flags := syntax.Perl
	if o.IgnoreCase {
		flags |= syntax.FoldCase
	}
	if o.Multiline {
		flags = flags&^syntax.OneLine | syntax.DotNL
	}
	re, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, patternError(pattern, err)
	}
	if !o.Multiline && containsLineEnd(re) {
		return nil, fmt.Errorf("pattern %q contains a line end, but lines are searched one by one; set multiline", pattern)
	}
	tooLarge := fmt.Errorf("pattern %.100q is too large; split it into several searches", pattern)
	if countRanges(re) > maxRanges {
		return nil, tooLarge
	}
	if o.Multiline {
		matchEndBeforeCRLF(re)
	}
	original := re // Simplify expands repetitions, which may take megabytes
	re = re.Simplify()
	m := &Matcher{Options: o}
	// If a literal occurs more often than once in 100 bytes, nearly every line has one, and the automaton is faster.
	if l := required(re); cost(l) < 0.01 {
		m.literals = l
	}
	if m.prog, err = syntax.Compile(re); err != nil {
		return nil, patternError(pattern, err)
	}
	if len(m.prog.Inst) > maxInsts {
		return nil, tooLarge
	}
	m.work = work(m.prog)
	m.exact = re.Op == syntax.OpLiteral && len(m.literals) == 1 && len(m.literals[0].text) == len(string(re.Rune))
	if o.Multiline {
		if m.re, err = regexp.Compile(original.String()); err != nil {
			return nil, patternError(pattern, err)
		}
		disableBeginText(original)
		if m.reRest, err = regexp.Compile(original.String()); err != nil {
			return nil, patternError(pattern, err)
		}
	}
	return m, nil
}

// countRanges counts the ranges of characters in re.
func countRanges(re *syntax.Regexp) int {
	n := len(re.Rune) / 2
	for _, sub := range re.Sub {
		n += countRanges(sub)
	}
	return n
}

// work returns the greatest cost of a character: every instruction may process the character, and an instruction with
// a class does a binary search in the ranges of the class.
func work(prog *syntax.Prog) int {
	n := 0
	for i := range prog.Inst {
		n += 1 + bits.Len(uint(len(prog.Inst[i].Rune)/2))
	}
	return n
}

// matchEndBeforeCRLF makes each "$" in re also match before CRLF, for Multiline. Single lines are matched without
// their line end.
func matchEndBeforeCRLF(re *syntax.Regexp) {
	for i, sub := range re.Sub {
		if sub.Op != syntax.OpEndLine {
			matchEndBeforeCRLF(sub)
			continue
		}
		re.Sub[i] = &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{
			{Op: syntax.OpQuest, Sub: []*syntax.Regexp{{Op: syntax.OpLiteral, Rune: []rune{'\r'}}}}, sub}}
	}
}

// disableBeginText makes each `\A` in re match nothing: package regexp would match it at the beginning of the rest of
// a text.
func disableBeginText(re *syntax.Regexp) {
	if re.Op == syntax.OpBeginText {
		re.Op = syntax.OpNoMatch
	}
	for _, sub := range re.Sub {
		disableBeginText(sub)
	}
}

// patternError says what is wrong with pattern, and how to write what the model may have meant.
func patternError(pattern string, err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		hint := ""
		switch e.Code {
		case syntax.ErrMissingParen, syntax.ErrUnexpectedParen, syntax.ErrMissingBracket, syntax.ErrMissingRepeatArgument:
			hint = `; to find the characters themselves write a backslash before them, as in "\("`
		case syntax.ErrInvalidPerlOp:
			hint = "; look-around and back-references are not supported: search for more, and choose from the result"
		}
		return fmt.Errorf("pattern %q is not a valid regular expression: %s %s%s", pattern, e.Code, strings.TrimSpace(e.Expr), hint)
	}
	return fmt.Errorf("pattern %q: %w", pattern, err)
}

// containsLineEnd reports whether re contains a literal line end.
func containsLineEnd(re *syntax.Regexp) bool {
	if re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') {
		return true
	}
	return slices.ContainsFunc(re.Sub, containsLineEnd)
}
