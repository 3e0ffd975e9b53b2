package grep

import (
	"bytes"
	"math"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLiterals is how many literals are searched for at once; with more of them the automaton is faster.
const maxLiterals = 8

// required returns literals of which every match of re contains at least one, or nil if there are no useful ones.
func required(re *syntax.Regexp) []literal {
	switch re.Op {
	case syntax.OpLiteral:
		return literalOf(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []literal
		for _, sub := range re.Sub {
			if l := required(sub); cost(l) < cost(best) {
				best = l
			}
		}
		return best
	case syntax.OpAlternate:
		var all []literal
		for _, sub := range re.Sub {
			l := required(sub)
			if l == nil {
				return nil
			}
			all = append(all, l...)
		}
		if len(all) <= maxLiterals {
			return all
		}
	}
	return nil
}

// cost estimates the share of positions in a text at which one of the literals occurs: all, if there are no literals.
func cost(literals []literal) float64 {
	if literals == nil {
		return 1
	}
	sum := 0.0
	for _, l := range literals {
		p := 1.0
		for i := range l.text {
			p *= frequency(l.text[i])
		}
		sum += p
	}
	return sum
}

// A literal is a string to search for. If fold is set, ASCII case is ignored and text is lower case.
type literal struct {
	text   string
	fold   bool
	rarest int // the index of the rarest byte of text, which is searched for first
}

// literalOf makes a literal of an OpLiteral.
func literalOf(re *syntax.Regexp) []literal {
	if slices.Contains(re.Rune, utf8.RuneError) {
		return nil // U+FFFD matches any invalid byte
	}
	fold := re.Flags&syntax.FoldCase != 0
	if !fold {
		return []literal{newLiteral(string(re.Rune), false)}
	}
	// Use the longest part without non-ASCII letters and without letters that have more than two case forms: k and s.
	best := ""
	parts := strings.FieldsFunc(strings.ToLower(string(re.Rune)), func(r rune) bool {
		next := unicode.SimpleFold(r)
		return r >= 0x80 || next >= 0x80 || unicode.SimpleFold(next) != r
	})
	for _, p := range parts {
		if len(p) > len(best) {
			best = p
		}
	}
	if best == "" {
		return nil
	}
	return []literal{newLiteral(best, true)}
}

func newLiteral(text string, fold bool) literal {
	l := literal{text: text, fold: fold}
	for i := range text {
		if frequency(text[i]) < frequency(text[l.rarest]) {
			l.rarest = i
		}
	}
	return l
}

// common lists the bytes of source text, the most frequent first.
const common = " etaonrislcdupmf(.)\"g,hb_y=/v-:x\t\nw;kE0TSI{}1ACRN*D'OPq2LFMz'jU>B<3G[]"

// frequency roughly estimates the share of b in source text. A wrong estimate only makes the search slower.
func frequency(b byte) float64 {
	if i := strings.IndexByte(common, b); i >= 0 {
		return 0.1 / float64(i+1)
	}
	return 0.0005
}

// A finder searches for one literal in one text, from the beginning to the end, and caches how far it has
// searched. Call reset before each text.
type finder struct {
	literal
	lower, upper byte // the rarest byte of the literal, in both cases if fold is set

	// The offsets where lower, upper and the literal were found last; -1 before the first search.
	atLower, atUpper, atLiteral int
}

const none = math.MaxInt // no occurrence; greater than every offset, so that min ignores it

func newFinder(l literal) finder {
	f := finder{literal: l, lower: l.text[l.rarest], upper: l.text[l.rarest]}
	if l.fold && 'a' <= f.lower && f.lower <= 'z' {
		f.upper = f.lower - 'a' + 'A'
	}
	return f
}

// reset prepares for another text.
func (f *finder) reset() { f.atLower, f.atUpper, f.atLiteral = -1, -1, -1 }

// next returns the offset of the first occurrence at or after from, or none. Successive calls must not decrease from.
func (f *finder) next(text []byte, from int) int {
	if f.atLiteral >= from {
		return f.atLiteral
	}
	for pos := from + f.rarest; ; {
		f.atLower = nextByte(text, f.lower, f.atLower, pos)
		hit := f.atLower
		if f.upper != f.lower {
			f.atUpper = nextByte(text, f.upper, f.atUpper, pos)
			hit = min(hit, f.atUpper)
		}
		if hit == none {
			f.atLiteral = none
			return none
		}
		start := hit - f.rarest
		if end := start + len(f.text); end <= len(text) && f.equal(text[start:end]) {
			f.atLiteral = start
			return start
		}
		pos = hit + 1
	}
}

// nextByte returns the offset of the first b at or after pos, or none; known is the offset that was found last.
func nextByte(text []byte, b byte, known, pos int) int {
	if known >= pos {
		return known
	}
	if pos < len(text) {
		if i := bytes.IndexByte(text[pos:], b); i >= 0 {
			return pos + i
		}
	}
	return none
}

func (f *finder) equal(b []byte) bool {
	if !f.fold {
		return string(b) == f.text
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != f.text[i] {
			return false
		}
	}
	return true
}
