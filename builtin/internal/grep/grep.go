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
	literals []literal      // every match contains one of these; nil if there are none
	exact    bool           // each literal is a match
	prog     *syntax.Prog   // for single lines
	work     int            // greatest cost of a character, in units of about 2 ns
	re       *regexp.Regexp // for Multiline, at the beginning of the text
	reRest   *regexp.Regexp // for Multiline, in the rest of the text; see neverBegin
}

// Limits on a pattern: the number of compiled instructions, since building a state of the automaton is linear
// in it, and the number of character ranges in its classes, each of which takes time to compile.
const (
	maxPattern = 2000
	maxRanges  = 20_000
)

// Compile makes a matcher. It fails for an invalid or too large pattern, and for one that
// contains a line end without Multiline.
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
		return nil, explain(pattern, err)
	}
	if !o.Multiline && needsLineEnd(re) {
		return nil, fmt.Errorf("pattern %q contains a line end, but lines are searched one by one; set multiline", pattern)
	}
	tooLarge := fmt.Errorf("pattern %.100q is too large; split it into several searches", pattern)
	if ranges(re) > maxRanges {
		return nil, tooLarge
	}
	if o.Multiline {
		beforeCR(re)
	}
	written := re // without expanded repetitions, which may take megabytes
	re = re.Simplify()
	m := &Matcher{Options: o}
	// With frequent literals nearly every line has one, and the automaton alone is faster.
	if l := required(re); cost(l) < 0.01 {
		m.literals = l
	}
	if m.prog, err = syntax.Compile(re); err != nil {
		return nil, explain(pattern, err)
	}
	if len(m.prog.Inst) > maxPattern {
		return nil, tooLarge
	}
	m.work = work(m.prog)
	m.exact = re.Op == syntax.OpLiteral && len(m.literals) == 1 && len(m.literals[0].text) == len(string(re.Rune))
	if o.Multiline {
		if m.re, err = regexp.Compile(written.String()); err != nil {
			return nil, explain(pattern, err)
		}
		neverBegin(written)
		if m.reRest, err = regexp.Compile(written.String()); err != nil {
			return nil, explain(pattern, err)
		}
	}
	return m, nil
}

// ranges counts the ranges of characters in re.
func ranges(re *syntax.Regexp) int {
	n := len(re.Rune) / 2
	for _, sub := range re.Sub {
		n += ranges(sub)
	}
	return n
}

// work returns the greatest cost of a character: every instruction may process it, and an instruction for a
// class searches its ranges.
func work(prog *syntax.Prog) int {
	n := 0
	for i := range prog.Inst {
		n += 1 + bits.Len(uint(len(prog.Inst[i].Rune)/2))
	}
	return n
}

// beforeCR makes the assertions for line ends in re also match before CRLF. Single lines do not need that, as
// they have no line end.
func beforeCR(re *syntax.Regexp) {
	for i, sub := range re.Sub {
		if sub.Op != syntax.OpEndLine {
			beforeCR(sub)
			continue
		}
		re.Sub[i] = &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{
			{Op: syntax.OpQuest, Sub: []*syntax.Regexp{{Op: syntax.OpLiteral, Rune: []rune{'\r'}}}}, sub}}
	}
}

// neverBegin makes the assertions in re for the beginning of the text never match. It is for the
// rest of a text, which package regexp would treat as a whole text.
func neverBegin(re *syntax.Regexp) {
	if re.Op == syntax.OpBeginText {
		re.Op = syntax.OpNoMatch
	}
	for _, sub := range re.Sub {
		neverBegin(sub)
	}
}

func explain(pattern string, err error) error {
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

// needsLineEnd reports whether re contains a literal line end.
func needsLineEnd(re *syntax.Regexp) bool {
	if re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') {
		return true
	}
	return slices.ContainsFunc(re.Sub, needsLineEnd)
}
