package grep

import (
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// maxStates bounds the memory of an automaton to about 4 MiB for each worker, mostly for the 128 pointers of
// each state. A full automaton is cleared. A pattern can have exponentially many states, but each byte of text
// adds at most one.
const maxStates = 4000

// maxOther bounds the cached transitions for non-ASCII characters, of which each state may have a million.
const maxOther = 100_000

// A dfa decides whether lines match. It lazily builds a deterministic automaton for the program. Text is
// processed one ASCII byte at a time; other characters are decoded and their transitions cached in a map. It is
// not safe for concurrent use.
type dfa struct {
	prog   *syntax.Prog
	states map[string]*state
	others int    // number of transitions that the states have in other
	start  *state // at the beginning of a line

	cost    int                      // of building a state, in units of Matcher.work
	done    int                      // cost since limit was last polled
	limit   interface{ Err() error } // a context; may be nil
	stopped bool                     // limit has ended, so the result of find is invalid

	// Temporary data of closure.
	stack []uint32
	seen  []uint32 // by instruction: the last generation that reached it
	gen   uint32
	set   []uint32
	key   []byte
}

// A state is a set of instructions to continue with, before empty-width assertions are evaluated, and what the
// assertions need to know about the previous character.
type state struct {
	insts     []uint32
	begin     bool // at the beginning of the line
	afterWord bool // the previous character is a word character
	ascii     [utf8.RuneSelf]*state
	other     map[rune]*state
	atEnd     *state // matched or dead: the state at the end of the line
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
	d.states, d.others = map[string]*state{}, 0
	d.start = d.state([]uint32{uint32(d.prog.Start)}, true, false)
}

// begin makes find and matchLine stop soon after limit, a context, has ended. Only new transitions are counted, as
// cached ones cost almost nothing.
func (d *dfa) begin(limit interface{ Err() error }) {
	d.limit, d.done, d.stopped = limit, 0, false
}

// mayStep reports whether limit allows another transition.
func (d *dfa) mayStep() bool {
	if d.done += d.cost; d.done > pollEvery && d.limit != nil {
		d.done, d.stopped = 0, d.limit.Err() != nil
	}
	return !d.stopped
}

// find returns an offset in the first matching line of text, at which the match is decided,
// or -1. Text must consist of whole lines.
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
			if next = s.other[r]; next == nil {
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
			next = s.other[r]
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
	if !d.mayStep() {
		return matched // any result ends the search
	}
	if len(d.states) > maxStates || d.others > maxOther {
		d.clear() // s stays in use until the end of its line
	}
	word := syntax.IsWordChar(r)
	next := matched
	if !d.closure(s, d.flags(s, word, false)) {
		next = d.consume(r, word)
	}
	if r < utf8.RuneSelf {
		s.ascii[r] = next
	} else {
		if s.other == nil {
			s.other = map[rune]*state{}
		}
		s.other[r] = next
		d.others++
	}
	return next
}

// consume builds the state after r from the closure in d.set.
func (d *dfa) consume(r rune, word bool) *state {
	var insts []uint32
	for _, pc := range d.set {
		if in := &d.prog.Inst[pc]; in.MatchRune(r) {
			insts = append(insts, in.Out)
		}
	}
	insts = append(insts, uint32(d.prog.Start)) // a match may begin anywhere
	return d.state(insts, false, word)
}

// end returns the state at the end of the line: matched or dead.
func (d *dfa) end(s *state) *state {
	if s.atEnd == nil {
		s.atEnd = dead
		if d.closure(s, d.flags(s, false, true)) {
			s.atEnd = matched
		}
	}
	return s.atEnd
}

// flags returns the assertions that are true between s and the next character.
func (d *dfa) flags(s *state, nextIsWord, atEnd bool) syntax.EmptyOp {
	var f syntax.EmptyOp
	if s.begin {
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

// closure sets d.set to the instructions that consume a character and can be reached from s.
// It reports whether a match can be reached.
func (d *dfa) closure(s *state, flags syntax.EmptyOp) bool {
	d.gen++
	d.set = d.set[:0]
	d.stack = append(d.stack[:0], s.insts...)
	for len(d.stack) > 0 {
		pc := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		if d.seen[pc] == d.gen {
			continue
		}
		d.seen[pc] = d.gen
		switch in := &d.prog.Inst[pc]; in.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			d.stack = append(d.stack, in.Arg, in.Out)
		case syntax.InstCapture, syntax.InstNop:
			d.stack = append(d.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				d.stack = append(d.stack, in.Out)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			d.set = append(d.set, pc)
		}
	}
	return false
}

// state returns the state for a set of instructions; equal sets have the same state.
func (d *dfa) state(insts []uint32, begin, afterWord bool) *state {
	slices.Sort(insts)
	insts = slices.Compact(insts)
	d.key = d.key[:0]
	for _, pc := range insts {
		d.key = append(d.key, byte(pc), byte(pc>>8), byte(pc>>16), byte(pc>>24))
	}
	last := byte(0)
	if begin {
		last |= 1
	}
	if afterWord {
		last |= 2
	}
	d.key = append(d.key, last)
	if s, ok := d.states[string(d.key)]; ok {
		return s
	}
	s := &state{insts: insts, begin: begin, afterWord: afterWord}
	d.states[string(d.key)] = s
	return s
}
