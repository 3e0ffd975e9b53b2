package grep

import (
	"context"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// maxStates bounds the memory of an automaton to about 4 MiB, mostly for the 128 pointers of each state. A full
// automaton is cleared. A pattern can have exponentially many states, but each byte of text adds at most one.
const maxStates = 4000

// maxNonASCII bounds the cached transitions for non-ASCII characters, of which each state could have a million.
const maxNonASCII = 100_000

// A dfa decides whether lines match, with a deterministic automaton for prog that is built lazily. Call begin before
// each search. A dfa is not safe for concurrent use.
type dfa struct {
	prog          *syntax.Prog
	states        map[string]*state
	nonASCIISteps int    // number of non-ASCII transitions of all states
	start         *state // at the beginning of a line

	cost     int             // of building a state, in units of Matcher.work
	ctx      context.Context // of the current search; ending it stops the search
	unpolled int             // cost since ctx was last polled
	stopped  bool            // ctx has ended, so the results of find and matchLine are invalid

	reached []uint32 // the result of closure

	// Temporary data of closure and state.
	stack      []uint32
	generation uint32   // counts the calls of closure
	seen       []uint32 // by instruction: the last generation that reached the instruction
	key        []byte
}

// A state is a set of instructions to continue with, before empty-width assertions are evaluated, and what the
// assertions need to know about the previous character.
type state struct {
	insts       []uint32
	atLineStart bool // there is no previous character
	afterWord   bool // the previous character is a word character
	ascii       [utf8.RuneSelf]*state
	nonASCII    map[rune]*state
	final       *state // matched or dead: the state if the line ends here; nil if not known yet
}

// matched and dead are the final states. They have no successors.
var (
	matched = &state{}
	dead    = &state{}
)

func newDFA(prog *syntax.Prog) *dfa {
	d := &dfa{prog: prog, cost: work(prog), seen: make([]uint32, len(prog.Inst))}
	d.clear()
	return d
}

func (d *dfa) clear() {
	d.states, d.nonASCIISteps = map[string]*state{}, 0
	d.start = d.state([]uint32{uint32(d.prog.Start)}, true, false)
}

// begin begins a search: find and matchLine stop soon after ctx has ended.
func (d *dfa) begin(ctx context.Context) { d.ctx, d.unpolled, d.stopped = ctx, 0, false }

// mustStop polls ctx from time to time. It is called for new transitions only, since cached ones cost almost nothing.
func (d *dfa) mustStop() bool {
	if d.unpolled += d.cost; d.unpolled > pollEvery {
		d.unpolled, d.stopped = 0, d.ctx.Err() != nil
	}
	return d.stopped
}

// find returns the offset in text at which the first matching line is known to match, or -1. The offset is in that
// line, or at its line end. Text must consist of whole lines.
func (d *dfa) find(text []byte) int {
	s := d.start
	for i := 0; i < len(text); {
		c := text[i]
		var next *state
		switch {
		case c == '\n' || c == '\r' && i+1 < len(text) && text[i+1] == '\n':
			if d.end(s) == matched {
				return i
			}
			i++
			if c == '\r' {
				i++
			}
			s = d.start
			continue
		case c < utf8.RuneSelf:
			i++
			if next = s.ascii[c]; next == nil {
				next = d.step(s, rune(c))
			}
		default:
			r, size := utf8.DecodeRune(text[i:])
			i += size
			if next = s.nonASCII[r]; next == nil {
				next = d.step(s, r)
			}
		}
		if next == matched {
			return i - 1
		}
		s = next
	}
	if n := len(text); n > 0 && text[n-1] != '\n' && d.end(s) == matched {
		return n - 1
	}
	return -1
}

// matchLine reports whether line, which has no line end, matches.
func (d *dfa) matchLine(line []byte) bool {
	s := d.start
	for i := 0; i < len(line); {
		r, size := rune(line[i]), 1
		var next *state
		if r < utf8.RuneSelf {
			next = s.ascii[r]
		} else {
			r, size = utf8.DecodeRune(line[i:])
			next = s.nonASCII[r]
		}
		if next == nil {
			next = d.step(s, r)
		}
		if next == matched {
			return true
		}
		i += size
		s = next
	}
	return d.end(s) == matched
}

// step builds the successor of s for r.
func (d *dfa) step(s *state, r rune) *state {
	if d.mustStop() {
		return matched // ends the search, whose result does not count
	}
	if len(d.states) > maxStates || d.nonASCIISteps > maxNonASCII {
		d.clear() // s stays in use until the end of its line
	}
	isWord := syntax.IsWordChar(r)
	next := matched
	if !d.closure(s, d.assertions(s, isWord, false)) {
		next = d.consume(r, isWord)
	}
	if r < utf8.RuneSelf {
		s.ascii[r] = next
	} else {
		if s.nonASCII == nil {
			s.nonASCII = map[rune]*state{}
		}
		s.nonASCII[r] = next
		d.nonASCIISteps++
	}
	return next
}

// consume builds the state after r from d.reached.
func (d *dfa) consume(r rune, isWord bool) *state {
	var insts []uint32
	for _, pc := range d.reached {
		if in := &d.prog.Inst[pc]; in.MatchRune(r) {
			insts = append(insts, in.Out)
		}
	}
	insts = append(insts, uint32(d.prog.Start)) // a match may begin anywhere
	return d.state(insts, false, isWord)
}

// end returns the state if the line ends at s: matched or dead.
func (d *dfa) end(s *state) *state {
	if s.final == nil {
		s.final = dead
		if d.closure(s, d.assertions(s, false, true)) {
			s.final = matched
		}
	}
	return s.final
}

// assertions returns the empty-width assertions that are true between s and the next character.
func (d *dfa) assertions(s *state, nextIsWord, atEnd bool) syntax.EmptyOp {
	var f syntax.EmptyOp
	if s.atLineStart {
		f |= syntax.EmptyBeginLine | syntax.EmptyBeginText
	}
	if atEnd {
		f |= syntax.EmptyEndLine | syntax.EmptyEndText
	}
	if s.afterWord != nextIsWord {
		return f | syntax.EmptyWordBoundary
	}
	return f | syntax.EmptyNoWordBoundary
}

// closure sets d.reached to the instructions that consume a character and can be reached from s.
// It reports whether a match can be reached.
func (d *dfa) closure(s *state, assertions syntax.EmptyOp) (matches bool) {
	d.generation++
	d.reached = d.reached[:0]
	d.stack = append(d.stack[:0], s.insts...)
	for len(d.stack) > 0 {
		pc := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		if d.seen[pc] == d.generation {
			continue
		}
		d.seen[pc] = d.generation
		switch in := &d.prog.Inst[pc]; in.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			d.stack = append(d.stack, in.Arg, in.Out)
		case syntax.InstCapture, syntax.InstNop:
			d.stack = append(d.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^assertions == 0 {
				d.stack = append(d.stack, in.Out)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			d.reached = append(d.reached, pc)
		}
	}
	return false
}

// state returns the only state with these values.
func (d *dfa) state(insts []uint32, atLineStart, afterWord bool) *state {
	slices.Sort(insts)
	insts = slices.Compact(insts)
	d.key = d.key[:0]
	for _, pc := range insts {
		d.key = append(d.key, byte(pc), byte(pc>>8), byte(pc>>16), byte(pc>>24))
	}
	flags := byte(0)
	if atLineStart {
		flags |= 1
	}
	if afterWord {
		flags |= 2
	}
	d.key = append(d.key, flags)
	if s, ok := d.states[string(d.key)]; ok {
		return s
	}
	s := &state{insts: insts, atLineStart: atLineStart, afterWord: afterWord}
	d.states[string(d.key)] = s
	return s
}
